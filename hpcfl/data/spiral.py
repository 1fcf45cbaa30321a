"""The synthetic spiral dataset: six arms in the plane (FedNH; ProtoNorm, supplement A)."""

from __future__ import annotations

import numpy as np

from hpcfl.config.data import SPIRAL_CLASSES as CLASSES
from hpcfl.config.data import DataConfig
from hpcfl.utils.seeds import generator


def spiral(settings: DataConfig) -> tuple[np.ndarray, np.ndarray]:
    """Returns points and labels; each coordinate is standardised over all points, a label is the arm.

    Point i of n on arm k has radius r_i from 1 to 10 and angle ω: x = r sin ω, y = r cos ω. In FedNH's
    generator, the default, ω goes from 2πk/6 to 2π(k+1)/6 in even steps, plus 0.5·U(0, 1). Supplement A
    prints a sweep of k·π/3 (with a stray k) plus normal noise of deviation 1, as wide as the distance of two
    arms. Points are standardised, as images are, because radii up to 10 make λ = 10 diverge at the
    papers' learning rate. The points are the same for every seed of a run.
    """
    n = settings.samples_per_class
    rng = generator(0, "spiral")
    radius = np.linspace(1, 10, n)
    arms = []
    for k in range(CLASSES):
        start = 2 * np.pi * k / CLASSES
        if settings.style == "fednh":
            angle = np.linspace(start, start + 2 * np.pi / CLASSES, n) + 0.5 * rng.random(n)
        else:
            angle = np.linspace(start, start + k * np.pi / 3, n) + rng.standard_normal(n)
        arms.append(np.stack([radius * np.sin(angle), radius * np.cos(angle)], axis=1))
    x = np.concatenate(arms)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    return x.astype(np.float32), np.repeat(np.arange(CLASSES), n)
