"""What a log says from the start."""

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
from hpcfl.log.size import dimension_sizes
from hpcfl.log.writer import EarlierRows, LogWriter
from hpcfl.methods.rules import remarks
from hpcfl.models.costs import Cost


def create_log(
    path: Path,
    fresh: bool,
    fed: RunPlan,
    link: Communicator,
    costs: Mapping[str, Cost],
    where: Mapping[str, Any],
    before: EarlierRows | None = None,
) -> LogWriter:
    """Returns a log with all that is known before the first round; `where` says how it is placed."""
    attributes = {
        "config": dump_config(fed.config),
        "method": ", ".join(f"{slot} {value}" for slot, value in fed.recipe.slots().items()),
        "remarks": remarks(fed.recipe, *fed.dims, fed.config.federation.rounds) or "",
        "seed": fed.config.seed,
        **{f"checksum_{what}": checksum for what, checksum in fed.checksums.items()},
        "unowned_classes": fed.unowned,
        "ranks": link.size,
        "host": platform.node(),
        "mpi": link.library,
        **where,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "onednn_max_cpu_isa": os.environ.get("ONEDNN_MAX_CPU_ISA", ""),
        "rounds": fed.config.federation.rounds,
        **{
            f"version_{name}": version(name)
            for name in ("hpcfl", "torch", "numpy", "scipy", "h5py", "mpi4py")
        },
        "version_python": platform.python_version(),
    }
    mine = [costs[client.architecture] for client in fed.clients]
    fixed = {
        "/clients/architecture": np.array([client.architecture for client in fed.clients], dtype=object),
        "/clients/parameters": np.array([cost.parameters for cost in mine]),
        "/clients/flops": np.array([cost.flops for cost in mine]),
        "/clients/train_samples": np.array([len(client.train) for client in fed.clients]),
        "/clients/test_samples": np.array([len(client.test) for client in fed.clients]),
        "/clients/class_counts": fed.class_counts_MK,
    }
    return LogWriter(path, attributes, dimension_sizes(fed), fixed, fresh, before)
