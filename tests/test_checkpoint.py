"""Stopped, damaged and continued runs end bit for bit as undisturbed ones."""

from __future__ import annotations

import errno
import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from hpcfl import checkpoint, deadline, guard, lock, saver
from hpcfl.checkpoint import Damaged, Store, read_manifest
from hpcfl.data.prepared import open_prepared, verify
from hpcfl.deadline import Deadline, end_time
from hpcfl.errors import BadInput
from hpcfl.lock import RunLock
from hpcfl.log import writer
from hpcfl.log.reader import read
from tests.mpi.cases import KSHOT, OWN, prepare_images, results

SMALL = [
    *("data.samples_per_class=200", "federation.rounds=6", "models.features=8", "log.prototypes_every=2"),
    *("federation.participation=5", "runtime.checkpoint_rounds=1"),
]


@pytest.fixture
def train(hpcfl):
    """Returns `train(out, *settings)`: the result of the command."""
    return lambda out, *settings: hpcfl("train", "--out", out, *(f"--set={s}" for s in (*SMALL, *settings)))


@pytest.fixture
def in_haste(monkeypatch):
    """Lets a run end after `in_haste[0]` rounds, as a walltime does."""
    left = [1]
    monkeypatch.setattr(Deadline, "start", lambda self, give_up: None)

    def passed(self, seconds):
        left[0] -= 1
        return left[0] <= 0

    monkeypatch.setattr(Deadline, "passed", passed)
    return left


METHODS = {
    "fedproto": ["log.evaluate_every=2", "method.aggregate=weighted"],
    "protonorm": ["log.evaluate_every=3"],
    "fedtgp-sparse": [*OWN["fedtgp-sparse"], "train.momentum=0.5"],
    "anchor": ["method.prototypes=running"],
    "fedsap-ssl": [*KSHOT, "method.semi=2", "federation.participation=12"],
    "local": [],
}


@pytest.mark.parametrize("name", METHODS)
def test_stopped_after_every_round_and_continued(train, in_haste, name):
    settings = (f"method.name={name}", *METHODS[name])
    in_haste[0] = 1000
    assert train("whole.h5", *settings).exit_code == 0
    for rounds in range(1, 6):
        in_haste[0] = 1
        done = train("parts.h5", *settings)
        assert done.exit_code == 75, done.output
        assert f"the same command goes on after round {rounds}" in done.output
        assert read("parts.h5").rounds_done == rounds
        assert read("parts.h5").status == "stopped"
    in_haste[0] = 1000
    done = train("parts.h5", *settings)
    assert done.exit_code == 0
    assert "continues after round 5 of 6" in done.output
    got, want = results(Path("parts.h5")), results(Path("whole.h5"))
    assert [path for path in want if got[path] != want[path]] == []
    log = read("parts.h5")
    assert (log.status, log.attributes["restarts"]) == ("finished", 5)
    assert train("parts.h5", *settings).output == (
        "parts.h5 is finished: 6 rounds; --fresh keeps it aside and runs again\n"
    )


def stopped(train, in_haste, rounds: int = 4, *settings: str) -> Store:
    """Returns the checkpoints of a run that was stopped after some rounds."""
    in_haste[0] = rounds
    assert train("run.h5", *settings).exit_code == 75
    in_haste[0] = 1000
    return Store(Path("run.h5.ckpt"))


def test_the_last_two_are_kept_and_clients_that_did_not_change_refer_to_older_files(train, in_haste):
    store = stopped(train, in_haste)
    newest, older = (read_manifest(path) for path in store.manifests())
    assert newest.round == 3
    changed = np.any(read("run.h5")["/round/participants"][older.round + 1 :], axis=0).tolist()
    assert not all(changed)
    for i in range(20):
        assert (newest.clients[i] != older.clients[i]) == changed[i]
        assert (newest.clients[i].file.startswith("3-")) == changed[i]
        assert store.read(newest.clients[i]).nbytes == newest.clients[i].nbytes
    named = {piece.file for m in (newest, older) for piece in (*m.clients, m.server)}
    manifests = {f"manifest-{m.round}.json" for m in (newest, older)}
    assert {p.name for p in store.path.iterdir()} == named | manifests


