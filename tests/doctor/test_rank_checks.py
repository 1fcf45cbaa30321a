"""Checks of launch, cores, binding, devices and workers, by made-up ranks."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hpcfl.doctor.rank_checks import check_binding, check_cores, check_devices, check_launch, check_workers
from hpcfl.doctor.rank_info import GpuInfo
from tests.helpers.doctor import HYDRA, PRTE, SRUN, bound, check, job


def test_ranks_and_nodes_are_counted():
    check(check_launch(job(5)), "ok", "MPICH's mpirun: 5 ranks on 1 node (n0 5)")
    check(check_launch(job(64, hosts=8)), "ok", "64 ranks on 8 nodes (n0 8, n1 8, n2 8, n3 8 and 4 more)")
    check(check_launch(job(1)), "ok", "one process on n0, without a launcher")


@pytest.mark.parametrize(
    "environ",
    [{"PMI_SIZE": "4"}, {"SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "4"}, {"PMIX_RANK": "3"}],
)
def test_a_process_that_only_thinks_it_is_alone_is_a_problem(environ):
    check(
        check_launch(job(1, environ=environ)), "problem", next(iter(environ)), "use the mpirun that belongs"
    )


def test_ranks_that_could_not_be_linked_are_a_problem_with_its_remedy():
    finding = check_launch(
        job(1), "srun started 4 processes, but MPI sees 1: each runs alone; use the --mpi="
    )
    check(finding, "problem", "MPI sees 1: each runs alone -> use the --mpi=")


def test_one_rank_that_was_asked_for_is_fine():
    one = job(1, launcher=replace(SRUN, size=1), environ={"SLURM_STEP_NUM_TASKS": "1", "PMIX_RANK": "0"})
    check(check_launch(one), "ok", "srun: 1 rank")


def test_the_batch_script_itself_is_told_of_srun():
    check(
        check_launch(job(1, environ={"SLURM_NTASKS": "16"})),
        "warning",
        "SLURM_NTASKS=16",
        "srun hpcfl doctor",
    )
    check(check_launch(job(1, environ={"SLURM_NTASKS": "1"})), "ok")


def test_ranks_of_a_host_that_share_no_memory_are_a_warning():
    check(check_launch(job(4, local_rank=0)), "warning", "1 host (n0 4), where MPI sees 4 nodes")


@pytest.mark.parametrize(("ranks", "threads", "level"), [(9, 1, "ok"), (10, 1, "warning"), (6, 2, "warning")])
def test_oversubscription(ranks, threads, level):
    """8 cores for ranks - 1 workers; the server sleeps while they train."""
    finding = check_cores(job(ranks), threads)
    check(finding, level, f"{ranks - 1} workers × {threads} thread", "on 8 cores")
    assert ("oversubscribed (results do not change)" in finding.line()) == (level == "warning")


def test_oversubscription_says_how_many_ranks_are_enough():
    check(check_cores(job(21), 2), "warning", "ask for 40 cores, or start 5 ranks")


def test_a_quota_counts_as_cores():
    limited = job(5, cores=(frozenset(range(8)), 2.0))
    check(check_cores(limited, 1), "warning", "4 workers × 1 thread on 2 cores")
    check(check_binding(limited, 1), "ok", "within a quota of 2 cores")


def test_one_core_and_one_rank_are_in_the_singular():
    limited = job(1, cores=(frozenset(range(8)), 1.0))
    check(check_cores(limited, 2), "warning", "ask for 2 cores, or start 1 rank: more only wait")
    assert check_binding(limited, 1).line().endswith("within a quota of 1 core")


@pytest.mark.parametrize(
    ("launcher", "remedy"),
    [(HYDRA, "mpirun -bind-to none"), (PRTE, "mpirun --bind-to none"), (SRUN, "--cpu-bind=cores")],
)
def test_all_ranks_on_the_same_core_are_a_problem(launcher, remedy):
    finding = check_binding(bound({3}, {3}, {3}, launcher=launcher), 1)
    check(finding, "problem", "all 3 ranks of n0 are bound to the same core, the job has 8 there", remedy)


@pytest.mark.parametrize(
    ("infos", "threads", "level", "words"),
    [
        (bound({0}, {1}, {2}), 1, "ok", "1 core per rank"),
        (bound({0}, {0}, there=1), 1, "ok", "every core of the job"),  # nothing else to run on
        (bound({0, 1}, {0, 1}, {0, 1}), 1, "problem", "the same 2 cores"),
        (bound({0}, {1}, {0}), 1, "problem", "the 3 ranks of n0 are bound to 2 cores"),
        (bound({0}, {1}), 4, "problem", "bound to 2 cores"),
        (
            bound(*({i} for i in range(8))),
            4,
            "warning",
            "8 ranks may run on fewer cores than runtime.threads = 4",
        ),
        (bound({0}), 4, "warning", "1 rank may run on fewer cores"),
        (job(5, hosts=2), 1, "ok", "every core of the job"),
    ],
)
def test_binding(infos, threads, level, words):
    check(check_binding(infos, threads), level, words)


def test_ranks_on_different_hosts_do_not_share_a_core():
    two = [replace(each, cores=(frozenset((0,)), math.inf)) for each in job(2, hosts=2)]
    check(check_binding(two, 1), "ok")


@pytest.mark.parametrize(
    ("gpus", "setting", "level", "words"),
    [
        (GpuInfo(), "auto", "ok", "cpu: no GPU here"),
        (GpuInfo(4), "auto", "ok", "n0: 3 ranks, each sees 4 GPUs"),
        (GpuInfo(4), "cpu", "ok", "cpu, as runtime.device says"),
        (GpuInfo(), "cuda", "problem", "ranks on n0 see no GPU -> ask the batch system"),
        (GpuInfo(0, True), "cuda", "problem", "install a torch with CUDA (this is 2.5.0+cpu)"),
        (GpuInfo(0, True), "auto", "warning", "torch does not see it"),
        (
            GpuInfo(1, True, "out of memory"),
            "auto",
            "problem",
            "rank 0 on n0 cannot use its GPU: out of memory",
        ),
    ],
)
def test_devices(gpus, setting, level, words):
    check(check_devices(job(3, gpus=gpus), setting), level, words)


def test_a_node_without_gpu_among_others():
    mixed = [replace(each, gpus=GpuInfo(2 * (each.host == "n0"))) for each in job(4, hosts=2)]
    check(check_devices(mixed, "auto"), "problem", "ranks on n1 see no GPU, others do")
    check(check_devices(mixed, "cuda"), "problem", "ranks on n1 see no GPU")


def test_devices_of_different_types():
    mixed = [
        replace(each, gpus=GpuInfo(1, kind="cuda" if each.host == "n0" else "xpu"))
        for each in job(4, hosts=2)
    ]
    check(check_devices(mixed, "auto"), "problem", "different types, cuda and xpu")


def test_more_workers_than_clients_per_round():
    check(check_workers(job(21), 20), "ok", "20 clients per round for 20 workers")
    check(check_workers(job(21), 4), "warning", "16 will idle", "5 ranks are enough")
