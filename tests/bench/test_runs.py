"""The benchmarks that run federations: what they print from a log, and what they refuse."""

from __future__ import annotations

import re

import numpy as np
import pytest

from hpcfl.bench import plan, study
from hpcfl.bench.checkpoint import by_period
from hpcfl.bench.study import SETTLED, seconds_beside_rounds

SMALL = [
    *("--set", "data.samples_per_class=100", "--set", "models.features=8", "--set", "federation.clients=4"),
    *("--set", "partition.name=iid"),
]


def test_ranks(bench_here):
    done = bench_here(
        "ranks", "--repeats", 2, *SMALL, "--set", "federation.rounds=3", "--set", "train.epochs=1"
    )
    assert done.exit_code == 0, done.output
    *repeats, last = done.output.splitlines()
    assert len(repeats) == 2
    for line in repeats:
        seconds = list(map(float, re.findall(r"([\d.]+) s (?:wall|CPU)", line)))
        assert len(seconds) == 4
        assert line.startswith("3 ranks: ")
        assert "; 21 ranks: " in line
    assert re.fullmatch(r"median ratio of a round on 21 ranks to one on 3: wall [\d.]+, CPU [\d.]+", last)


def test_checkpoint(bench_here):
    done = bench_here("checkpoint", "--repeats", 2, *SMALL, "--set", "federation.rounds=13")
    assert done.exit_code == 0, done.output
    assert re.match(
        r"4 checkpoints of \d+\.\d MB, rounds of \d\.\d\d s: a checkpoint costs -?\d+ ms", done.output
    )


def test_periods_begin_with_the_rounds_that_save():
    """Rounds 4, 8, … save; the first period, which saves nothing, and a last part are left out."""
    assert by_period(np.arange(14.0)).tolist() == [[4, 5, 6, 7], [8, 9, 10, 11]]


def test_plan(bench_here, monkeypatch):
    monkeypatch.setattr(plan, "total_pss", lambda job: 2**29)
    done = bench_here("plan", *SMALL, "--rounds", 2)
    assert done.exit_code == 0, done.output
    memory, seconds = done.output.splitlines()
    assert re.fullmatch(r"memory: predicted [\d.]+ GiB, measured 0.50 GiB: [\d.]+", memory)
    assert re.fullmatch(r"training in a round: predicted [\d.]+ s, measured [\d.]+ s: [\d.]+", seconds)


def test_study(bench_here, monkeypatch):
    monkeypatch.setattr(study, "ranks_under", lambda launcher: {0: 10, 1: 11, 2: 12})
    monkeypatch.setattr(study, "LIMIT", 60.0)
    done = bench_here("study", "--cells", 7)
    assert done.exit_code == 0, done.output
    assert done.output.startswith("7 cells on 3 ranks, 3 processes: a cell takes ")


def test_seconds_of_cells_by_hand():
    """Cells of one second each, half of it in rounds; the sixth cell takes two seconds more."""
    starts = [0, 1, 2, 3, 4, 5, 8, 9]
    runs = [
        {"/round/seconds": np.array([0.25, 0.25])} | {"start": f"2030-01-01T00:00:0{second}+00:00"}
        for second in starts
    ]
    logs = [_Log(run) for run in runs]
    beside, rounds = seconds_beside_rounds(logs)  # type: ignore[arg-type]
    assert SETTLED == 5
    assert beside.tolist() == [2.5, 0.5]
    assert rounds.tolist() == [0.5, 0.5, 0.5]


class _Log(dict):
    @property
    def attributes(self) -> dict[str, str]:
        return {"start": self["start"]}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["ranks", "--set", "federation.rounds=1"], "federation.rounds = 1: must be at least 2"),
        (["ranks", "--set", "train.lr=0"], "train.lr"),
        (["ranks", "--many", "0"], "Invalid value for '--many'"),
        (["checkpoint", "--set", "federation.rounds=7"], "federation.rounds = 7: must be at least 8"),
        (["checkpoint", "--set", "nothing=1"], "nothing"),
        (["memory", "--few", "5", "--many", "5"], "--many 5: must be more than --few 5"),
        (["data", "--name", "spiral"], "--name spiral: it has no file; name a prepared dataset"),
        (["data", "--name", "fmnist", "--root", "nowhere"], "data.name = 'fmnist': not prepared in nowhere"),
        (["data", "--name", "nothing", "--root", "nowhere"], "data.name = 'nothing': no such dataset"),
        (["plan", "nowhere.toml"], "nowhere.toml"),
        (["plan", "--set", "train.lr=0"], "train.lr"),
        (["study", "--cells", "6"], "Invalid value for '--cells'"),
        (["step", "--part", "x"], "--part: only with --ablate"),
        (["step", "--ablate", "--each"], "--ablate: goes with neither --each nor --json nor --baseline"),
        (["step", "--ablate", "--repeats", "1"], "--repeats 1: must be at least 2 with --ablate"),
        (["step", "--ablate", "--set", "train.lr=0"], "train.lr"),
        (
            ["step", "--ablate", "--samples", "8", "--part", "few-output"],
            "(nearest: few-outputs)",
        ),
    ],
)
def test_bad_input(bench_command, arguments, says):
    done = bench_command(*arguments)
    assert done.exit_code == 2
    assert says in done.output
    assert "Traceback" not in done.output
    assert says.startswith("Invalid") or len(done.output.splitlines()) == 1


def test_under_mpirun_they_are_refused(bench_command, monkeypatch):
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setenv("PMI_RANK", "0")
    for arguments in (["study"], ["ranks"], ["checkpoint"], ["memory"], ["plan"], ["step", "--ablate"]):
        done = bench_command(*arguments)
        assert done.exit_code == 2
        assert "without MPICH's mpirun" in done.output
