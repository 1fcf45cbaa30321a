import os
import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

from hpcfl.errors import BadInput, Fatal
from hpcfl.log.reader import read_log
from hpcfl.log.schema import METRICS
from hpcfl.log.writer import MAX_WRITE_SHARE
from tests.helpers.logs import SIZES, new_log, row

SAVED, CHOSEN = (
    {
        metric.path: np.ones(tuple(SIZES[dim] for dim in metric.dims[1:]))
        for metric in METRICS
        if metric.dims[0] == first
    }
    for first in ("saved", "chosen")
)


def test_rows_come_back_as_they_went_in(tmp_path):
    log = new_log(tmp_path / "run.h5")
    empty = read_log(tmp_path / "run.h5")
    assert empty.rounds_done == 0
    assert empty["/client/loss"].shape == (0, 3)
    for t in range(3):
        log.append(row(t), SAVED if t == 1 else {}, CHOSEN if t < 2 else {})
    log.close("finished")
    run = read_log(tmp_path / "run.h5")
    assert (run.status, run.rounds_done) == ("finished", 3)
    for metric in METRICS:
        got = run[metric.path]
        assert (
            len(got) == {"round": 3, "saved": 1, "chosen": 2, "client": 3, "test_sample": 5}[metric.dims[0]]
        )
        if metric.dims[0] == "round":
            np.testing.assert_array_equal(got, np.stack([row(t)[metric.path] for t in range(3)]))
    assert run["/clients/architecture"].tolist() == ["net"] * 3
    assert [p.name for p in tmp_path.iterdir()] == ["run.h5"]


def test_every_dataset_says_its_kind_and_dimensions(tmp_path):
    new_log(tmp_path / "run.h5")
    with h5py.File(tmp_path / "run.h5") as file:
        for metric in METRICS:
            assert file[metric.path].attrs["kind"] == metric.kind
            assert file[metric.path].attrs["dims"] == " ".join(metric.dims)


def test_another_run_is_never_overwritten(tmp_path):
    (tmp_path / "run.h5").write_text("mine")
    with pytest.raises(BadInput, match=r"cannot write .*run.h5: File exists"):
        new_log(tmp_path / "run.h5")
    assert (tmp_path / "run.h5").read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["run.h5"]


def test_a_run_whose_name_another_took_ends_and_leaves_the_other_alone(tmp_path):
    first = new_log(tmp_path / "run.h5")
    first.next_write = 0
    first.append(row(0), {})
    second = new_log(tmp_path / "run.h5", backup=tmp_path / "run~1.h5")
    assert read_log(tmp_path / "run~1.h5").rounds_done == 1
    first.next_write = 0
    with pytest.raises(Fatal, match=r"run.h5 is another run's by now"):
        first.append(row(1), {})
    second.close("finished")
    assert read_log(tmp_path / "run.h5").status == "finished"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.h5", "run~1.h5"]


def test_a_foreign_file_with_the_inode_of_the_last_one_is_not_overwritten(tmp_path, monkeypatch):
    """Many file systems give the inode of a deleted file to the next one; here every file has the same."""
    log, stat = new_log(tmp_path / "run.h5"), os.stat

    def same_inode(*arguments, **options):
        status = stat(*arguments, **options)
        return os.stat_result([status[0], 7, *status[2:10]])

    monkeypatch.setattr(os, "stat", same_inode)
    log.write()
    new_log(tmp_path / "other.h5")
    os.replace(tmp_path / "other.h5", tmp_path / "run.h5")
    foreign = (tmp_path / "run.h5").read_bytes()
    with pytest.raises(Fatal, match=r"run.h5 is another run's by now"):
        log.write()
    assert (tmp_path / "run.h5").read_bytes() == foreign


def test_a_log_that_was_taken_away_is_written_again(tmp_path):
    log = new_log(tmp_path / "run.h5")
    (tmp_path / "run.h5").rename(tmp_path / "mine.h5")
    log.close("finished")
    assert read_log(tmp_path / "run.h5").status == "finished"


