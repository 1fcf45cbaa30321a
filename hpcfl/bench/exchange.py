"""Cost of the exchange alone: empty rounds, and fetch_add on a counter whose owner computes."""

from __future__ import annotations

import time

import numpy as np

from hpcfl.comm.communicator import COUNTERS, Communicator, ControlFlags, open_communicator
from hpcfl.comm.launcher import find_launcher
from hpcfl.runtime.cores import own_cores
from hpcfl.runtime.exit_handling import DONE, run_guarded
from hpcfl.runtime.scheduling import CoreLimiter

DOWN, UP = 15_400, 400
"""Bytes of a broadcast and of a rank's part of a gather, about those of the quick start."""


def bench_exchange(rounds: int) -> int:
    """Measures and prints on rank 0; returns the exit code."""
    comm = open_communicator(find_launcher())
    return run_guarded(comm, lambda: _exchange(comm, rounds))


def _exchange(comm: Communicator, rounds: int) -> int:
    comm.setup_nodes(pretend_nodes=1, stall_minutes=0)
    down, up = np.zeros(DOWN, dtype=np.uint8), np.zeros(UP, dtype=np.uint8)
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        comm.broadcast(ControlFlags.GO, down)
        comm.gather(ControlFlags.GO, up)  # metrics
        comm.gather(ControlFlags.GO, up)  # uploads
        seconds.append(time.perf_counter() - start)
    fetch_seconds = [taken for times in comm.allgather_object(_fetch_seconds(comm)) for taken in times]
    if comm.is_server:
        print(f"{comm.size} ranks, {comm.library}")
        # the first round includes the wait for the last rank to start
        print(_format_times("an empty round", seconds[1:]))
        print(_format_times("a take while the counter's owner computes", fetch_seconds))
    return DONE


def _format_times(label: str, seconds: list[float]) -> str:
    if not seconds:
        return f"{label}: not with one process"
    median, p99, longest = 1e3 * np.quantile(seconds, [0.5, 0.99, 1])
    return f"{label}: median {median:.3f} ms, 99% below {p99:.3f}, at most {longest:.3f} (of {len(seconds)})"


def _fetch_seconds(comm: Communicator) -> list[float]:
    """Returns the seconds of 20 fetch_add calls, with a core limiter as in a run, while rank 0 computes.

    Rank 0 owns the counter.
    """
    comm.gather(ControlFlags.GO, np.zeros(0, dtype=np.uint8))
    fetch_seconds: list[float] = []
    if comm.is_server:
        end = time.perf_counter() + 1
        while time.perf_counter() < end:
            pass
    else:
        limiter = CoreLimiter(comm, COUNTERS - 1, len(own_cores()[0]))
        for _ in range(20):
            limiter.enter()
            start = time.perf_counter()
            comm.fetch_add(0)
            fetch_seconds.append(time.perf_counter() - start)
            limiter.leave()
            time.sleep(0.02)
    return fetch_seconds
