"""Memory that an extra client adds to all ranks together, in units of its state; the data stay the same."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from hpcfl.algorithms.build import build_algorithm
from hpcfl.bench.job import Job, on_ranks, total_pss, with_settings
from hpcfl.config.loading import load_config
from hpcfl.errors import BadInput
from hpcfl.federation.run_plan import plan_run
from hpcfl.training.client_layout import ClientLayouts

SETTINGS = [
    *("data.samples_per_class=10000", "partition.name=iid", "partition.min_samples=2"),
    *("models.list=['mlp_256']", "models.features=256"),
]


def bench_memory(few: int, many: int, ranks: int) -> int:
    """Prints the memory of runs with few and with many clients, and the difference per client."""
    if many <= few:
        raise BadInput(f"--many {many}: must be more than --few {few}")
    plan = plan_run(load_config(None, [*SETTINGS, "federation.clients=1"]))
    state = ClientLayouts(plan, build_algorithm(plan, torch.device("cpu"))).state(0).nbytes
    few_bytes, many_bytes = _memory(few, ranks), _memory(many, ranks)
    extra = (many_bytes - few_bytes) / (many - few)
    print(f"{ranks} ranks, {few} clients: {few_bytes / 1e6:.0f} MB, {many}: {many_bytes / 1e6:.0f} MB")
    print(
        f"an extra client adds {extra / 1e3:.1f} kB, {extra / state:.3f} × its state ({state / 1e3:.1f} kB)"
    )
    return 0


def _memory(clients: int, ranks: int) -> int:
    """Returns the proportional set size of all ranks in the third round, in bytes."""
    options = with_settings([*SETTINGS, f"federation.clients={clients}", "federation.rounds=1000"])
    with (
        tempfile.TemporaryDirectory() as directory,
        Job(on_ranks(ranks, "train", "--out", Path(directory, "run.h5"), *options)) as job,
    ):
        job.wait_for("round 3/")
        return total_pss(job)
