"""What ranks find out, on this machine and on made-up ones."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hpcfl.config.loading import load_config
from hpcfl.doctor import disk, shm_segments
from hpcfl.doctor.disk import Mount, mount_of, probe_output
from hpcfl.doctor.rank_info import cpuset_cores
from hpcfl.doctor.requirements import observed_machine, requirements
from hpcfl.doctor.shm_segments import stale_segments
from hpcfl.federation.run_plan import plan_run
from hpcfl.log.size import expected_log_size
from tests.helpers.doctor import job


def test_a_trial_leaves_nothing_behind(tmp_path):
    output = probe_output(tmp_path / "run.h5")
    assert (output.trouble, output.lock, output.directory) == ("", "", str(tmp_path))
    assert output.free > 0
    assert list(tmp_path.iterdir()) == []


def test_for_a_directory_that_is_missing_the_nearest_one_is_tried(tmp_path):
    (tmp_path / "file").write_text("")
    output = probe_output(tmp_path / "none" / "deep" / "run.h5")
    assert (output.trouble, output.directory) == ("", str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert probe_output(tmp_path / "file" / "run.h5").trouble == "not a directory"
    assert "is a directory" in probe_output(tmp_path).trouble


def test_a_lock_or_a_write_that_fails_is_told_with_its_reason(tmp_path, monkeypatch):
    def fail(number):
        def failing(*_, **__):
            raise OSError(number, os.strerror(number))

        return failing

    monkeypatch.setattr(fcntl, "flock", fail(errno.ENOLCK))
    assert probe_output(tmp_path / "run.h5").lock == os.strerror(errno.ENOLCK)
    monkeypatch.setattr(disk.os, "fsync", fail(errno.EDQUOT))
    assert probe_output(tmp_path / "run.h5").trouble == os.strerror(errno.EDQUOT)
    monkeypatch.setattr(tempfile, "mkstemp", fail(errno.EROFS))
    assert probe_output(tmp_path / "run.h5").trouble == os.strerror(errno.EROFS)
    assert list(tmp_path.iterdir()) == []


def test_the_longest_mount_point_counts(tmp_path):
    table = tmp_path / "mounts"
    table.write_text(
        f"/dev/a / ext4 rw 0 0\nsrv:/x {tmp_path}/a\\040b nfs4 rw,nolock 0 0\n"
        f"broken\ntmp {tmp_path}/a tmpfs rw 0 0\n"
    )
    assert mount_of(tmp_path / "a b" / "c", table) == Mount("nfs4", frozenset(("rw", "nolock")))
    assert mount_of(tmp_path / "a b" / "c", table).is_remote
    assert mount_of(tmp_path / "ab", table).kind == "ext4"
    assert mount_of(tmp_path, tmp_path / "none") == Mount()


@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["federation.rounds=60", "federation.clients=30", "data.samples_per_class=400"],
        ["log.local_prototypes=true", "log.prototypes_every=2"],
        ["method.name=protonorm", "log.distances=true", "log.prototypes_every=1", "federation.rounds=3"],
    ],
)
def test_the_size_of_a_log_is_foreseen(hpcfl, settings):
    small = ["data.samples_per_class=200", *settings]
    assert hpcfl("train", *(f"--set={setting}" for setting in small), "--out", "run.h5").exit_code == 0
    assert 0.95 < expected_log_size(plan_run(load_config(None, small))) / Path("run.h5").stat().st_size < 1.05


def test_needs_are_those_of_each_host(monkeypatch, tmp_path):
    """Three of four workers are on the second host, so about three quarters of the arena are."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    plan = plan_run(load_config(None, ["partition.name=iid"]))
    one = requirements(plan, job(5))
    ranks = [replace(each, host=f"n{each.rank > 1:d}") for each in job(5)]
    two = requirements(plan, ranks)
    assert list(two.arena) == ["n0", "n1"]
    assert sum(two.arena.values()) == one.arena["n0"]
    assert two.arena["n1"] > 2 * two.arena["n0"] > 0
    assert observed_machine(ranks, "auto").node_of_rank == (0, 0, 1, 1, 1)
    assert observed_machine(ranks, "cuda").devices == 1  # asked for and missing: judged as if it were there


def test_the_cores_of_a_control_group_of_either_version(tmp_path):
    own = tmp_path / "cgroup"
    own.write_text("0::/job/step\n")
    (tmp_path / "job/step").mkdir(parents=True)
    (tmp_path / "job/step/cpuset.cpus.effective").write_text("0-3,8,10-11\n")
    assert cpuset_cores(tmp_path, own) == 7
    own.write_text("4:cpu,cpuset:/old\n")
    (tmp_path / "cpuset/old").mkdir(parents=True)
    (tmp_path / "cpuset/old/cpuset.cpus").write_text("5\n")
    assert cpuset_cores(tmp_path, own) == 1
    assert cpuset_cores(tmp_path, tmp_path / "none") == os.cpu_count()


def test_a_segment_is_stale_if_no_process_maps_it_nor_any_of_its_job(tmp_path):
    shared, temporary = tmp_path / "shm", tmp_path / "tmp"
    for directory, names in (
        (shared, ("mpich_shm_dead_0", "mpich_shm_live_0", "mpich_shm_live_1", "sm_segment.n.0.1.0", "other")),
        (temporary, ("hpcfl-arena-abc", "mpich_shm_elsewhere_0")),
    ):
        directory.mkdir()
        for name in names:
            (directory / name).write_bytes(bytes(mmap.PAGESIZE))
    later = time.time() + shm_segments.MIN_AGE + 1
    with open(shared / "mpich_shm_live_0", "r+b") as file, mmap.mmap(file.fileno(), 0):
        file.close()
        found = stale_segments(shared, temporary, now=later)
    assert [Path(each.path).name for each in found] == [
        "mpich_shm_dead_0",
        "sm_segment.n.0.1.0",
        "hpcfl-arena-abc",
    ]
    assert {each.nbytes for each in found} == {mmap.PAGESIZE}
    assert stale_segments(shared, temporary) == []  # younger ones may not be mapped yet
    assert stale_segments(tmp_path / "none", tmp_path / "none", now=later) == []