def test_what_is_kept_aside_never_overwrites(tmp_path):
    (tmp_path / "run.h5").write_text("old")
    (tmp_path / "run~1.h5").write_text("older")
    with pytest.raises(BadInput, match=r"cannot write .*run.h5: File exists"):
        new_log(tmp_path / "run.h5", backup=tmp_path / "run~1.h5")
    assert [(tmp_path / name).read_text() for name in ("run.h5", "run~1.h5")] == ["old", "older"]


def test_writing_is_throttled_to_its_share_of_the_time(tmp_path):
    """After s seconds of writing, a write of s waits until 2·s are its share; close writes the rest."""
    log = new_log(tmp_path / "run.h5")
    log.next_write = time.monotonic() + 100
    log.append(row(0), {})
    assert read_log(tmp_path / "run.h5").rounds_done == 0
    log.next_write, log.write_seconds = 0, 1.0
    before = time.monotonic()
    log.append(row(1), {})
    after = time.monotonic()
    assert read_log(tmp_path / "run.h5").rounds_done == 2
    took = log.write_seconds - 1.0
    assert 0 < took <= after - before
    assert log.next_write - log.start_time == pytest.approx((1 + 2 * took) / MAX_WRITE_SHARE)
    log.append(row(2), {})
    log.close("stopped")
    assert read_log(tmp_path / "run.h5").rounds_done == 3


def test_a_full_disk_leaves_the_last_good_file(tmp_path, monkeypatch):
    log = new_log(tmp_path / "run.h5")
    log.next_write = 0
    log.append(row(0), {})

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    log.next_write = 0
    with pytest.raises(Fatal, match="No space"):
        log.append(row(1), {})
    assert read_log(tmp_path / "run.h5").rounds_done == 1
    assert [p.name for p in tmp_path.iterdir()] == ["run.h5"]


WRITER = """
import sys
from pathlib import Path
from tests.helpers.logs import new_log, row
log = new_log(Path(sys.argv[1]))
print("ready", flush=True)
for t in range(10**6):
    log.next_write = 0
    log.append(row(t), {})
    if t > 200: log.rows = {path: [] for path in log.rows}; log.rounds_done = 0
"""


@pytest.mark.slow
def test_the_file_is_whole_after_a_kill_at_any_instant(tmp_path):
    for n in range(6):
        path = tmp_path / f"{n}.h5"
        command = [sys.executable, "-c", WRITER, str(path)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": "."}
        ) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            try:
                for _ in range(20):
                    read_log(path)  # a reader never meets half a file either
                time.sleep(0.011 * n)
            finally:
                writer.send_signal(signal.SIGKILL)
        run = read_log(path)
        assert run["/client/loss"].shape == (run.rounds_done, 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"", "not an HDF5 file"),
        (b"hello", "not an HDF5 file"),
        ("truncated", "not an HDF5 file, or a damaged one"),
        ("foreign", "not a log of hpcfl"),
        ("future", "has schema 99"),
        ("incomplete", "not a whole log"),
        ("bad config", "not a whole log"),
    ],
)
def test_what_is_no_log_is_bad_input(tmp_path, content, message):
    path = tmp_path / "run.h5"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "foreign":
        h5py.File(path, "w").close()
    elif content is not None:
        new_log(path)
        if content == "truncated":
            path.write_bytes(path.read_bytes()[:5000])
        else:
            with h5py.File(path, "a") as file:
                if content == "future":
                    file.attrs["schema"] = 99
                elif content == "incomplete":
                    del file["/round/loss"]
                else:
                    file.attrs["config"] = "seed = 'x'"
    with pytest.raises(BadInput, match=message):
        read_log(path)


def test_a_directory_is_no_log(tmp_path):
    with pytest.raises(BadInput, match="Is a directory"):
        read_log(tmp_path)
