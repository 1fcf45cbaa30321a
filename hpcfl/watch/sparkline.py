"""A series as a line of block characters."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: np.ndarray, width: int) -> str:
    """Returns the finite values as blocks whose height goes from the minimum to the maximum.

    If there are more than `width` values, each block shows the mean of neighbours.
    """
    values = values[np.isfinite(values)]
    bins = min(width, len(values))
    if bins < 1:
        return ""
    edges = [index * len(values) // bins for index in range(bins + 1)]
    means = np.array([values[start:end].mean() for start, end in pairwise(edges)])
    low, high = means.min(), means.max()
    if not high > low:
        return BLOCKS[3] * bins
    levels = ((means - low) / (high - low) * len(BLOCKS)).astype(int)
    return "".join(BLOCKS[min(index, len(BLOCKS) - 1)] for index in levels)
