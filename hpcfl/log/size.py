"""The size of a log: the length of every dimension, and the expected bytes of the file."""

from __future__ import annotations

import math

import numpy as np

from hpcfl.config.loading import dump_config
from hpcfl.federation.run_plan import RunPlan
from hpcfl.federation.sent_features import saved_samples
from hpcfl.log.schema import run_metrics
from hpcfl.metrics.metric import STRING

OVERHEAD = 700
"""Bytes of HDF5 metadata per dataset."""
STRING_BYTES = 32
"""Bytes of a string, approximately."""
COPIES = 3
"""Of a log in memory while it is written: its rows, the file as HDF5 makes it, and its bytes."""


def dimension_sizes(plan: RunPlan) -> dict[str, int]:
    """Returns the length of each dimension, without `round`, `saved` and `chosen`, which grow."""
    return {
        "client": len(plan.clients),
        "class": plan.dims[0],
        "feature": plan.dims[1],
        "test_sample": sum(map(len, saved_samples(plan))),
        **plan.spec.dimension_sizes(plan.config),
    }


def expected_log_size(plan: RunPlan) -> int:
    """Returns the approximate bytes of the log of the complete run."""
    rounds = plan.config.federation.rounds
    saved = sum(map(plan.config.saves_prototypes, range(rounds)))
    chosen = sum(map(plan.config.saves_features, range(rounds)))
    lengths = dimension_sizes(plan) | {"round": rounds, "saved": saved, "chosen": chosen}
    nbytes = len(dump_config(plan.config)) + OVERHEAD * len(run_metrics(plan))
    for metric in run_metrics(plan):
        item = STRING_BYTES if metric.dtype == STRING else np.dtype(metric.dtype).itemsize
        nbytes += item * math.prod(lengths[dim] for dim in metric.dims)
    return nbytes


def expected_log_memory(plan: RunPlan) -> int:
    """Returns the approximate bytes that rank 0 needs for the log at the end of the run."""
    return COPIES * expected_log_size(plan)
