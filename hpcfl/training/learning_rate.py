"""The learning rate of a round."""

from __future__ import annotations

import math

from hpcfl.config.train import TrainConfig


def learning_rate(settings: TrainConfig, t: int) -> float:
    """Returns the learning rate in round t, counted from 0; it is constant within a round."""
    if settings.lr_schedule == "constant":
        return settings.lr
    assert settings.lr_rounds is not None, "checked with the configuration"
    if settings.lr_schedule == "step":
        return settings.lr * settings.lr_factor ** (t // settings.lr_rounds)
    done = min(1.0, t / settings.lr_rounds)
    return settings.lr_min + (settings.lr - settings.lr_min) * (1 + math.cos(math.pi * done)) / 2
