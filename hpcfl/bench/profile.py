"""Where the seconds of a client's round go: by kind of operation, with the share of the GEMM limit."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rich.table import Table
from torch.profiler import ProfilerActivity, profile, record_function

from hpcfl.bench.limits import MachineLimits
from hpcfl.bench.step import short_plan
from hpcfl.bench.step_comparison import StepComparison
from hpcfl.bench.step_table import OURS
from hpcfl.config.loading import load_config
from hpcfl.errors import BadInput
from hpcfl.federation.run_plan import RunPlan, plan_run
from hpcfl.runtime.devices import set_up_torch
from hpcfl.runtime.exit_handling import DONE
from hpcfl.training import local_client
from hpcfl.training.step.step import Batch
from hpcfl.utils.formatting import console

TRAINING, PROTOTYPES, TEST = "training", "prototype pass", "test pass"
OTHER = "other operations, Python"
KINDS = {
    "pooling": ("pool",),
    "ReLU": ("relu", "threshold"),
    "batch-norm": ("batch_norm",),
    "loss": ("softmax", "nll", "cross_entropy", "mse", "norm"),
    "batches": ("index",),
    "copies": ("copy_", "cat"),
}
"""Kinds of operations, with what the names of such operations contain."""
FORWARD_CONVOLUTIONS = (
    "aten::conv2d",
    "aten::convolution",
    "aten::_convolution",
    "aten::mkldnn_convolution",
    "aten::_conv_depthwise2d",
)
BACKWARD_CONVOLUTION = "aten::convolution_backward"
ONEDNN_PRODUCT = "mkldnn::_linear_pointwise"
PRODUCTS = ("aten::mm", "aten::addmm", "aten::addmm_", ONEDNN_PRODUCT)
ROWS = 24
"""The longest parts get a row each."""


@dataclass
class Part:
    """One row of the table."""

    seconds: float = 0.0
    flops: float = 0.0


def bench_profile(path: str | None, settings: Sequence[str], samples: int) -> int:
    """Prints the parts of a round of one client per architecture, the longest first."""
    plan = short_plan(plan_run(load_config(path, settings)), samples)
    device = set_up_torch(plan.config.runtime, 0)
    if device.type != "cpu":
        raise BadInput("bench profile: reads operations of the CPU; add --set runtime.device=cpu")
    parts, limit = measure_parts(plan, device), MachineLimits(device).multiplications()
    total = sum(part.seconds for part in parts.values())
    table = Table("part", box=None, pad_edge=False)
    for head in ("seconds", "share", "of GEMM limit"):
        table.add_column(head, justify="right")
    rows = sorted(parts.items(), key=lambda item: -item[1].seconds)
    if rest := rows[ROWS:]:
        merged = Part(sum(part.seconds for _, part in rest), sum(part.flops for _, part in rest))
        rows = [*rows[:ROWS], (f"{len(rest)} others", merged)]
    for name, part in rows:
        of_limit = f"{part.flops / part.seconds / limit:.0%}" if part.flops else "–"
        table.add_row(name, f"{part.seconds:.3f}", f"{part.seconds / total:.1%}", of_limit)
    of_limit = f"{sum(part.flops for part in parts.values()) / total / limit:.0%}"
    table.add_row("all", f"{total:.3f}", "100%", of_limit)
    console().print(
        f"{', '.join(plan.architectures)}; {samples} samples each, batch {plan.train.batch_size}; "
        f"GEMM limit {limit / 1e9:.0f} GFLOP/s"
    )
    console().print(table)
    return DONE


def measure_parts(plan: RunPlan, device: torch.device) -> dict[str, Part]:
    """Returns the parts of the second round of every client; the first one is the warm-up."""
    comparison, ids = StepComparison(plan, device, each=False), range(len(plan.clients))
    worker, features = comparison.workers[OURS], local_client.features
    for i in ids:
        comparison.run(OURS, i, 0)

    def named_features(*args: Any) -> Iterator[Batch]:
        passes = features(*args)
        while True:
            with record_function(PROTOTYPES):
                batch = next(passes, None)
            if batch is None:
                return
            yield batch

    local_client.features = named_features  # type: ignore[assignment]
    try:
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_flops=True) as profiler:
            for i in ids:
                with record_function(TRAINING):
                    worker.train_client(1, i)
                with record_function(TEST):
                    worker.evaluate_network(1, i)
                    worker.finish_evaluation()
    finally:
        local_client.features = features
    parts: dict[str, Part] = defaultdict(Part)
    for event in profiler.events():
        part = parts[_part_of(event)]
        part.seconds += event.self_cpu_time_total / 1e6
        part.flops += _flops(event, plan.data.shape)
    return parts


def _part_of(event: Any) -> str:
    """Returns the row that an operation of the profiler belongs to."""
    ancestor = event
    while ancestor is not None:
        if ancestor.name in (PROTOTYPES, TEST):
            return _outermost(ancestor)
        ancestor = ancestor.cpu_parent
    name, shapes = event.name, event.input_shapes
    if name in FORWARD_CONVOLUTIONS:
        return _convolution(shapes[1], "forward")
    if name == BACKWARD_CONVOLUTION:
        return _convolution(shapes[2], "backward")
    if name in PRODUCTS or "Linear" in name:
        return "linear layers, and convolutions as products"
    return next((kind for kind, words in KINDS.items() if any(word in name for word in words)), OTHER)


def _outermost(event: Any) -> str:
    """Returns the pass that an event within one belongs to: features are computed in both."""
    while event.cpu_parent is not None and event.cpu_parent.name != TRAINING:
        event = event.cpu_parent
    return str(event.name)


def _convolution(weight: Sequence[int], direction: str) -> str:
    outputs, inputs, *kernel = weight
    return f"convolution {'×'.join(map(str, kernel))}, {inputs} → {outputs}, {direction}"


def _flops(event: Any, image: Sequence[int]) -> float:
    """Returns the FLOPs of a convolution or product; 0 for everything else."""
    shapes = event.input_shapes
    if event.name == "aten::conv2d":
        return float(event.flops)
    if event.name == BACKWARD_CONVOLUTION:
        gradient, inputs, weight = shapes[:3]
        forward = 2.0 * math.prod(gradient) * math.prod(weight[1:])
        return forward if list(inputs[1:]) == list(image) else 2 * forward  # images need no gradient
    if event.name in PRODUCTS:
        left, right = shapes[:2] if event.name in ("aten::mm", ONEDNN_PRODUCT) else shapes[1:3]
        columns = right[0] if event.name == ONEDNN_PRODUCT else right[1]
        return 2.0 * math.prod(left) * columns
    return 0.0
