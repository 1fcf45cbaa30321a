"""Runs commands of hpcfl in forked processes, with all imports done, and tells how each one ended."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch._dynamo  # noqa: F401  which a run imports, and which takes a second

import hpcfl.data.convert
import hpcfl.engine.assemble
import hpcfl.engine.rounds
import hpcfl.plan.partition
import hpcfl.study.run  # noqa: F401
from hpcfl.cli import main as hpcfl_main

LIMIT = 10.0
"""Seconds for a command."""
SETUP_LIMIT = 300.0
"""Seconds for what makes the undamaged files, which a busy machine may need."""
EXECUTED = 99
"""Exit code of a process that was about to execute what is in a file."""
EXECUTIONS = ("pickle.find_class", "os.system")
"""Audit events of Python that say so."""
FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int | None
    """Its exit code, or minus the signal that ended it; None: it took too long and was killed."""
    stdout: str
    stderr: str

    @property
    def fault(self) -> str:
        """What must not be, in capitals; empty: it succeeded, or failed with one sentence."""
        if self.code is None:
            return f"HANG of more than {LIMIT:g} s"
        if self.code < 0:
            return f"CRASH by signal {-self.code}"
        if self.code == EXECUTED:
            return "EXECUTED what is in a file"
        if "Traceback" in self.stderr:
            return "TRACEBACK"
        if self.code not in (0, 1, 2):
            return f"EXIT CODE {self.code}"
        last = (self.stdout + self.stderr).splitlines()[-1:]
        if self.code and (len(self.stderr.splitlines()) > 1 or not last or not last[0].startswith("hpcfl: ")):
            return "NOT ONE SENTENCE"
        return ""


def run_command(arguments: Sequence[str], directory: Path, limit: float = LIMIT) -> Ended:
    """Runs a command of hpcfl in a directory, in a process of its own."""
    return run_forked(lambda: hpcfl_main(list(arguments)), directory, limit)


def read_content(content: Callable[[], str], directory: Path) -> str:
    """Returns the text that `content` gives in a process of its own; in capitals if that must not be."""
    ended = run_forked(lambda: print(content(), end=""), directory)
    return ended.fault or ended.stdout


def run_forked(body: Callable[[], object], directory: Path, limit: float = LIMIT) -> Ended:
    """Runs a function in a directory, in a process of its own, for so many seconds at most."""
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:

        def child() -> None:
            os.dup2(stdout.fileno(), 1)
            os.dup2(stderr.fileno(), 2)
            os.chdir(directory)
            sys.addaudithook(_end_execution)
            code: object = 1
            try:
                body()
                code = 0
            except SystemExit as ended:
                code = ended.code or 0
            except BaseException:
                os.write(2, traceback.format_exc().encode())
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code if isinstance(code, int) else 1)

        sys.stdout.flush()
        process = FORK.Process(target=child)
        process.start()
        process.join(limit)
        code = process.exitcode
        if code is None:
            process.kill()
            process.join()
        return Ended(code, _text(stdout.fileno()), _text(stderr.fileno()))


def _end_execution(event: str, arguments: tuple[object, ...]) -> None:
    if event in EXECUTIONS:
        os.write(2, f"{event} {arguments}\n".encode())
        os._exit(EXECUTED)


def _text(descriptor: int) -> str:
    return os.pread(descriptor, 1 << 20, 0).decode(errors="replace")
