"""A study that takes seconds, and ways to run it."""

from __future__ import annotations

from pathlib import Path

from hpcfl.study.run import run_study
from hpcfl.study.run_store import RunStore
from hpcfl.study.study_file import read_study

TINY = """
about = "how accuracy depends on clients"
[set]
data.samples_per_class = 60
federation.rounds = 3
models.features = 4
partition.alpha = 10.0
[small.set]
federation.rounds = 2
[[block]]
name = "clients"
[block.grid]
method.name = ["fedproto", "local"]
federation.clients = [4, 6]
seed = [0, 1]
[block.small.grid]
seed = [0]
[[exclude]]
method.name = "local"
federation.clients = 6
[[block]]
name = "odd"
cells = [{train.lr = 1e30}, {partition.classes_per_client = 9, partition.name = "pathological"}]
"""

GOOD = ["clients-fedproto-4-s0", "clients-fedproto-4-s1", "clients-fedproto-6-s0", "clients-fedproto-6-s1"]
GOOD += ["clients-local-4-s0", "clients-local-4-s1"]


def start(study: Path, only: list[str] | None = None, *settings: str, out: str = "out", **more: bool) -> int:
    """Runs a study beside its file and returns the exit code."""
    return run_study(str(study), "full", settings, str(study.parent / out), only or [], **more)


def states(study: Path) -> dict[str, str]:
    """Returns the state of every cell of a study that was run beside its file."""
    store = RunStore(study.parent / "out")
    return {cell.name: store.progress(cell).state for cell in read_study(study).cells}
