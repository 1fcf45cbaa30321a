"""Each check on made-up ranks."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hpcfl.comm.mpi_library import MpiLibrary
from hpcfl.doctor import mpi_checks
from hpcfl.doctor.disk import Mount, OutputDirectory
from hpcfl.doctor.finding import summary
from hpcfl.doctor.mpi_checks import check_fabric, check_library, check_segments, check_versions
from hpcfl.doctor.rank_checks import check_binding, check_cores, check_devices, check_launch, check_workers
from hpcfl.doctor.rank_info import GpuInfo
from hpcfl.doctor.shm_segments import Segment
from hpcfl.doctor.startup_check import check_start
from hpcfl.doctor.storage_checks import (
    Requirements,
    check_dataset,
    check_lock,
    check_memory,
    check_output,
    check_shared,
    check_space,
)
from hpcfl.runtime.arena import RESERVED_BYTES
from tests.helpers.doctor import GIB, HYDRA, OPEN_TEXT, PRTE, SRUN, bound, check, job

# --- launch


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


# --- cores and binding


@pytest.mark.parametrize(("ranks", "threads", "level"), [(9, 1, "ok"), (10, 1, "warning"), (6, 2, "warning")])
def test_oversubscription(ranks, threads, level):
    """8 cores for ranks - 1 workers; the server sleeps while they train."""
    finding = check_cores(job(ranks), threads)
    check(finding, level, f"{ranks - 1} workers × {threads} thread", "on 8 cores")
    assert ("oversubscribed (results do not change)" in finding.line()) == (level == "warning")


def test_oversubscription_says_how_many_ranks_are_enough():
    check(check_cores(job(21), 2), "warning", "ask for 40 cores, or start 5 ranks")


def test_a_quota_counts_as_cores():
    check(
        check_cores(job(5, cores=(frozenset(range(8)), 2.0)), 1), "warning", "4 workers × 1 thread on 2 cores"
    )


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
        (bound({0}, {1}, {2}), 1, "ok", "1 cores per rank"),
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


# --- devices


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
    check(check_devices(mixed, "auto"), "warning", "ranks on n1 see no GPU")
    check(check_devices(mixed, "cuda"), "problem", "ranks on n1 see no GPU")


def test_more_workers_than_clients_per_round():
    check(check_workers(job(21), 20), "ok", "20 clients per round for 20 workers")
    check(check_workers(job(21), 4), "warning", "16 will idle", "5 ranks are enough")


# --- MPI


def test_the_library_has_a_name_and_a_source():
    check(check_library(job(2)), "ok", "MPICH 5.0.2 from /opt/mpich/lib/libmpi.so.12")
    wheel = job(2, library=MpiLibrary(OPEN_TEXT, "/venv/lib/libmpi.so.40"), wheel=True)
    check(check_library(wheel), "ok", "Open MPI v5.0.11 from the Python environment")
    mixed = [*job(1), *job(1, library=MpiLibrary(OPEN_TEXT))]
    check(check_library(mixed), "problem", "MPICH 5.0.2 on n0, elsewhere Open MPI v5.0.11")


def test_a_library_that_cannot_be_loaded_matters_only_to_several_ranks():
    missing = MpiLibrary(trouble="cannot load libmpi.so")
    check(check_library(job(1, library=missing)), "warning", "one process needs none")
    check(check_library(job(2, library=missing)), "problem", "cannot load libmpi.so", "hpcfl[mpich]")


@pytest.mark.parametrize(
    ("more", "hosts", "level", "words"),
    [
        ({}, 1, "ok", "provider unknown (MPI chooses among UCX); one node"),
        ({}, 2, "ok", "provider unknown"),
        ({"wheel": True}, 1, "ok", "one node"),
        ({"wheel": True}, 2, "warning", "may not use the site's fabric -> build mpi4py on the site's MPI"),
        ({"environ": {"FI_PROVIDER": "cxi"}}, 2, "ok", "provider FI_PROVIDER=cxi"),
        (
            {"environ": {"FI_PROVIDER": "tcp"}, "fabric": ("mlx5_0",)},
            2,
            "warning",
            "although there is a fabric",
        ),
        ({"environ": {"OMPI_MCA_pml": "ucx"}, "library": MpiLibrary(OPEN_TEXT)}, 2, "ok", "OMPI_MCA_pml=ucx"),
        ({"environ": {"OMPI_MCA_pml": "ucx"}}, 2, "ok", "provider unknown"),  # MPICH does not read it
        ({"environ": {"UCX_NET_DEVICES": "mlx5_0:1"}}, 2, "ok", "UCX_NET_DEVICES=mlx5_0:1"),
    ],
)
def test_fabric(more, hosts, level, words):
    check(check_fabric(job(4, hosts, **more)), level, words)


def test_versions_that_differ_are_a_problem():
    check(check_versions(job(2)), "ok", "hpcfl 1, torch 2.5.0+cpu, MPICH 5.0.2")
    old = [job(2, hosts=2)[0], replace(job(2, hosts=2)[1], versions={"hpcfl": "1", "torch": "2.4"})]
    check(check_versions(old), "problem", "torch is 2.5.0+cpu on n0, 2.4 on n1")


def test_stale_segments_are_counted_once_per_host_with_the_command():
    left = (Segment("/dev/shm/mpich_shm_1_0", 3_000_000), Segment("/tmp/hpcfl-arena-x", 1_000_000))
    check(check_segments(job(3)), "ok", "no stale")
    finding = check_segments(job(3, segments=left))
    check(finding, "warning", "2 segments, 4.0 MB", "on n0: rm /dev/shm/mpich_shm_1_0 /tmp/hpcfl-arena-x")
    odd = (Segment("/tmp/a; b/hpcfl-arena-x", 1), Segment("/tmp/a; b/hpcfl-arena-y", 1))
    check(
        check_segments(job(1, segments=odd)),
        "warning",
        "on n0: rm '/tmp/a; b/hpcfl-arena-x' '/tmp/a; b/hpcfl-arena-y'",
    )
    many = tuple(Segment(f"/dev/shm/sm_segment.a.0.1.{i:03}", 1) for i in range(50))
    finding = check_segments(job(2, hosts=2, segments=many))
    check(finding, "warning", "100 segments on n0, n1", "and 30 more: ask again then", "on n1: rm")
    assert finding.line().count("/dev/shm") == 2 * mpi_checks.MAX_PATHS


# --- room


@pytest.mark.parametrize(
    ("free", "temporary", "setting", "level", "words"),
    [
        (8 * GIB, GIB, "auto", "ok", "the arena needs 1.1 GB and leaves 16.8 MB to others: shared"),
        (
            GIB + RESERVED_BYTES - 1,
            2 * GIB,
            "auto",
            "warning",
            "too small, a mapped file in /tmp takes its place",
        ),
        (0, 0, "auto", "warning", "each rank keeps its own clients, which pins them"),
        (0, 2 * GIB, "shared", "problem", "set runtime.arena=auto"),
        (0, 2 * GIB, "mapped", "ok", "mapped"),
        (0, 0, "mapped", "problem", "in its temporary directory"),
        (0, 0, "private", "ok", "private"),
    ],
)
def test_shared_memory_against_the_arena(free, temporary, setting, level, words):
    infos = job(3, shared=(free, 16 * GIB), temporary=("/tmp", temporary, Mount("ext4")))
    check(check_shared(infos, Requirements({"n0": GIB}, {}), setting), level, words)
    check(check_shared(infos, None, setting), "ok", "known when the dataset is there")


def test_a_mapped_file_on_a_network_file_system_is_named():
    infos = job(3, shared=(0, 0), temporary=("/scratch", 9 * GIB, Mount("lustre")))
    check(
        check_shared(infos, Requirements({"n0": GIB}, {}), "auto"),
        "warning",
        "on lustre",
        "set TMPDIR to a disk of",
    )


def test_memory_against_the_plan():
    check(check_memory(job(3), Requirements({}, {"n0": GIB})), "ok", "34.4 GB on n0, about 1.1 GB needed")
    check(
        check_memory(job(3), Requirements({}, {"n0": 40 * GIB})),
        "problem",
        "need about 42.9 GB",
        "fewer ranks",
    )


@pytest.mark.parametrize(
    ("output", "level", "words"),
    [
        (OutputDirectory("/out", mount=Mount("nfs4")), "ok", "/out can be written to (nfs4)"),
        (OutputDirectory("/out", trouble="there is none", missing=True), "problem", "mkdir -p /out"),
        (OutputDirectory("/a; b", trouble="there is none", missing=True), "problem", "mkdir -p '/a; b'"),
        (
            OutputDirectory("/out", trouble="Read-only file system"),
            "problem",
            "Read-only file system -> choose another",
        ),
    ],
)
def test_output(output, level, words):
    check(check_output(job(3, output=output)), level, words)


def test_an_output_that_other_nodes_do_not_see():
    ranks = job(4, hosts=2)
    ranks[2] = replace(ranks[2], output=OutputDirectory("/out", trouble="there is none", missing=True))
    check(check_output(ranks), "warning", "not from n1", "that all nodes share")


@pytest.mark.parametrize(
    ("output", "environ", "level", "words"),
    [
        (OutputDirectory("/out"), {}, "ok", "can be locked"),
        (
            OutputDirectory("/out", lock="No locks available"),
            {},
            "problem",
            "export HDF5_USE_FILE_LOCKING=FALSE",
        ),
        (
            OutputDirectory("/out", lock="x"),
            {"HDF5_USE_FILE_LOCKING": "FALSE"},
            "warning",
            "one job per output",
        ),
        (
            OutputDirectory("/out", mount=Mount("lustre", frozenset(("rw", "localflock")))),
            {},
            "warning",
            "localflock",
        ),
        (OutputDirectory("/out", trouble="there is none"), {}, "ok", "not tried"),
    ],
)
def test_lock(output, environ, level, words):
    check(check_lock(job(3, output=output, environ=environ)), level, words)


@pytest.mark.parametrize(("free", "level"), [(1999, "problem"), (3999, "warning"), (4000, "ok")])
def test_a_log_of_1000_bytes_is_on_disk_twice_while_it_is_written(free, level):
    output = OutputDirectory("/out", free=free)
    check(
        check_space(job(3, output=output), Requirements({}, {}, {"log": 1000})),
        level,
        "2.0 kB needed",
        "log 1.0 kB",
    )


def test_dataset():
    check(check_dataset(job(2, dataset=("abc", "")), "fmnist"), "ok", "fmnist is there")
    gone = ("abc", "data.name = 'fmnist': not prepared in data; run once: hpcfl data prepare fmnist")
    check(check_dataset(job(2, dataset=gone), "fmnist"), "problem", "-> run once: hpcfl data prepare fmnist")
    ranks = job(2, hosts=2, dataset=("abc", ""))
    check(check_dataset([ranks[0], replace(ranks[1], dataset=gone)], "fmnist"), "problem", "(on n1)")
    other = replace(ranks[1], dataset=("xyz", ""))
    check(check_dataset([ranks[0], other], "fmnist"), "problem", "different configurations or data")


def test_summary():
    assert summary([check_launch(job(2))]) == "hpcfl doctor: all is well"
    warned, wrong = check_cores(job(99), 1), check_devices(job(2), "cuda")
    assert summary([warned, wrong, wrong]) == "hpcfl doctor: 2 problems, 1 warning"


@pytest.mark.parametrize(
    ("launcher", "environ", "free", "ranks"),
    [
        (HYDRA, {}, 29_999_999, 5),
        (HYDRA, {}, 30_000_000, 0),
        (HYDRA, {"MPI_LOCALNRANKS": "2"}, 12_000_000, 0),
        (SRUN, {"SLURM_STEP_TASKS_PER_NODE": "3(x2),1"}, 17_999_999, 3),
        (PRTE, {}, 0, 0),
        (replace(SRUN, size=1), {}, 0, 0),
    ],
)
def test_shared_memory_too_small_for_mpi_itself(launcher, environ, free, ranks):
    """Six megabytes for each rank of the node, unless it is Open MPI, which does without."""
    found = check_start(launcher, environ, free)
    assert bool(found) == bool(ranks)
    for finding in found:
        check(finding, "warning", f"for {ranks} ranks on this node", "--shm-size")
