"""`hpcfl doctor`: all ranks collect information, rank 0 checks it and prints, all return the same code."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpcfl.comm.communicator import Communicator, ControlFlags, open_communicator
from hpcfl.comm.launcher import OUTPUT_DELAY, Launcher, find_launcher, is_first_process
from hpcfl.comm.serial import SerialCommunicator
from hpcfl.config.loading import is_read_once, load_config
from hpcfl.config.schema import Config
from hpcfl.doctor.finding import Finding, ok, summary
from hpcfl.doctor.startup_check import check_start
from hpcfl.errors import BadInput, Refused
from hpcfl.federation.run_plan import RunPlan, plan_run
from hpcfl.log.existing_run import default_log_path
from hpcfl.methods.catalogue import check_method
from hpcfl.runtime.exit_handling import DONE, FAILED, LauncherWatchdog, run_guarded
from hpcfl.utils.files import free_bytes

if TYPE_CHECKING:
    from hpcfl.doctor.rank_info import RankInfo

MAX_STEP_SECONDS = 300.0
"""A step that takes longer ends the command."""


class StepTimeout(threading.Thread):
    """Ends this rank and names the step if one takes too long: a file system or MPI may never answer."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.is_first, self.finished = is_first_process(), threading.Event()
        self.step("reading the configuration")

    def __enter__(self) -> StepTimeout:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.finished.set()

    def step(self, description: str, alone: bool = True) -> None:
        """Begins the next step; a timeout of one that waits for other ranks is reported by the first only."""
        self.description, self.since, self.alone = description, time.monotonic(), alone

    def run(self) -> None:
        while time.monotonic() - self.since < MAX_STEP_SECONDS:
            if self.finished.wait(min(1.0, MAX_STEP_SECONDS / 4)):
                return
        if self.alone or self.is_first:
            text = (
                f"hpcfl: {os.uname().nodename} stood still for {MAX_STEP_SECONDS:g} s: {self.description}\n"
            )
            os.write(2, text.encode(errors="replace"))
        time.sleep(OUTPUT_DELAY)
        os._exit(FAILED)


def run_doctor(path: str | None, settings: Sequence[str], out: str | None) -> int:
    """Checks the machine for a run, prints one line for each check, and returns the exit code.

    Processes that a launcher started but MPI does not connect are a finding, reported by the first.
    """
    with StepTimeout() as timeout:
        return _connect(find_launcher(), path, settings, out, timeout)


def _connect(
    launcher: Launcher | None,
    path: str | None,
    settings: Sequence[str],
    out: str | None,
    timeout: StepTimeout,
) -> int:
    """Connects the ranks if possible, and runs the checks."""
    if launcher is not None and is_read_once(path):
        raise BadInput(f"{path}: only rank 0 can read it; give a file, or start doctor alone")
    try:
        config: Config | Exception = check_method(load_config(path, settings))
    except Exception as problem:
        if launcher is None:
            raise
        config = problem  # raised after MPI has started, so that all ranks end alike
    early = [] if launcher is None else check_start(launcher, os.environ, free_bytes("/dev/shm"))
    if is_first_process():
        for finding in early:  # before MPI starts, because it may crash or hang
            print(finding.line(), flush=True)
    timeout.step("starting MPI (does the launcher belong to this MPI?)", alone=False)
    refusal = ""
    try:
        comm = open_communicator(launcher)
    except Refused as error:
        if not is_first_process():
            return DONE  # the exit code of the first process counts
        comm, refusal = SerialCommunicator(), " ".join(str(error).split())
    if launcher is not None:
        LauncherWatchdog().start()
    return run_guarded(comm, lambda: _check(comm, launcher, config, out, refusal, early, timeout))


def _check(
    comm: Communicator,
    launcher: Launcher | None,
    config: Config | Exception,
    out: str | None,
    refusal: str,
    early: Sequence[Finding],
    timeout: StepTimeout,
) -> int:
    """Gathers the information of all ranks, prints the findings, and tries an exchange at the end."""
    with comm.raise_on_all():
        if isinstance(config, Exception):
            raise config
    assert isinstance(config, Config)
    from hpcfl.doctor.rank_info import collect_rank_info

    timeout.step("looking at disks, data and devices")
    info = collect_rank_info(comm, launcher, config, default_log_path(config) if out is None else Path(out))
    timeout.step("waiting for the other ranks", alone=False)
    infos = comm.allgather_object(info)
    plan: RunPlan | None = None
    with comm.raise_on_all():
        if comm.is_server and not any(each.dataset[1] for each in infos):
            plan = plan_run(config)
    findings = list(early)
    if comm.is_server:
        for finding in _findings(infos, config, plan, refusal):
            print(finding.line(), flush=True)
            findings.append(finding)
    timeout.step("exchanging messages over MPI's shared memory", alone=False)
    exchanged = _exchange(comm)
    if comm.is_server:
        if exchanged:
            print(exchanged.line())
        print(summary(findings), flush=True)
    return comm.allgather_object(FAILED if any(each.level == "problem" for each in findings) else DONE)[0]


def _findings(
    infos: Sequence[RankInfo], config: Config, plan: RunPlan | None, refusal: str
) -> Iterator[Finding]:
    """Yields the findings in the order in which a run would meet the problems."""
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
    """Tries the communication of a round: a barrier, a broadcast and a gather."""
    if comm.size == 1:
        return None
    import numpy as np

    comm.setup_nodes(pretend_nodes=1, stall_minutes=0)
    comm.broadcast(ControlFlags.GO, np.zeros(1, dtype=np.uint8))
    start = time.perf_counter()
    comm.broadcast(ControlFlags.GO, np.zeros(1000, dtype=np.uint8))
    _, received = comm.gather(ControlFlags.GO, np.full(3, comm.rank % 256, dtype=np.uint8))
    seconds = time.perf_counter() - start
    assert all(body.tolist() == [rank % 256] * 3 for rank, body in enumerate(received))
    return ok("exchange", f"{comm.size} ranks met and answered in {1000 * seconds:.1f} ms")