DAMAGE = {
    "manifest truncated": lambda d: _cut(d / "manifest-3.json"),
    "manifest gone wrong": lambda d: (d / "manifest-3.json").write_text('{"format": 1}'),
    "manifest changed": lambda d: _swap(d / "manifest-3.json", b"nbytes", b"nbytez"),
    "vectors truncated": lambda d: _cut(next(d.glob("3-*.bin"))),
    "vectors flipped": lambda d: _flip(next(d.glob("3-*.bin"))),
    "vectors gone": lambda d: next(d.glob("3-*.bin")).unlink(),
    "server flipped": lambda d: _flip(next(d.glob("3-server*"))),
}


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def _flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 64
    path.write_bytes(bytes(raw))


def _swap(path: Path, old: bytes, new: bytes) -> None:
    path.write_bytes(path.read_bytes().replace(old, new))


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_falls_back_to_the_one_before(train, in_haste, damage):
    store = stopped(train, in_haste)
    train("whole.h5")
    before = read_manifest(store.manifests()[1]).round
    DAMAGE[damage](store.path)
    done = train("run.h5")
    assert done.exit_code == 0, done.output
    assert "a checkpoint cannot be used" in done.output
    assert f"continues after round {before + 1} of 6" in done.output
    assert read_manifest(store.manifests()[0]).round == 5
    assert results(Path("run.h5")) == results(Path("whole.h5"))


def test_without_any_usable_checkpoint_the_run_starts_again(train, in_haste):
    store = stopped(train, in_haste)
    train("whole.h5")
    shutil.rmtree(store.path)
    done = train("run.h5")
    assert done.exit_code == 0
    assert "no checkpoint can be used: the run starts again" in done.output
    assert results(Path("run.h5")) == results(Path("whole.h5"))


def test_a_checkpoint_of_another_run_is_not_loaded(train, in_haste):
    store = stopped(train, in_haste)
    train("other.h5", "seed=3")
    shutil.rmtree(store.path)
    shutil.copytree("other.h5.ckpt", store.path)
    done = train("run.h5")
    assert "belongs to another run" in done.output
    assert "the run starts again" in done.output


def test_more_rounds_extend_a_finished_run(train, in_haste):
    in_haste[0] = 1000
    settings = ("method.name=fedtgp", "method.server_epochs=2")
    train("whole.h5", *settings, "federation.rounds=9")
    train("run.h5", *settings)
    done = train("run.h5", *settings, "federation.rounds=9")
    assert done.exit_code == 0, done.output
    assert "continues after round 6 of 9" in done.output
    assert results(Path("run.h5")) == results(Path("whole.h5"))
    fewer = train("run.h5", *settings, "federation.rounds=4")
    assert fewer.exit_code == 2
    assert "federation.rounds = 4: run.h5 has 9 rounds already" in fewer.output


def test_a_last_round_that_was_evaluated_out_of_turn_cannot_be_extended(train):
    train("run.h5", "log.evaluate_every=4")
    done = train("run.h5", "log.evaluate_every=4", "federation.rounds=9")
    assert done.exit_code == 2
    assert "ended with round 6, which was evaluated out of turn (log.evaluate_every = 4)" in done.output


def test_another_configuration_is_refused_with_the_difference(train, in_haste):
    stopped(train, in_haste)
    done = train("run.h5", "train.lr=0.02")
    assert done.exit_code == 2
    assert "run.h5 is a run of another configuration (train.lr = 0.01 there, 0.02 here)" in done.output
    assert train("run.h5", "runtime.checkpoint_minutes=3", "runtime.walltime_minutes=off").exit_code == 0


def test_fresh_keeps_log_and_checkpoints_aside(train, in_haste, hpcfl):
    stopped(train, in_haste)
    done = hpcfl("train", "--out", "run.h5", "--fresh", *(f"--set={s}" for s in SMALL))
    assert done.exit_code == 0
    assert read("run.1.h5").status == "stopped"
    assert Path("run.1.h5.ckpt", "manifest-3.json").exists()
    assert Path("run.h5.ckpt", "manifest-5.json").exists()


# --- bad days


def test_a_full_disk_stops_the_run_and_keeps_the_last_good_state(train, in_haste):
    """While saving: files of later rounds cannot be written; one sentence, and the run goes on later."""
    in_haste[0] = 1000
    train("whole.h5")
    original = checkpoint.Store.write_arrays

    def full(self, name, values):
        if int(name.split("-")[0]) >= 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(self, name, values)

    with pytest.MonkeyPatch.context() as patch, _ended() as ended:
        patch.setattr(checkpoint.Store, "write_arrays", full)
        train("run.h5")
    assert ended == [1]
    kept = read_manifest(Store(Path("run.h5.ckpt")).manifests()[0]).round
    assert kept < 3
    done = train("run.h5")
    assert f"continues after round {kept + 1} of 6" in done.output
    assert results(Path("run.h5")) == results(Path("whole.h5"))


