"""Seconds with all parts of the training step ÷ those without one: medians of ratios within turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hpcfl.bench.limits import timed
from hpcfl.bench.step_comparison import StepComparison
from hpcfl.bench.step_table import OURS
from hpcfl.errors import unknown
from hpcfl.federation.run_plan import RunPlan
from hpcfl.runtime.devices import set_up_torch
from hpcfl.training import samples
from hpcfl.training.step import layers

Replacement = tuple[object, str, object]
"""An object, the name of one of its attributes, and the value that the attribute has without the part."""


def print_ablation(plan: RunPlan, repeats: int, names: Sequence[str]) -> None:
    """Prints one line for each of these parts, or for all; the first repeat is not counted."""
    device = set_up_torch(plan.config.runtime, 0)
    comparison = StepComparison(plan, device, each=False)
    parts = step_parts([bound.step.network for bound in comparison.workers[OURS].networks.values()])
    for name in names:
        if name not in parts:
            raise unknown("--part", name, parts)
    for name in names or parts:
        seconds = np.zeros((repeats, len(plan.clients), 2))
        for repeat in range(repeats):
            for i in range(len(plan.clients)):
                work = partial(comparison.run, OURS, i, repeat)
                variants = (partial(run_without, parts[name], work), work)
                for which in (0, 1) if repeat % 2 else (1, 0):
                    seconds[repeat, i, which] = timed(variants[which], device)
        ratio_R = seconds[1:, :, 1].sum(1) / seconds[1:, :, 0].sum(1)
        low, middle, high = np.quantile(ratio_R, [0.25, 0.5, 0.75])
        print(f"{name}: with ÷ without {middle:.3f} (quartiles {low:.3f} and {high:.3f})", flush=True)


def step_parts(networks: Sequence[nn.Module]) -> dict[str, list[Replacement]]:
    """Returns the replacements that take each part of the step out (docs/speed.md explains the parts)."""
    return {
        "weight-update": [(layers, "_weight_gradient", _with_gradient)],
        "onednn": [(layers, "ONEDNN", False)],
        "pointwise": [(layers, "_axes", _axes_unless(lambda layer: layer.kernel_size == (1, 1)))],
        "few-outputs": [(layers, "FEW_OUTPUTS", 0)],
        "kernel-entries": [(layers, "conv_axis", _all_taps)],
        "depthwise": [(layers, "_axes", _axes_unless(lambda layer: layer.groups > 1))],
        "batch-rows": [(samples.ClientSamples, "batch", _batch_by_element)],
        "max-pool": [
            (part, "_modules", relu_first(part))
            for network in networks
            for part in network.modules()
            if isinstance(part, nn.Sequential) and relu_first(part) != part._modules
        ],
    }


def run_without(replacements: Sequence[Replacement], work: Callable[[], None]) -> None:
    """Does the work with these attributes replaced."""
    kept = [(holder, name, getattr(holder, name)) for holder, name, _ in replacements]
    for holder, name, value in replacements:
        setattr(holder, name, value)
    try:
        work()
    finally:
        for holder, name, value in kept:
            setattr(holder, name, value)


def relu_first(modules: nn.Sequential) -> dict[str, nn.Module | None]:
    """Returns the layers with every ReLU that follows a max pool before it."""
    order = list(modules)
    for i in range(len(order) - 1):
        if isinstance(order[i], nn.MaxPool2d) and isinstance(order[i + 1], nn.ReLU):
            order[i], order[i + 1] = order[i + 1], order[i]
    return {str(i): layer for i, layer in enumerate(order)}


CONV_AXIS, AXES, WEIGHT_GRADIENT = layers.conv_axis, layers._axes, layers._weight_gradient
"""The functions that are replaced for a while."""


def _all_taps(size: int, kernel: int, stride: int, padding: int) -> layers.Axis | None:
    """Like `conv_axis`, with the taps that meet padding only."""
    axis = CONV_AXIS(size, kernel, stride, padding)
    if axis is None:
        return None
    after = max(0, (axis.outputs - 1) * stride + kernel - padding - size)
    return replace(axis, first=0, taps=kernel, before=padding, after=after)


def _axes_unless(condition: Callable[[nn.Conv2d], bool]) -> Callable[..., Any]:
    """Like `_axes`, without layers for which the condition holds: these stay torch's convolutions."""
    return lambda layer, x: (None, None) if condition(layer) else AXES(layer, x)


def _batch_by_element(
    self: samples.ClientSamples, which_B: np.ndarray, augment: object = None
) -> tuple[Tensor, Tensor]:
    """Like `ClientSamples.batch`, with images normalised element by element after they were transposed."""
    source, row_B = self.source, self.index_N[torch.from_numpy(which_B)]
    x_B, y_B = source.x[row_B], source.y[row_B]
    if not source.is_images:
        return x_B, y_B
    mean_C11, std_C11 = (part[0, 0][:, None, None] for part in (source.mean_HWC, source.std_HWC))
    x_BCHW = x_B.permute(0, 3, 1, 2).to(torch.float32)
    return x_BCHW.sub_(mean_C11).div_(std_C11), y_B


def _with_gradient(ctx: Any, weight: Tensor, g_RO: Tensor, parts: Any) -> Any:
    """Like `_weight_gradient` for a weight that is used twice: its gradient is made, then added."""
    ctx.optimizer.uses[weight] = 2
    return WEIGHT_GRADIENT(ctx, weight, g_RO, parts)
