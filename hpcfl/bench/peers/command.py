"""`hpcfl bench peers`: runs every workload by hpcfl and by the other simulators, in turn."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from hpcfl import __version__
from hpcfl.bench.job import on_ranks, with_settings
from hpcfl.bench.peers import programs
from hpcfl.bench.peers.environments import REQUIREMENTS, Environment, last_line, make_environment
from hpcfl.bench.peers.measurement import Measurement, measure
from hpcfl.bench.peers.table import HPCFL, Row, count_lines, print_table
from hpcfl.bench.peers.workloads import (
    LEAST_ROUNDS,
    WORKLOADS,
    Prepared,
    Workload,
    choose_dataset,
    prepare,
)
from hpcfl.errors import BadInput

FOLDER = Path(programs.__file__).parent
VARIABLES = (
    f"PYTHONPATH={FOLDER}",
    "FLWR_TELEMETRY_ENABLED=0",
    "RAY_USAGE_STATS_ENABLED=0",
    "WANDB_MODE=disabled",
)
"""Programs find the task, and do not report their use."""
WHOLE_OBJECTS = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1"
"""HtFLlib's clients read their networks from files, as whole objects."""


def bench_peers(
    environments: str,
    htfllib: str | None,
    workloads: Sequence[str],
    peers: Sequence[str],
    data: str | None,
    root: str | None,
    ranks: int,
    repeats: int,
    rounds: int | None,
    clients: int | None,
) -> int:
    """Prints a table for each workload; the exit code is 1 if no other simulator did any of them."""
    if ranks < 2:
        raise BadInput(f"--ranks {ranks}: must be at least 2, a server and a worker")
    if rounds is not None and rounds < LEAST_ROUNDS:
        raise BadInput(
            f"--rounds {rounds}: must be at least {LEAST_ROUNDS}, the first and last are not counted"
        )
    root = root or os.environ.get("HPCFL_DATA", "data")
    system = find_htfllib(htfllib) if htfllib else None
    chosen = [_sized(WORKLOADS[name], rounds, clients) for name in workloads or WORKLOADS]
    datasets = [choose_dataset(workload, data, root) for workload in chosen]
    names = {name for workload in chosen for name in usable_peers(workload, peers, system)}
    if not names:
        raise BadInput("no other simulator does these workloads; give --htfllib DIR, or other --peer")
    on_ranks(ranks)  # raises if there is no mpirun
    made = {
        name: make_environment(name, Path(environments).absolute()) for name in REQUIREMENTS if name in names
    }
    if system and "htfllib" in made:
        versions = f"{htfllib_version(system)}, {made['htfllib'].versions}"
        made["htfllib"] = replace(made["htfllib"], versions=versions)
    done = False
    for workload, dataset in zip(chosen, datasets, strict=True):
        with tempfile.TemporaryDirectory() as directory:
            prepared = prepare(workload, dataset, str(Path(root).absolute()), ranks - 1, Path(directory))
            runner = PeerRunner(prepared, Path(directory), ranks, system, made)
            rows = runner.compare(usable_peers(workload, peers, system), repeats)
        for name in (HPCFL, *workload.variants):
            print_table(prepared, rows, ranks, rows[name])
        done |= any(not rows[name].problem for name in rows.keys() - {HPCFL, *workload.variants})
    return 0 if done else 1


def find_htfllib(directory: str) -> Path:
    """Returns HtFLlib's directory `system`."""
    system = Path(directory).absolute() / "system"
    if not (system / "flcore" / "servers" / "servertgp.py").is_file():
        raise BadInput(f"--htfllib {directory}: no HtFLlib there (system/flcore/servers/servertgp.py)")
    return system


def htfllib_version(system: Path) -> str:
    """Returns the commit of HtFLlib, which has no releases, if its directory is a repository of git."""
    commit = "unknown"
    if (system.parent / ".git").exists() and shutil.which("git"):
        given = ["git", "-C", str(system.parent), "rev-parse", "--short", "HEAD"]
        commit = subprocess.run(given, capture_output=True, text=True).stdout.strip() or commit
    return f"HtFLlib commit {commit}"


def usable_peers(workload: Workload, wanted: Sequence[str], system: Path | None) -> list[str]:
    """Returns the simulators that do a workload, are wanted, and are there."""
    return [
        name
        for name in workload.peers
        if (not wanted or name in wanted) and (name != "htfllib" or system is not None)
    ]


def _sized(workload: Workload, rounds: int | None, clients: int | None) -> Workload:
    """Returns the workload with other numbers of rounds and clients, if these are given."""
    clients = clients or workload.clients
    participants = min(workload.participants, clients)
    return replace(workload, rounds=rounds or workload.rounds, clients=clients, participants=participants)


class PeerRunner:
    """Runs one workload by any simulator."""

    def __init__(
        self,
        prepared: Prepared,
        directory: Path,
        ranks: int,
        system: Path | None,
        environments: dict[str, Environment],
    ):
        self.prepared, self.directory, self.ranks = prepared, directory, ranks
        self.system, self.environments = system, environments

    def compare(self, peers: Sequence[str], repeats: int) -> dict[str, Row]:
        """Returns the measurements by simulator; in each repeat all take their turn."""
        own = f"{HPCFL} {__version__}, torch {version('torch')}"
        rows = {HPCFL: Row(HPCFL, count_lines(self.prepared.config), own)}
        for name in self.prepared.workload.variants:
            rows[name] = Row(f"{HPCFL}, {name}", rows[HPCFL].lines)
        for name in peers:
            made = self.environments[name]
            lines = count_lines(FOLDER / f"run_{name}.py")
            rows[name] = Row(name, lines, made.versions and f"{name}: {made.versions}", problem=made.problem)
        for _ in range(repeats):
            for name, row in rows.items():
                if not row.problem:
                    row.add(self.run(name))
        return rows

    def run(self, name: str) -> Measurement:
        """Runs the workload once, in a directory of its own."""
        rounds = self.prepared.workload.rounds
        with tempfile.TemporaryDirectory(dir=self.directory) as scratch:
            variants = {HPCFL: (), **self.prepared.workload.variants}
            if name in variants:
                out, settings = Path(scratch, "run.h5"), with_settings(variants[name])
                command = on_ranks(self.ranks, "train", self.prepared.config, "--out", out, *settings)
                return measure(command, Path(scratch), rounds)
            python = [str(self.environments[name].python)]
            program = [str(FOLDER / f"run_{name}.py"), str(self.prepared.task)]
            variables = [*VARIABLES]
            work = Path(scratch, "system")  # HtFLlib writes beside its working directory
            work.mkdir()
            if name == "pfl":
                python += ["-m", "torch.distributed.run", f"--nproc-per-node={self.ranks - 1}"]
            elif name == "htfllib":
                program.append(str(self.system))
                variables.append(WHOLE_OBJECTS)
                files = ["env", *variables, *python, *program, "files"]
                done = subprocess.run(files, cwd=work, capture_output=True, text=True)
                if done.returncode:
                    return Measurement(problem=f"cannot write the clients' files: {last_line(done)}")
            return measure([*python, *program], work, rounds, variables)
