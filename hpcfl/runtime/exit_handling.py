"""How a rank exits: one error message is printed last, and no other rank is left waiting."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

from hpcfl.comm.communicator import Communicator
from hpcfl.comm.launcher import OUTPUT_DELAY
from hpcfl.errors import BadInput, Fatal, Refused, RunFailed

LAUNCHER_PID = os.getppid()
"""Read at import, before the launcher could have died."""

DONE, FAILED, BAD_INPUT, STOPPED, INTERRUPTED = 0, 1, 2, 75, 130


def run_guarded(comm: Communicator, body: Callable[[], int]) -> int:
    """Runs `body` and returns its exit code; an exception on one rank aborts all ranks."""
    try:
        with _no_silent_exit(comm):
            code = _run_body(comm, body)
            comm.close()
    except Fatal as error:
        _abort_all(comm, f"hpcfl: {error}", FAILED)
    except BadInput as error:  # on this rank only
        _abort_all(comm, f"hpcfl: {error}", BAD_INPUT)
    except KeyboardInterrupt:
        _abort_all(comm, "hpcfl: interrupted" if comm.is_server else "", INTERRUPTED)
    except BaseException:
        text = traceback.format_exc()
        time.sleep(OUTPUT_DELAY)  # so that the output of other ranks comes first
        _abort_all(comm, "\n".join(f"[rank {comm.rank}] {line}" for line in text.splitlines()), FAILED)
    return code


@contextlib.contextmanager
def _no_silent_exit(comm: Communicator) -> Iterator[None]:
    """Makes `os._exit(0)` of this process a failure: a user's network must not end a job as if it were done.

    MPICH would take the code 0 of a rank that is gone for success. Forked children may call it. Only the main
    thread may call MPI; from another one, the launcher ends the other ranks, with a code of its own.
    """
    real_exit, process = os._exit, os.getpid()

    def exit_process(status: int) -> NoReturn:
        if status == DONE and os.getpid() == process:
            message = f"hpcfl: rank {comm.rank}: os._exit(0) was called before the end of the job"
            if comm.size > 1 and threading.current_thread() is threading.main_thread():
                _abort_all(comm, message, FAILED)
            print_error(message)
            status = FAILED
        real_exit(status)

    os._exit = exit_process
    try:
        yield
    finally:
        os._exit = real_exit


def _run_body(comm: Communicator, body: Callable[[], int]) -> int:
    """Returns the exit code of `body`; an error that all ranks raise is printed by rank 0 only."""
    try:
        return body()
    except (Refused, RunFailed) as error:
        print_error(f"hpcfl: {error}", comm.is_server)
        return BAD_INPUT if isinstance(error, Refused) else FAILED


def _abort_all(comm: Communicator, message: str, code: int) -> NoReturn:
    """Prints the message and aborts all ranks, after a delay: an abort drops output not yet forwarded."""
    print_error(message, bool(message))
    if comm.size > 1:
        time.sleep(OUTPUT_DELAY / 2)
    comm.abort(code)
    os._exit(code)  # if the abort has not ended this rank


def print_error(text: str, prints: bool = True) -> None:
    """Prints to stderr if `prints`."""
    if prints:
        print(text, file=sys.stderr, flush=True)


class LauncherWatchdog(threading.Thread):
    """Ends this rank when its launcher has died: Open MPI's ranks may otherwise go on computing.

    It never calls MPI, which only the main thread may do.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)

    def run(self) -> None:
        while os.getppid() == LAUNCHER_PID:
            time.sleep(1)
        with contextlib.suppress(OSError):  # stderr may be closed
            os.write(2, b"hpcfl: the launcher is gone\n")
        os._exit(FAILED)


class StopSignals:
    """Signal handlers: the first signal stops the run after the current round, the second at once.

    Open MPI's mpirun kills its ranks 0.3 s after it forwards SIGINT or SIGTERM, and sends SIGTERM when a rank
    fails: with it these two keep their default handlers, and only SIGUSR1 asks for a stop.
    """

    def __init__(self, prints: bool, open_mpi: bool):
        self.received = False
        self.prints = prints
        self.numbers = (signal.SIGUSR1,) if open_mpi else (signal.SIGUSR1, signal.SIGINT, signal.SIGTERM)

    def __enter__(self) -> StopSignals:
        self.previous_handlers = {number: signal.signal(number, self._handle) for number in self.numbers}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self.previous_handlers.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received:
            raise KeyboardInterrupt
        self.received = True
        if self.prints:
            name = signal.Signals(number).name
            os.write(2, f"hpcfl: {name}: stopping after this round; once more stops at once\n".encode())
