"""Seconds of a run's parts, tried on this machine: training steps, and rank 0's work with made-up uploads."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from hpcfl.algorithms.build import build_algorithm
from hpcfl.exchange.codec import ClientUpload
from hpcfl.exchange.payload import Array, ClassRows, Payload, Rows, Shaped
from hpcfl.federation.run_plan import RunPlan
from hpcfl.methods.catalogue import method_spec
from hpcfl.models.network import build_network
from hpcfl.runtime.devices import set_up_torch, torch_threads
from hpcfl.training.step.options import step_options
from hpcfl.training.step.step import WARMUP, make_step
from hpcfl.utils import accelerator

STEPS = 3
"""Training steps that are timed per architecture, after a warm-up."""
EPOCHS = "server_epochs"


@dataclass(frozen=True)
class Timing:
    """Seconds measured on this machine."""

    per_sample: Mapping[str, float]
    """Of training, by architecture."""
    server: float | None
    """Of rank 0's aggregation in a round; None: it could not be tried."""

    def training(self, names: Iterable[str]) -> float:
        """Returns the training seconds of a sample by these architectures together."""
        return sum(self.per_sample[name] for name in names)


def time_training(plan: RunPlan, networks: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Returns seconds per training sample of each architecture, measured on this machine.

    `networks` are the architectures of all networks that a client trains, by that of its own.
    """
    batch, shape = plan.config.train.batch_size, plan.data.shape
    device = set_up_torch(plan.config.runtime, 0)
    result = {}
    together = {name: names for names in reversed([*networks.values()]) for name in reversed(names)}
    for name, names in together.items():
        options = step_options(plan.config.runtime, device.type, *names, clip_norm=plan.train.clip_norm)
        network = build_network(name, shape, *plan.dims).to(device)
        network.to(memory_format=options.memory_format)  # type: ignore[call-overload]
        step = make_step(network, plan.train, options)
        step.begin(None)
        x_B = torch.randn(max(2, batch), *shape, device=device).to(getattr(torch, plan.data.input_type)).abs()
        if plan.data.is_images:
            x_B = x_B.contiguous(memory_format=options.memory_format)
        y_B = torch.arange(len(x_B), device=device) % plan.dims[0]
        times = []
        for _ in range(1 + WARMUP + STEPS):
            start = time.perf_counter()
            step(x_B, y_B)
            accelerator.synchronise(device)
            times.append(time.perf_counter() - start)
        result[name] = float(np.median(times[1 + WARMUP :])) / len(x_B)
    return result


def time_server(plan: RunPlan, clients: Iterable[int]) -> float | None:
    """Returns the seconds of a round's aggregation with uploads of these clients, after a first one.

    Of several server epochs one is tried. None: an upload's shape is not known before it is made.
    """
    epochs = plan.spec.slots().get(EPOCHS, 1)
    if epochs > 1:
        method = plan.config.method.model_copy(update={EPOCHS: 1})
        spec = method_spec(method, plan.data.original or plan.config.data.name)
        plan = replace(plan, config=plan.config.model_copy(update={"method": method}), spec=spec)
    runtime = plan.config.runtime
    algorithm = build_algorithm(plan, set_up_torch(runtime, 0))
    arrays = algorithm.upload_arrays()
    if any(isinstance(array, Shaped) for array in arrays):
        return None
    random = torch.Generator().manual_seed(0)
    uploads = [ClientUpload(i, False, _payload(arrays, plan.class_counts_MK[i] > 0, random)) for i in clients]
    last, seconds = algorithm.initial(), 0.0
    with torch_threads(runtime.server_threads or runtime.threads):
        for t in range(2):
            start = time.perf_counter()
            last = algorithm.aggregate(t, last, uploads)
            seconds = time.perf_counter() - start
    return seconds * epochs


def _payload(arrays: Iterable[Array], owned_K: np.ndarray, random: torch.Generator) -> Payload:
    """Returns values as large as a client's with these classes: features after a ReLU, counts of 1."""
    payload: dict[str, Tensor | ClassRows] = {}
    for array in arrays:
        assert not isinstance(array, Shaped)
        shape = (array.classes, array.width) if isinstance(array, Rows) else array.shape
        value = torch.rand(shape, generator=random) if array.dtype.is_floating_point else torch.ones(shape)
        value = value.to(array.dtype)
        if isinstance(array, Rows):
            present_K = torch.from_numpy(owned_K)
            mask_KD = (
                present_K[:, None]
                if array.mask_KD is None
                else present_K[:, None] & torch.from_numpy(array.mask_KD)
            )
            payload[array.name] = ClassRows(value * mask_KD, present_K)
        else:
            payload[array.name] = value
    return payload
