"""Checks of the MPI library, the fabric, versions and stale segments, by made-up ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpcfl.comm.mpi_library import MpiLibrary
from hpcfl.doctor import mpi_checks
from hpcfl.doctor.mpi_checks import check_fabric, check_library, check_segments, check_versions
from hpcfl.doctor.shm_segments import Segment
from tests.helpers.doctor import OPEN_TEXT, check, job


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
    check(finding, "warning", "2 segments, 3.8 MiB", "on n0: rm /dev/shm/mpich_shm_1_0 /tmp/hpcfl-arena-x")
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
