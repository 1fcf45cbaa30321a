"""Data augmentation: crop, flip and RandAugment, random by key and sample, so the same on any rank."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from hpcfl.federation.run_plan import RunPlan
from hpcfl.utils import seeds
from hpcfl.utils.accelerator import to_device
from hpcfl.utils.seeds import uniforms
from hpcfl.utils.torchvision_loader import load_torchvision

PADDING = 4
"""Black pixels around an image before the random crop to its own size."""
LAYERS, MAGNITUDE, BINS = 2, 9, 31
"""RandAugment(2, 9): operations per image and their magnitude, out of the usual 31 bins."""
STRENGTH = MAGNITUDE / (BINS - 1)

TRAINING, WEAK, STRONG = range(3)
"""Kinds of views: of labelled training samples, and the two of unlabelled ones."""

DRAWS = 3 + 2 * LAYERS
"""Random numbers per sample: two for the crop, one for the flip, operation and sign per layer."""


class Augmentation:
    """An augmentation of images; `key` is derived from seed, client, round, epoch and kind of view."""

    def __init__(self, key: int, steps: Sequence[str]):
        self.key, self.steps = key, steps
        self.on_host = "randaugment" in steps
        """Whether images are augmented before they are copied: torchvision's operations wait for a device."""

    def __call__(self, x_BHWC: Tensor, sample_B: np.ndarray) -> Tensor:
        """Returns the augmented uint8 images; `sample_B` are their indices in the dataset."""
        u_BR = uniforms(self.key, sample_B, DRAWS)
        if "crop" in self.steps or "flip" in self.steps:
            x_BHWC = crop_and_flip(
                x_BHWC,
                (u_BR[:, :2] * (2 * PADDING + 1)).astype(np.int64) - PADDING
                if "crop" in self.steps
                else None,
                u_BR[:, 2] < 0.5 if "flip" in self.steps else None,
            )
        if "randaugment" in self.steps:
            x_BCHW = x_BHWC.permute(0, 3, 1, 2).contiguous()
            for layer in range(LAYERS):
                x_BCHW = randaugment(x_BCHW, u_BR[:, 3 + 2 * layer], u_BR[:, 4 + 2 * layer] < 0.5)
            x_BHWC = x_BCHW.permute(0, 2, 3, 1)
        return x_BHWC


def augmentation_of(
    plan: RunPlan, i: int, t: int, epoch: int, kind: int, steps: Sequence[str]
) -> Augmentation | None:
    """Returns the augmentation of client i in round t, keyed by epoch and kind; None if there is none."""
    if not steps or not plan.data.is_images:
        return None
    return Augmentation(seeds.key(plan.config.seed, "view", i, t, epoch, kind), steps)


def crop_and_flip(x_BHWC: Tensor, shift_B2: np.ndarray | None, flip_B: np.ndarray | None) -> Tensor:
    """Returns images shifted by some pixels (filled with black) and flipped horizontally, in one gather."""
    batch, height, width, _ = x_BHWC.shape
    row_BH, column_BW = np.arange(height)[None].repeat(batch, 0), np.arange(width)[None].repeat(batch, 0)
    if flip_B is not None:
        column_BW = np.where(flip_B[:, None], width - 1 - column_BW, column_BW)
    if shift_B2 is not None:
        row_BH, column_BW = row_BH + shift_B2[:, :1], column_BW + shift_B2[:, 1:]
    row_inside_BH = (row_BH >= 0) & (row_BH < height)
    column_inside_BW = (column_BW >= 0) & (column_BW < width)
    inside_BHW = row_inside_BH[:, :, None] & column_inside_BW[:, None]
    index_BHW = row_BH.clip(0, height - 1)[:, :, None] * width + column_BW.clip(0, width - 1)[:, None]
    index_BHW += np.arange(batch)[:, None, None] * (height * width)
    pixels = x_BHWC.reshape(batch * height * width, -1)
    device = x_BHWC.device
    gathered = pixels[to_device(torch.from_numpy(index_BHW.ravel()), device)].view_as(x_BHWC)
    return gathered * to_device(torch.from_numpy(inside_BHW[..., None]), device)


def randaugment(x_BCHW: Tensor, choice_B: np.ndarray, sign_B: np.ndarray) -> Tensor:
    """Returns images after one operation each; images with the same operation are processed together."""
    operations = _operations(x_BCHW.shape[-1], x_BCHW.shape[-2])
    number_B = (choice_B * len(operations)).astype(np.int64)
    out = x_BCHW.clone()
    for number, (signed, operation) in enumerate(operations):
        for sign in (1, -1) if signed else (1,):
            chosen_B = (number_B == number) & (sign_B == (sign > 0) if signed else True)
            which = to_device(torch.from_numpy(np.flatnonzero(chosen_B)), x_BCHW.device)
            if len(which):
                out[which] = operation(x_BCHW[which], sign * STRENGTH)
    return out


@cache
def _operations(width: int, height: int) -> list[tuple[bool, Callable[[Tensor, float], Tensor]]]:
    """Returns RandAugment's 14 operations, each with whether its strength s in −1 … 1 has a random sign."""
    load_torchvision()
    from torchvision.transforms.v2 import functional as f

    def affine(x: Tensor, shift: tuple[float, float] = (0, 0), shear: tuple[float, float] = (0, 0)) -> Tensor:
        degrees = [math.degrees(math.atan(part)) for part in shear]
        centre = [0.0, 0.0] if any(shear) else None
        pixels = [int(part) for part in shift]
        return f.affine_image(x, angle=0.0, translate=pixels, scale=1.0, shear=degrees, center=centre)

    return [
        (False, lambda x, s: x),
        (True, lambda x, s: affine(x, shear=(0.3 * s, 0))),
        (True, lambda x, s: affine(x, shear=(0, 0.3 * s))),
        (True, lambda x, s: affine(x, shift=(150 / 331 * width * s, 0))),
        (True, lambda x, s: affine(x, shift=(0, 150 / 331 * height * s))),
        (True, lambda x, s: f.rotate_image(x, 30.0 * s)),
        (True, lambda x, s: f.adjust_brightness_image(x, 1 + 0.9 * s)),
        (True, lambda x, s: f.adjust_saturation_image(x, 1 + 0.9 * s)),
        (True, lambda x, s: f.adjust_contrast_image(x, 1 + 0.9 * s)),
        (True, lambda x, s: f.adjust_sharpness_image(x, 1 + 0.9 * s)),
        (False, lambda x, s: f.posterize_image(x, 8 - round(4 * s))),
        (False, lambda x, s: f.solarize_image(x, 255 * (1 - s))),
        (False, lambda x, s: f.autocontrast_image(x)),
        (False, lambda x, s: f.equalize_image(x)),
    ]
