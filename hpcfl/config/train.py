"""The section [train]: how clients train."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hpcfl.config.section import Count, Positive, Section, Weight

NO_CLIPPING = "updates weights before the norm of all gradients is known; do not clip"
"""Why the direct step cannot clip gradients."""


class TrainConfig(Section):
    lr: Positive = 0.01
    """Learning rate of the clients' SGD, whose momentum is reset in each round."""
    batch_size: Count = 32
    """Samples per step; the last batch of an epoch may be smaller."""
    shuffle: bool = True
    """Whether samples have a new random order in each epoch; if not, one random order for the whole run."""
    drop_last: bool = False
    """Whether the last, smaller batch of an epoch is left out."""
    epochs: Count = 1
    """Epochs of local training per round."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Momentum of the clients' SGD."""
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    """Optimiser of the clients, new in each round; Adam has torch's β (0.9, 0.999) and ε (1e-8)."""
    weight_decay: Weight = 0.0
    """Weight decay λ: sgd and adam add λw to the gradient; adamw takes the share lr·λ off w."""
    lr_schedule: Literal["constant", "step", "cosine"] = "constant"
    """Learning rate over rounds: constant; step: times lr_factor at intervals; cosine: down to lr_min."""
    lr_rounds: Count | None = None
    """step: rounds between two steps; cosine: rounds until lr_min, which then stays."""
    lr_factor: Annotated[float, Field(gt=0, le=1)] = 0.1
    """step: factor of each step."""
    lr_min: Weight = 0.0
    """cosine: learning rate at its end."""
    clip_norm: Weight = 0.0
    """Gradients with a larger norm are scaled down to it (needs the plain step); 0: never."""
    augment: list[Literal["crop", "flip", "randaugment"]] = Field(default_factory=list)
    """Random augmentation of training images: crop (4 pixels of padding), flip, randaugment."""
