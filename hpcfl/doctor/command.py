"""The command: every rank looks, rank 0 judges and prints, all end alike."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpcfl.comm.communicator import Link, Word, open_link
from hpcfl.comm.launcher import SETTLE, Launcher, launcher, speaks
from hpcfl.comm.serial import Solo
from hpcfl.config.loading import load
from hpcfl.config.schema import Config
from hpcfl.doctor.disk import free_bytes
from hpcfl.doctor.finding import Finding, ok, summary
from hpcfl.doctor.startup_check import check_start
from hpcfl.errors import Refused
from hpcfl.federation.run_plan import Federation, plan
from hpcfl.log.existing_run import default_path
from hpcfl.runtime.exit_handling import DONE, FAILED, Watchdog, guarded

if TYPE_CHECKING:
    from hpcfl.doctor.rank_info import Facts

PATIENCE = 300.0
"""Seconds that one step may take."""


class Patience(threading.Thread):
    """Ends this rank, and says at what, if a step takes too long: a file system or MPI may never answer."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.says, self.over = speaks(), threading.Event()
        self.step("reading the configuration")

    def __enter__(self) -> Patience:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.over.set()

    def step(self, what: str, alone: bool = True) -> None:
        """Begins the next step; one that waits for others is only spoken of by one rank."""
        self.what, self.since, self.alone = what, time.monotonic(), alone

    def run(self) -> None:
        while time.monotonic() - self.since < PATIENCE:
            if self.over.wait(min(1.0, PATIENCE / 4)):
                return
        if self.alone or self.says:
            text = f"hpcfl: {os.uname().nodename} stood still for {PATIENCE:g} s: {self.what}\n"
            os.write(2, text.encode(errors="replace"))
        time.sleep(SETTLE)
        os._exit(FAILED)


def doctor(path: str | None, settings: Sequence[str], out: str | None) -> int:
    """Checks the machine for a run, prints one line for each check, and returns the exit code.

    Processes that a launcher started but MPI does not link are a finding, not an error: the first speaks.
    """
    with Patience() as patience:
        return _meet(launcher(), path, settings, out, patience)


def _meet(
    found: Launcher | None, path: str | None, settings: Sequence[str], out: str | None, patience: Patience
) -> int:
    """Links the ranks, if they can be, and examines."""
    try:
        config: Config | Exception = load(path, settings)
    except Exception as problem:
        if found is None:
            raise
        config = problem  # raised once there is a link, so that all ranks end alike
    early = [] if found is None else check_start(found, os.environ, free_bytes("/dev/shm"))
    if speaks():
        for finding in early:  # now: MPI may not come back
            print(finding.line(), flush=True)
    patience.step("starting MPI (does the launcher belong to this MPI?)", alone=False)
    refusal = ""
    try:
        link = open_link(found)
    except Refused as error:
        if not speaks():
            return DONE  # the first process's code is the job's
        link, refusal = Solo(), " ".join(str(error).split())
    if found is not None:
        Watchdog().start()
    return guarded(link, lambda: _examine(link, found, config, out, refusal, early, patience))


def _examine(
    link: Link,
    found: Launcher | None,
    config: Config | Exception,
    out: str | None,
    refusal: str,
    early: Sequence[Finding],
    patience: Patience,
) -> int:
    """Gathers facts, prints what follows from them, and at last tries an exchange."""
    with link.agreed():
        if isinstance(config, Exception):
            raise config
    assert isinstance(config, Config)
    from hpcfl.doctor.rank_info import look

    patience.step("looking at disks, data and devices")
    mine = look(link, found, config, default_path(config) if out is None else Path(out))
    patience.step("waiting for the other ranks", alone=False)
    facts = link.facts(mine)
    fed: Federation | None = None
    with link.agreed():
        if link.is_server and not any(each.dataset[1] for each in facts):
            fed = plan(config)
    said = list(early)
    if link.is_server:
        for finding in _findings(facts, config, fed, refusal):
            print(finding.line(), flush=True)
            said.append(finding)
    patience.step("exchanging messages over MPI's shared memory", alone=False)
    exchanged = _exchange(link)
    if link.is_server:
        if exchanged:
            print(exchanged.line())
        print(summary(said), flush=True)
    return link.facts(FAILED if any(each.level == "problem" for each in said) else DONE)[0]


def _findings(
    facts: Sequence[Facts], config: Config, fed: Federation | None, refusal: str
) -> Iterator[Finding]:
    """Yields what follows from the facts, in the order in which a run meets it."""
    from hpcfl.doctor import mpi_checks as mpi
    from hpcfl.doctor import rank_checks as ranks
    from hpcfl.doctor import storage_checks as room
    from hpcfl.doctor.requirements import needs

    runtime = config.runtime
    yield ranks.check_launch(facts, refusal)
    yield mpi.check_library(facts)
    yield mpi.check_fabric(facts)
    yield mpi.check_versions(facts)
    yield ranks.check_cores(facts, runtime.threads)
    yield ranks.check_binding(facts, runtime.threads)
    yield ranks.check_devices(facts, runtime.device)
    yield ranks.check_workers(facts, config.federation.per_round)
    yield room.check_dataset(facts, config.data.name)
    need = needs(fed, facts) if fed else None
    yield room.check_shared(facts, need, runtime.arena)
    yield room.check_memory(facts, need)
    yield room.check_output(facts)
    yield room.check_lock(facts)
    yield room.check_space(facts, need)
    yield mpi.check_segments(facts)


def _exchange(link: Link) -> Finding | None:
    """Tries what a round does: ranks meet, a broadcast goes down, a gather comes up."""
    if link.size == 1:
        return None
    import numpy as np

    link.meet(pretend_nodes=1, stall_minutes=0)
    link.broadcast(Word.GO, np.zeros(1, dtype=np.uint8))
    start = time.perf_counter()
    link.broadcast(Word.GO, np.zeros(1000, dtype=np.uint8))
    _, arrived = link.gather(Word.GO, np.full(3, link.rank % 256, dtype=np.uint8))
    took = time.perf_counter() - start
    assert all(body.tolist() == [rank % 256] * 3 for rank, body in enumerate(arrived))
    return ok("exchange", f"{link.size} ranks met and answered in {1000 * took:.1f} ms")
