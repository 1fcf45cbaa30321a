"""Creates the log of a run with everything that is known before the first round."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hpcfl.comm.communicator import Communicator
from hpcfl.config.loading import dump_config
from hpcfl.federation.run_plan import RunPlan
from hpcfl.federation.sent_features import saved_samples
from hpcfl.log.schema import run_metrics
from hpcfl.log.size import dimension_sizes
from hpcfl.log.virtual_metrics import device_values
from hpcfl.log.writer import EarlierRows, LogWriter
from hpcfl.models.costs import Cost


def create_log(
    path: Path,
    backup: Path | None,
    plan: RunPlan,
    comm: Communicator,
    costs: Mapping[str, Cost],
    hardware: Mapping[str, Any],
    earlier: EarlierRows | None = None,
) -> LogWriter:
    """Returns the new log; an old one is renamed to `backup`.

    `hardware` holds the attributes on nodes, cores, placement and device.
    """
    attributes = {
        "config": dump_config(plan.config),
        "directory": str(plan.directory.absolute()),
        "method": ", ".join(f"{slot} {value}" for slot, value in plan.spec.slots().items()),
        "remarks": plan.spec.remarks(plan) or "",
        "seed": plan.config.seed,
        **{f"checksum_{name}": checksum for name, checksum in plan.checksums.items()},
        "unowned_classes": plan.unowned,
        "ranks": comm.size,
        "host": platform.node(),
        "mpi": comm.library,
        **hardware,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "onednn_max_cpu_isa": os.environ.get("ONEDNN_MAX_CPU_ISA", ""),
        "rounds": plan.config.federation.rounds,
        **{
            f"version_{name}": version(name)
            for name in ("hpcfl", "torch", "numpy", "scipy", "h5py", "mpi4py")
        },
        "version_python": platform.python_version(),
    }
    client_costs = [costs[client.architecture] for client in plan.clients]
    fixed = {
        "/clients/architecture": np.array([client.architecture for client in plan.clients], dtype=object),
        "/clients/parameters": np.array([cost.parameters for cost in client_costs]),
        "/clients/flops": np.array([cost.flops for cost in client_costs]),
        "/clients/train_samples": np.array([len(client.train) for client in plan.clients]),
        "/clients/test_samples": np.array([len(client.test) for client in plan.clients]),
        "/clients/class_counts": plan.class_counts_MK,
    }
    if plan.has_validation:
        fixed["/clients/validation_samples"] = np.array([len(client.validation) for client in plan.clients])
    if plan.system:
        fixed |= device_values(plan.system.devices)
    if plan.config.log.features_at:
        chosen = saved_samples(plan)
        index_S = np.concatenate([c.test[sample_S] for c, sample_S in zip(plan.clients, chosen, strict=True)])
        fixed |= {
            "/features/client": np.repeat(np.arange(len(chosen)), [len(sample_S) for sample_S in chosen]),
            "/features/label": plan.data.y[index_S],
            "/features/index": index_S,
        }
    return LogWriter(path, run_metrics(plan), attributes, dimension_sizes(plan), fixed, backup, earlier)
