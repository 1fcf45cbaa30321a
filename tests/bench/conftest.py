"""Benchmarks that start mpirun, with the jobs run in this process instead."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from hpcfl.bench import checkpoint, plan, ranks, study
from hpcfl.cli import main


class JobHere:
    """Runs a command of hpcfl on one process, within this one, when it is made."""

    def __init__(self, command: Sequence[str]) -> None:
        arguments = command[command.index("hpcfl") + 1 :]
        self.done = CliRunner().invoke(main, arguments)
        states = iter([None])
        self.process = SimpleNamespace(pid=os.getpid(), poll=lambda: next(states, self.done.exit_code))

    def __enter__(self) -> JobHere:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def wait_for(self, beginning: str) -> None:
        assert any(line.startswith(beginning) for line in self.done.output.splitlines()), beginning

    def finish(self) -> str:
        assert self.done.exit_code == 0, self.done.output
        return self.done.output


@pytest.fixture
def bench_here(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Returns `hpcfl bench` as a function of its arguments; its runs have one process."""
    for module in (checkpoint, plan, ranks, study):
        monkeypatch.setattr(module, "Job", JobHere)
    return bench


@pytest.fixture
def bench_command() -> Callable[..., Result]:
    """Returns `hpcfl bench` as a function of its arguments."""
    return bench


def bench(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["bench", *map(str, arguments)])