class _ended(list):
    """Catches the end of all ranks: a process that runs alone ends itself."""

    def __enter__(self):
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(guard.os, "_exit", self.leave)
        self.patch.setattr("hpcfl.comm.solo.Solo.abort", lambda link, code: None)
        return self

    def leave(self, code):
        self.append(code)
        raise KeyboardInterrupt

    def __exit__(self, kind, value, trace):
        self.patch.undo()
        return kind is KeyboardInterrupt


def test_a_full_disk_while_logging(train, in_haste):
    in_haste[0] = 1000
    writes = [0]
    original = writer.Log._write

    def full(self):
        writes[0] += 1
        if writes[0] == 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        original(self)

    with pytest.MonkeyPatch.context() as patch, _ended() as ended:
        patch.setattr(writer.Log, "_write", full)
        train("run.h5")
    assert ended == [1]
    assert read("run.h5").rounds_done >= 1, "what was written before is whole"
    assert train("run.h5").exit_code == 0


def test_vectors_that_do_not_reach_the_disk_end_the_run(tmp_path, monkeypatch):
    kept = saver.Saver(tmp_path, 1, "ab", lambda i: torch.full((4,), i, dtype=torch.uint8))
    kept.note([3])
    kept.open(0)

    def broken(handle):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(saver.os, "fsync", broken)
    kept.rest([3], [])
    with pytest.raises(saver.Fatal, match="Input/output error; what was saved before is kept"):
        kept.take(wait=True)


def test_a_vector_is_saved_as_it_was_before_the_client_changed(tmp_path):
    vectors = {i: torch.full((4,), i, dtype=torch.uint8) for i in range(4)}
    kept = saver.Saver(tmp_path, 1, "ab", vectors.__getitem__)
    kept.note([1, 2, 3])
    kept.open(7)
    kept.note([1])
    kept.before(1)
    vectors[1].fill_(99)
    kept.before(1)  # only once
    kept.rest([0, 1, 2], chosen=[1])  # client 3 is another rank's share
    saved = {entry.client: entry for entry in kept.take(wait=True)}
    assert saved.keys() == {1, 2}
    raw = (tmp_path / "7-1-ab.bin").read_bytes()
    assert raw[saved[1].at :][:4] == bytes([1] * 4)
    assert raw[saved[2].at :][:4] == bytes([2] * 4)
    kept.open(8)
    assert kept.pending == {1}


def test_two_jobs_cannot_write_one_log_and_a_dead_owner_does_not_block(train, tmp_path, monkeypatch):
    held = (
        "import sys, time; from pathlib import Path; from hpcfl.lock import RunLock; "
        "lock = RunLock(Path('run.h5')); lock.take(); print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", held], stdout=subprocess.PIPE, cwd=Path.cwd()) as other:
        assert other.stdout is not None
        other.stdout.readline()
        done = train("run.h5")
        assert done.exit_code == 2
        assert f"run.h5.lock is held by process {other.pid} on " in done.output
        assert not Path("run.h5").exists()
        other.kill()
        other.wait()
    assert train("run.h5").exit_code == 0
    assert not Path("run.h5.lock").exists()


def test_a_job_that_was_started_again_waits_for_a_lock(tmp_path, monkeypatch):
    first, second = RunLock(tmp_path / "run.h5"), RunLock(tmp_path / "run.h5")
    first.take()
    naps: list[float] = []

    def nap(seconds):
        naps.append(seconds)
        if len(naps) == 3:
            first.release()

    monkeypatch.setattr(lock.time, "sleep", nap)
    with pytest.raises(BadInput, match="two jobs cannot write one log"):
        second.take()
    assert naps == []
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    second.take()
    assert len(naps) == 3
    second.release()


# --- walltime


def test_when_a_job_ends():
    assert end_time("auto", {}) is None
    assert end_time("auto", {"SLURM_JOB_END_TIME": "1700000000"}) == 1_700_000_000
    assert end_time("auto", {"SLURM_JOB_END_TIME": "soon"}) is None
    assert end_time("off", {"SLURM_JOB_END_TIME": "1700000000"}) is None
    assert end_time(2.0) == pytest.approx(time.time() + 120, abs=5)


