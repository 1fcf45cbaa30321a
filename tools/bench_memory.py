"""What an extra client adds to the memory of all ranks, in units of its state; the data stay the same."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from failures import start

from hpcfl.config.loading import load_config
from hpcfl.federation.run_plan import plan_run
from hpcfl.training.client_layout import ClientLayouts

SETTINGS = [
    *("data.samples_per_class=10000", "partition.name=iid", "partition.min_samples=2"),
    *("models.list=['mlp_256']", "models.features=256"),
]


def memory(clients: int, ranks: int) -> int:
    """Returns the proportional set size of all ranks in the third round, in bytes."""
    with tempfile.TemporaryDirectory() as directory:
        job = start("mpich", ranks, Path(directory), 1000, *SETTINGS, f"federation.clients={clients}")
        job.wait_for("round 3/")
        total = sum(_pss(pid) for pid in job.ranks.values())
        job.end()
    return total


def _pss(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--few", type=int, default=100)
    parser.add_argument("--many", type=int, default=500)
    parser.add_argument("--ranks", type=int, default=3)
    asked = parser.parse_args()
    state = ClientLayouts(plan_run(load_config(None, [*SETTINGS, "federation.clients=1"]))).state(0).nbytes
    few, many = memory(asked.few, asked.ranks), memory(asked.many, asked.ranks)
    extra = (many - few) / (asked.many - asked.few)
    print(f"{asked.ranks} ranks, {asked.few} clients: {few / 1e6:.0f} MB, {asked.many}: {many / 1e6:.0f} MB")
    print(
        f"an extra client adds {extra / 1e3:.1f} kB, {extra / state:.3f} × its state ({state / 1e3:.1f} kB)"
    )


if __name__ == "__main__":
    main()
