"""How a rank ends: one clear last word, and no other rank left waiting."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from hpcfl.comm.communicator import Communicator
from hpcfl.comm.launcher import SETTLE
from hpcfl.errors import BadInput, Fatal, Refused, RunFailed

PARENT = os.getppid()
"""Who started this process, read before anything could happen to it."""

DONE, FAILED, BAD_INPUT, STOPPED, INTERRUPTED = 0, 1, 2, 75, 130


def run_guarded(comm: Communicator, body: Callable[[], int]) -> int:
    """Runs a rank's part and returns the exit code; an exception on any rank ends them all."""
    try:
        code = _common_end(comm, body)
        comm.close()
    except Fatal as error:
        _end_all(comm, f"hpcfl: {error}", FAILED)
    except BadInput as error:  # that only this rank met
        _end_all(comm, f"hpcfl: {error}", BAD_INPUT)
    except KeyboardInterrupt:
        _end_all(comm, "hpcfl: interrupted" if comm.is_server else "", INTERRUPTED)
    except BaseException:
        text = traceback.format_exc()
        time.sleep(SETTLE)  # what others had to say then stands above it
        _end_all(comm, "\n".join(f"[rank {comm.rank}] {line}" for line in text.splitlines()), FAILED)
    return code


def _common_end(comm: Communicator, body: Callable[[], int]) -> int:
    """Returns the exit code of an end that all ranks know of; one of them prints."""
    try:
        return body()
    except (Refused, RunFailed) as error:
        print_error(f"hpcfl: {error}", comm.is_server)
        return BAD_INPUT if isinstance(error, Refused) else FAILED


def _end_all(comm: Communicator, message: str, code: int) -> NoReturn:
    """Ends every rank; the launcher drops what it has not passed on by then, so it is given time."""
    print_error(message, bool(message))
    if comm.size > 1:
        time.sleep(SETTLE / 2)
    comm.abort(code)
    os._exit(code)  # alone, or if aborting let this rank go on


def print_error(text: str, prints: bool = True) -> None:
    """Prints a last word, once: on the rank that prints."""
    if prints:
        print(text, file=sys.stderr, flush=True)


class LauncherWatchdog(threading.Thread):
    """Ends this rank if its launcher is gone: Open MPI's ranks may go on computing for nobody.

    It never calls MPI: that is the main thread's alone.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)

    def run(self) -> None:
        while os.getppid() == PARENT:
            time.sleep(1)
        with contextlib.suppress(OSError):  # nobody may be left to read it
            os.write(2, b"hpcfl: the launcher is gone\n")
        os._exit(FAILED)


class StopSignals:
    """Once: the run ends after this round. Twice: at once.

    Open MPI's mpirun kills its ranks 0.3 s after it forwards SIGINT or SIGTERM, and sends SIGTERM when a rank
    fails: there these two keep their meaning, and only SIGUSR1 asks for a stop.
    """

    def __init__(self, prints: bool, open_mpi: bool):
        self.received = False
        self.prints = prints
        self.numbers = (signal.SIGUSR1,) if open_mpi else (signal.SIGUSR1, signal.SIGINT, signal.SIGTERM)

    def __enter__(self) -> StopSignals:
        self.before = {number: signal.signal(number, self._handle) for number in self.numbers}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            raise KeyboardInterrupt
        self.received = True
        if self.prints:
            name = signal.Signals(number).name
            os.write(2, f"hpcfl: {name}: stopping after this round; once more stops at once\n".encode())
