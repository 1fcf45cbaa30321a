"""How large a log is: the length of every dimension, and the bytes of the file."""

from __future__ import annotations

import math

import numpy as np

from hpcfl.config.loading import dump_config
from hpcfl.federation.run_plan import RunPlan
from hpcfl.log.schema import ENTRIES, STRING

OVERHEAD = 700
"""Bytes that HDF5 takes per dataset, for its header and what it says about itself."""
NAME = 32
"""Bytes of a string, about."""


def dimension_sizes(fed: RunPlan) -> dict[str, int]:
    """Returns the length of each dimension but those that grow by round."""
    log = fed.config.log
    return {
        "client": len(fed.clients),
        "class": fed.dims[0],
        "feature": fed.dims[1],
        "statistic": 3,
        "pair": 2,
        "uploader": len(fed.clients) if log.local_prototypes else 0,
        "iteration": fed.recipe.options.get("iterations", 0) + 1 if log.distances else 0,
    }


def expected_log_size(fed: RunPlan) -> int:
    """Returns about how many bytes the log of the whole run will have."""
    rounds = fed.config.federation.rounds
    saved = sum(map(fed.config.saves_prototypes, range(rounds)))
    lengths = dimension_sizes(fed) | {"round": rounds, "saved": saved}
    nbytes = len(dump_config(fed.config)) + OVERHEAD * len(ENTRIES)
    for entry in ENTRIES:
        item = NAME if entry.dtype == STRING else np.dtype(entry.dtype).itemsize
        nbytes += item * math.prod(lengths[dim] for dim in entry.dims)
    return nbytes
