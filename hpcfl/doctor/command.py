"""The command: every rank looks, rank 0 judges and prints, all end alike."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpcfl.comm.communicator import Communicator, ControlFlags, open_communicator
from hpcfl.comm.launcher import SETTLE, Launcher, find_launcher, is_first_process
from hpcfl.comm.serial import SerialCommunicator
from hpcfl.config.loading import load_config
from hpcfl.config.schema import Config
from hpcfl.doctor.disk import free_bytes
from hpcfl.doctor.finding import Finding, ok, summary
from hpcfl.doctor.startup_check import check_start
from hpcfl.errors import Refused
from hpcfl.federation.run_plan import RunPlan, plan_run
from hpcfl.log.existing_run import default_log_path
from hpcfl.runtime.exit_handling import DONE, FAILED, LauncherWatchdog, run_guarded

if TYPE_CHECKING:
    from hpcfl.doctor.rank_info import RankInfo

PATIENCE = 300.0
"""Seconds that one step may take."""


class StepTimeout(threading.Thread):
    """Ends this rank, and says at what, if a step takes too long: a file system or MPI may never answer."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.says, self.over = is_first_process(), threading.Event()
        self.step("reading the configuration")

    def __enter__(self) -> StepTimeout:
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


def run_doctor(path: str | None, settings: Sequence[str], out: str | None) -> int:
    """Checks the machine for a run, prints one line for each check, and returns the exit code.

    Processes that a launcher started but MPI does not link are a finding, not an error: the first speaks.
    """
    with StepTimeout() as patience:
        return _meet(find_launcher(), path, settings, out, patience)


def _meet(
    found: Launcher | None, path: str | None, settings: Sequence[str], out: str | None, patience: StepTimeout
) -> int:
    """Links the ranks, if they can be, and examines."""
    try:
        config: Config | Exception = load_config(path, settings)
    except Exception as problem:
        if found is None:
            raise
        config = problem  # raised once there is a link, so that all ranks end alike
    early = [] if found is None else check_start(found, os.environ, free_bytes("/dev/shm"))
    if is_first_process():
        for finding in early:  # now: MPI may not come back
            print(finding.line(), flush=True)
    patience.step("starting MPI (does the launcher belong to this MPI?)", alone=False)
    refusal = ""
    try:
        comm = open_communicator(found)
    except Refused as error:
        if not is_first_process():
            return DONE  # the first process's code is the job's
        comm, refusal = SerialCommunicator(), " ".join(str(error).split())
    if found is not None:
        LauncherWatchdog().start()
    return run_guarded(comm, lambda: _examine(comm, found, config, out, refusal, early, patience))


def _examine(
    comm: Communicator,
    found: Launcher | None,
    config: Config | Exception,
    out: str | None,
    refusal: str,
    early: Sequence[Finding],
    patience: StepTimeout,
) -> int:
    """Gathers facts, prints what follows from them, and at last tries an exchange."""
    with comm.raise_on_all():
        if isinstance(config, Exception):
            raise config
    assert isinstance(config, Config)
    from hpcfl.doctor.rank_info import collect_rank_info

    patience.step("looking at disks, data and devices")
    mine = collect_rank_info(comm, found, config, default_log_path(config) if out is None else Path(out))
    patience.step("waiting for the other ranks", alone=False)
    infos = comm.allgather_object(mine)
    plan: RunPlan | None = None
    with comm.raise_on_all():
        if comm.is_server and not any(each.dataset[1] for each in infos):
            plan = plan_run(config)
    said = list(early)
    if comm.is_server:
        for finding in _findings(infos, config, plan, refusal):
            print(finding.line(), flush=True)
            said.append(finding)
    patience.step("exchanging messages over MPI's shared memory", alone=False)
    exchanged = _exchange(comm)
    if comm.is_server:
        if exchanged:
            print(exchanged.line())
        print(summary(said), flush=True)
    return comm.allgather_object(FAILED if any(each.level == "problem" for each in said) else DONE)[0]


def _findings(
    infos: Sequence[RankInfo], config: Config, plan: RunPlan | None, refusal: str
) -> Iterator[Finding]:
    """Yields what follows from the facts, in the order in which a run meets it."""
    from hpcfl.doctor import mpi_checks, rank_checks, storage_checks
    from hpcfl.doctor.requirements import requirements

    runtime = config.runtime
    yield rank_checks.check_launch(infos, refusal)
    yield mpi_checks.check_library(infos)
    yield mpi_checks.check_fabric(infos)
    yield mpi_checks.check_versions(infos)
    yield rank_checks.check_cores(infos, runtime.threads)
    yield rank_checks.check_binding(infos, runtime.threads)
    yield rank_checks.check_devices(infos, runtime.device)
    yield rank_checks.check_workers(infos, config.federation.per_round)
    yield storage_checks.check_dataset(infos, config.data.name)
    need = requirements(plan, infos) if plan else None
    yield storage_checks.check_shared(infos, need, runtime.arena)
    yield storage_checks.check_memory(infos, need)
    yield storage_checks.check_output(infos)
    yield storage_checks.check_lock(infos)
    yield storage_checks.check_space(infos, need)
    yield mpi_checks.check_segments(infos)


def _exchange(comm: Communicator) -> Finding | None:
    """Tries what a round does: ranks meet, a broadcast goes down, a gather comes up."""
    if comm.size == 1:
        return None
    import numpy as np

    comm.setup_nodes(pretend_nodes=1, stall_minutes=0)
    comm.broadcast(ControlFlags.GO, np.zeros(1, dtype=np.uint8))
    start = time.perf_counter()
    comm.broadcast(ControlFlags.GO, np.zeros(1000, dtype=np.uint8))
    _, arrived = comm.gather(ControlFlags.GO, np.full(3, comm.rank % 256, dtype=np.uint8))
    took = time.perf_counter() - start
    assert all(body.tolist() == [rank % 256] * 3 for rank, body in enumerate(arrived))
    return ok("exchange", f"{comm.size} ranks met and answered in {1000 * took:.1f} ms")
