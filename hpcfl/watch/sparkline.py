"""A series as a line of blocks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: np.ndarray, width: int) -> str:
    """Returns the finite values as blocks from the least to the largest, their means where there are many."""
    values = values[np.isfinite(values)]
    bins = min(width, len(values))
    if bins < 1:
        return ""
    edges = [place * len(values) // bins for place in range(bins + 1)]
    means = np.array([values[start:end].mean() for start, end in pairwise(edges)])
    low, high = means.min(), means.max()
    if not high > low:
        return BLOCKS[3] * bins
    places = ((means - low) / (high - low) * len(BLOCKS)).astype(int)
    return "".join(BLOCKS[min(place, len(BLOCKS) - 1)] for place in places)
