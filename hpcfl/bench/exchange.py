"""What the exchange costs by itself: empty rounds, and taking a number while its owner computes."""

from __future__ import annotations

import time

import numpy as np

from hpcfl.comm.communicator import COUNTERS, Communicator, ControlFlags, open_communicator
from hpcfl.comm.launcher import find_launcher
from hpcfl.runtime.cores import own_cores
from hpcfl.runtime.exit_handling import DONE, run_guarded
from hpcfl.runtime.scheduling import CoreLimiter

DOWN, UP = 15_400, 400
"""Bytes of a broadcast and of a rank's gather, about those of the quick start."""


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
    takes = [took for mine in comm.allgather_object(_takes(comm)) for took in mine]
    if comm.is_server:
        print(f"{comm.size} ranks, {comm.library}")
        print(_words("an empty round", seconds[1:]))  # the first is also the wait for the last rank to start
        print(_words("a take while the counter's owner computes", takes))
    return DONE


def _words(what: str, seconds: list[float]) -> str:
    if not seconds:
        return f"{what}: not with one process"
    middle, high, most = 1e3 * np.quantile(seconds, [0.5, 0.99, 1])
    return f"{what}: median {middle:.3f} ms, 99% below {high:.3f}, at most {most:.3f} (of {len(seconds)})"


def _takes(comm: Communicator) -> list[float]:
    """Returns the seconds of 20 takes, behind a gate as in a run; rank 0, the counter's owner, computes."""
    comm.gather(ControlFlags.GO, np.zeros(0, dtype=np.uint8))
    takes: list[float] = []
    if comm.is_server:
        end = time.perf_counter() + 1
        while time.perf_counter() < end:
            pass
    else:
        gate = CoreLimiter(comm, COUNTERS - 1, len(own_cores()[0]))
        for _ in range(20):
            gate.enter()
            start = time.perf_counter()
            comm.fetch_add(0)
            takes.append(time.perf_counter() - start)
            gate.leave()
            time.sleep(0.02)
    return takes
