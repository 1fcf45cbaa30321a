"""What the parts of a run share on a rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from hpcfl.algorithms.algorithm import Algorithm
from hpcfl.checkpoint.writer import CheckpointWriter
from hpcfl.comm.communicator import Communicator
from hpcfl.engine.client_records import ClientRecords
from hpcfl.exchange.codec import Codec
from hpcfl.federation.run_plan import RunPlan
from hpcfl.runtime.device_memory import DeviceMemory
from hpcfl.runtime.scheduling import ClientQueue, CostModel
from hpcfl.training.step.options import StepOptions


@dataclass(frozen=True)
class WorkerContext:
    """What a worker needs to train and evaluate clients."""

    plan: RunPlan
    algorithm: Algorithm
    device: torch.device
    step_options: Mapping[str, StepOptions]
    """By architecture."""
    records: ClientRecords
    device_memory: DeviceMemory = field(default=DeviceMemory(), kw_only=True)


@dataclass(frozen=True)
class RunContext(WorkerContext):
    """What a run needs beside its worker and, on rank 0, its server."""

    comm: Communicator
    download_codec: Codec
    upload_codec: Codec
    queue: ClientQueue
    costs: CostModel
    checkpoint_writer: CheckpointWriter
    cores: int
    """Of the whole job."""
    stop_requested: Callable[[], bool]
    first_round: int = 0
    """From 0; later than that, a run is continued."""
