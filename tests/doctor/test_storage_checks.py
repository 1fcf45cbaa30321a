"""Checks of shared memory, memory, disk, locks and data, by made-up ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpcfl.doctor.disk import Mount, OutputDirectory
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
from tests.helpers.doctor import GIB, check, job


@pytest.mark.parametrize(
    ("free", "temporary", "setting", "level", "words"),
    [
        (8 * GIB, GIB, "auto", "ok", "the arena needs 1.00 GiB and leaves 16.0 MiB to others: shared"),
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
    check(check_memory(job(3), Requirements({}, {"n0": GIB})), "ok", "32.00 GiB on n0, about 1.00 GiB needed")
    check(
        check_memory(job(3), Requirements({}, {"n0": 40 * GIB})),
        "problem",
        "need about 40.00 GiB",
        "fewer ranks",
    )


@pytest.mark.parametrize(
    ("output", "level", "words"),
    [
        (OutputDirectory("/out", mount=Mount("nfs4")), "ok", "/out can be written to (nfs4)"),
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
    ranks[2] = replace(ranks[2], output=OutputDirectory("/"))
    check(check_output(ranks), "warning", "not from n1", "that all nodes share")


@pytest.mark.parametrize(
    ("output", "environ", "level", "words"),
    [
        (OutputDirectory("/out"), {}, "ok", "can be locked"),
        (OutputDirectory("/out", held="a.h5.lock"), {}, "problem", "a.h5.lock is held: another job writes"),
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