def test_a_round_that_would_not_end_in_time_is_not_begun():
    """With 100 s left rounds of 60 s do not fit (half as long again, and 20 s to save), of 40 s they do."""
    left = Deadline(time.time() + 100)
    assert not left.passed(40)
    assert left.passed(60)
    assert left.passed(1), "the longest round so far counts"
    assert not Deadline(None).passed(1e9)


def test_the_clock_may_jump(monkeypatch):
    left = Deadline(time.time() + 100)
    monkeypatch.setattr(deadline.time, "time", lambda: 4e9)
    assert not left.passed(1)


def test_a_round_that_cannot_end_is_given_up(tmp_path):
    """Five seconds before the end: code 75 at once; at most the rounds since the last checkpoint are lost."""
    command = [sys.executable, "-m", "hpcfl", "train", "--out", str(tmp_path / "run.h5")]
    settings = ("federation.rounds=1", "train.epochs=1000000", "runtime.walltime_minutes=0.15")
    done = subprocess.run(
        [*command, *(f"--set={s}" for s in settings)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 75, done.stderr
    assert "no time left to end round 1 of 1; the same command continues" in done.stderr


# --- whatever is in the files, nothing crashes and nothing in them is run


def mutated(raw: bytes, rng: random.Random) -> bytes:
    """Returns the bytes cut, with some of them changed, repeated or left out."""
    data = bytearray(raw)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(data)) if data else 0
        match rng.randrange(5):
            case 0:
                del data[at:]
            case 1 if data:
                data[at] ^= 1 << rng.randrange(8)
            case 2:
                del data[at : at + rng.randint(1, 40)]
            case 3:
                data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 40)))
            case _:
                data[at:at] = data[at : at + 100]
    return bytes(data)


def test_a_few_hundred_mutated_files(train, in_haste, tmp_path):
    store = stopped(train, in_haste)
    prepare_images(tmp_path)
    manifest = read_manifest(store.manifests()[0])
    rng = random.Random(0)
    vectors, server = store.path / manifest.clients[0].file, store.path / manifest.server.file
    readers = {
        store.manifests()[0]: lambda path: read_manifest(path),
        vectors: lambda path: [store.read(p) for p in manifest.clients if p.file == path.name],
        server: lambda path: store.read_arrays(manifest.server),
        Path("run.h5"): lambda path: read(path),
        tmp_path / "tiny.h5": lambda path: verify(open_prepared(path)),
    }
    refused = 0
    for path, reader in readers.items():
        raw = path.read_bytes()
        for _ in range(80):
            path.write_bytes(mutated(raw, rng))
            try:
                reader(path)
            except (Damaged, BadInput):
                refused += 1
        path.write_bytes(raw)
    assert refused > 250


def test_a_manifest_that_points_elsewhere_is_damaged(train, in_haste):
    store = stopped(train, in_haste)
    (path, _) = store.manifests()
    outer = json.loads(path.read_text())
    for bad in ("../../etc/passwd", "/etc/passwd", "3-1-ab.bin/../x", 7, None):
        inner = json.loads(outer["manifest"])
        inner["clients"][0]["file"] = bad
        body = json.dumps(inner)
        path.write_text(
            json.dumps({"format": 1, "digest": checkpoint.digest(body.encode()), "manifest": body})
        )
        with pytest.raises(Damaged):
            read_manifest(path)


def test_pickled_objects_are_never_loaded(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, ("ran", "w"))

    store = Store(tmp_path)
    np.savez(tmp_path / "1-server-ab.npz", evil=np.array([Evil()], dtype=object))
    raw = (tmp_path / "1-server-ab.npz").read_bytes()
    piece = checkpoint.Piece("1-server-ab.npz", 0, len(raw), checkpoint.digest(raw))
    with pytest.raises(Damaged, match=r"not an .npz of plain arrays"):
        store.read_arrays(piece)
    assert not Path("ran").exists()


def test_arrays_of_another_shape_are_damaged(train, in_haste):
    store = stopped(train, in_haste)
    (path, _) = store.manifests()
    manifest = read_manifest(path)
    arrays = store.read_arrays(manifest.server)
    piece = store.write_arrays("3-server-cd.npz", arrays | {"present": np.zeros(3, dtype=bool)})
    store.write(checkpoint.Manifest(3, manifest.identity, manifest.channels_last, manifest.clients, piece))
    done = train("run.h5")
    assert done.exit_code == 0
    assert "the server's present is not that of this run" in done.output
