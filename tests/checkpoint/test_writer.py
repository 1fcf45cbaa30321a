"""Full disks and clients that change meanwhile: the last good state is kept."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch

from hpcfl.checkpoint import store
from hpcfl.checkpoint import writer as checkpoint_writer
from hpcfl.checkpoint.store import CheckpointStore, read_manifest
from hpcfl.log import writer as log_writer
from hpcfl.log.reader import read_log
from hpcfl.runtime import exit_handling
from tests.helpers.runs import assert_equal_runs


def test_a_full_disk_stops_the_run_and_keeps_the_last_good_state(train, stop_after):
    """While saving: files of later rounds cannot be written; one sentence, and the run goes on later."""
    stop_after[0] = 1000
    train("whole.h5")
    original = store.CheckpointStore.write_arrays

    def full(self, name, values):
        if int(name.split("-")[0]) >= 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(self, name, values)

    with pytest.MonkeyPatch.context() as patch, _ended() as ended:
        patch.setattr(store.CheckpointStore, "write_arrays", full)
        train("run.h5")
    assert ended == [1]
    kept = read_manifest(CheckpointStore(Path("run.h5.ckpt")).manifests()[0]).round
    assert kept < 3
    done = train("run.h5")
    assert f"continues after round {kept + 1} of 6" in done.output
    assert_equal_runs("run.h5", "whole.h5")


class _ended(list):
    """Catches the end of all ranks: a process that runs alone ends itself."""

    def __enter__(self):
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(exit_handling.os, "_exit", self.leave)
        self.patch.setattr("hpcfl.comm.serial.SerialCommunicator.abort", lambda link, code: None)
        return self

    def leave(self, code):
        self.append(code)
        raise KeyboardInterrupt

    def __exit__(self, kind, value, trace):
        self.patch.undo()
        return kind is KeyboardInterrupt


def test_a_full_disk_while_logging(train, stop_after):
    stop_after[0] = 1000
    writes = [0]
    original = log_writer.LogWriter._write

    def full(self):
        writes[0] += 1
        if writes[0] == 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        original(self)

    with pytest.MonkeyPatch.context() as patch, _ended() as ended:
        patch.setattr(log_writer.LogWriter, "_write", full)
        train("run.h5")
    assert ended == [1]
    assert read_log("run.h5").rounds_done >= 1, "what was written before is whole"
    assert train("run.h5").exit_code == 0


def test_vectors_that_do_not_reach_the_disk_end_the_run(tmp_path, monkeypatch):
    kept = checkpoint_writer.CheckpointWriter(
        tmp_path, 1, "ab", lambda i: torch.full((4,), i, dtype=torch.uint8)
    )
    kept.mark_changed([3])
    kept.begin(0)

    def broken(handle):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(checkpoint_writer.os, "fsync", broken)
    kept.save_rest([3], [])
    with pytest.raises(checkpoint_writer.Fatal, match="Input/output error; what was saved before is kept"):
        kept.pop_saved(wait=True)


def test_a_vector_is_saved_as_it_was_before_the_client_changed(tmp_path):
    vectors = {i: torch.full((4,), i, dtype=torch.uint8) for i in range(4)}
    kept = checkpoint_writer.CheckpointWriter(tmp_path, 1, "ab", vectors.__getitem__)
    kept.mark_changed([1, 2, 3])
    kept.begin(7)
    kept.mark_changed([1])
    kept.save_before_change(1)
    vectors[1].fill_(99)
    kept.save_before_change(1)  # only once
    kept.save_rest([0, 1, 2], participants=[1])  # client 3 is another rank's share
    saved = {entry.client: entry for entry in kept.pop_saved(wait=True)}
    assert saved.keys() == {1, 2}
    raw = (tmp_path / "7-1-ab.bin").read_bytes()
    assert raw[saved[1].at :][:4] == bytes([1] * 4)
    assert raw[saved[2].at :][:4] == bytes([2] * 4)
    kept.begin(8)
    assert kept.pending == {1}
