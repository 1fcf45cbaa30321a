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
    link = open_communicator(find_launcher())
    return run_guarded(link, lambda: _exchange(link, rounds))


def _exchange(link: Communicator, rounds: int) -> int:
    link.meet(pretend_nodes=1, stall_minutes=0)
    down, up = np.zeros(DOWN, dtype=np.uint8), np.zeros(UP, dtype=np.uint8)
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        link.broadcast(ControlFlags.GO, down)
        link.gather(ControlFlags.GO, up)  # metrics
        link.gather(ControlFlags.GO, up)  # uploads
        seconds.append(time.perf_counter() - start)
    takes = [took for mine in link.facts(_takes(link)) for took in mine]
    if link.is_server:
        print(f"{link.size} ranks, {link.library}")
        print(_words("an empty round", seconds[1:]))  # the first is also the wait for the last rank to start
        print(_words("a take while the counter's owner computes", takes))
    return DONE


def _words(what: str, seconds: list[float]) -> str:
    if not seconds:
        return f"{what}: not with one process"
    middle, high, most = 1e3 * np.quantile(seconds, [0.5, 0.99, 1])
    return f"{what}: median {middle:.3f} ms, 99% below {high:.3f}, at most {most:.3f} (of {len(seconds)})"


def _takes(link: Communicator) -> list[float]:
    """Returns the seconds of 20 takes, behind a gate as in a run; rank 0, the counter's owner, computes."""
    link.gather(ControlFlags.GO, np.zeros(0, dtype=np.uint8))
    takes: list[float] = []
    if link.is_server:
        end = time.perf_counter() + 1
        while time.perf_counter() < end:
            pass
    else:
        gate = CoreLimiter(link, COUNTERS - 1, len(own_cores()[0]))
        for _ in range(20):
            gate.enter()
            start = time.perf_counter()
            link.take(0)
            takes.append(time.perf_counter() - start)
            gate.leave()
            time.sleep(0.02)
    return takes
