"""The synthetic spiral: six arms in the plane (ProtoNorm, supplement A; it comes from FedNH)."""

from __future__ import annotations

import numpy as np

from hpcfl.config.schema import DataConfig
from hpcfl.utils.seeds import generator

CLASSES = 6


def spiral(settings: DataConfig) -> tuple[np.ndarray, np.ndarray]:
    """Returns the points, each coordinate standardised over all of them, and their arms.

    Point i of n on arm k lies at radius r_i from 1 to 10 and angle ω: x = r sin ω, y = r cos ω. FedNH's
    generator has ω from 2πk/6 to 2π(k+1)/6 evenly, plus 0.5·U(0, 1). Supplement A prints a sweep of k·π/3
    (a stray k) plus normal noise of deviation 1, as wide as the arms lie apart, so FedNH's is the default.
    Raw radii up to 10 make λ = 10 diverge at the papers' learning rate, hence the standardisation
    (images are standardised too). The points are the same for every seed of a run.
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
