"""Seconds with all parts of the training step against those without one: medians of ratios within turns.

tools/bench-parts [--repeats 12] [--samples 160] [--set KEY=VALUE]…
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hpcfl.bench.limits import timed
from hpcfl.bench.step import short_plan
from hpcfl.bench.step_comparison import OURS, StepComparison
from hpcfl.config.loading import load_config
from hpcfl.federation.run_plan import plan_run
from hpcfl.runtime.devices import set_up_torch
from hpcfl.training import samples
from hpcfl.training.step import layers


def exchanged(layers: nn.Sequential) -> dict[str, nn.Module | None]:
    """Returns the layers with every ReLU that follows a max pool before it."""
    given = list(layers)
    for i in range(len(given) - 1):
        if isinstance(given[i], nn.MaxPool2d) and isinstance(given[i + 1], nn.ReLU):
            given[i], given[i + 1] = given[i + 1], given[i]
    return {str(i): layer for i, layer in enumerate(given)}


class Without:
    """Parts that can be taken out for a while: (what holds it, its name there, what it is without)."""

    def __init__(self, comparison: StepComparison) -> None:
        networks = [slot.step.network for slot in comparison.workers[OURS].networks.values()]
        pooled = [
            part
            for network in networks
            for part in network.modules()
            if isinstance(part, nn.Sequential) and exchanged(part) != part._modules
        ]
        axis, axes, weights = layers.conv_axis, layers._axes, layers._weight_gradient

        def all_taps(size: int, kernel: int, stride: int, padding: int) -> layers.Axis | None:
            found = axis(size, kernel, stride, padding)
            if found is None:
                return None
            after = max(0, (found.outputs - 1) * stride + kernel - padding - size)
            return replace(found, first=0, taps=kernel, before=padding, after=after)

        def unless(what: Callable[[nn.Conv2d], bool]) -> Callable[..., Any]:
            return lambda layer, x: (None, None) if what(layer) else axes(layer, x)

        def by_element(
            self: samples.ClientSamples, which_B: np.ndarray, augment: object = None
        ) -> tuple[Tensor, Tensor]:
            source, row_B = self.source, self.index_N[torch.from_numpy(which_B)]
            x_B, y_B = source.x[row_B], source.y[row_B]
            if not source.is_images:
                return x_B, y_B
            mean_C11, std_C11 = (part[0, 0][:, None, None] for part in (source.mean_HWC, source.std_HWC))
            x_BCHW = x_B.permute(0, 3, 1, 2).to(torch.float32)
            return x_BCHW.sub_(mean_C11).div_(std_C11), y_B

        def with_gradient(ctx: Any, weight: Tensor, g_RO: Tensor, parts: Any) -> Any:
            ctx.sgd.uses[weight] = 2
            return weights(ctx, weight, g_RO, parts)

        pointwise = unless(lambda layer: layer.kernel_size == (1, 1))
        depthwise = unless(lambda layer: layer.groups > 1)
        self.parts: dict[str, list[tuple[object, str, object]]] = {
            "the weight moves by the product": [(layers, "_weight_gradient", with_gradient)],
            "(w·xᵀ)ᵀ for few rows": [(layers, "FEW_ROWS", 0)],
            "pointwise convolutions as products": [(layers, "_axes", pointwise)],
            "convolutions with few outputs as products": [(layers, "FEW_OUTPUTS", 0)],
            "only taps that meet a pixel": [(layers, "conv_axis", all_taps)],
            "depthwise convolutions with one output": [(layers, "_axes", depthwise)],
            "batches row by row": [(samples.ClientSamples, "batch", by_element)],
            "max pool before ReLU": [(part, "_modules", exchanged(part)) for part in pooled],
        }

    def run(self, part: str, work: Callable[[], None]) -> None:
        kept = [(holder, name, getattr(holder, name)) for holder, name, _ in self.parts[part]]
        for holder, name, instead in self.parts[part]:
            setattr(holder, name, instead)
        try:
            work()
        finally:
            for holder, name, before in kept:
                setattr(holder, name, before)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--samples", type=int, default=160)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--part", action="append", help="This one alone; repeatable.")
    given = parser.parse_args()
    plan = short_plan(plan_run(load_config(None, given.set)), given.samples)
    device = set_up_torch(plan.config.runtime, 0)
    comparison = StepComparison(plan, device, each=False)
    without = Without(comparison)
    for part in given.part or without.parts:
        seconds = np.zeros((given.repeats, len(plan.clients), 2))
        for repeat in range(given.repeats):
            for i in range(len(plan.clients)):
                for which in (0, 1) if repeat % 2 else (1, 0):
                    work = lambda: comparison.run(OURS, i, repeat)  # noqa: B023, E731
                    taken = work if which else (lambda: without.run(part, work))  # noqa: B023
                    seconds[repeat, i, which] = timed(taken, device)
        ratio_R = seconds[1:, :, 1].sum(1) / seconds[1:, :, 0].sum(1)
        low, middle, high = np.quantile(ratio_R, [0.25, 0.5, 0.75])
        print(f"{part}: with ÷ without {middle:.3f} (quartiles {low:.3f} and {high:.3f})", flush=True)


if __name__ == "__main__":
    main()
