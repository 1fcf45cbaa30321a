"""Checkpoints keep to their share of the disk, at any time, and change nothing of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from hpcfl.algorithms.initial_network import initial_network
from hpcfl.checkpoint.compaction import clients_to_save_again
from hpcfl.checkpoint.store import CheckpointStore, FileRange, read_manifest
from hpcfl.checkpoint.writer import CheckpointWriter
from hpcfl.config.loading import load_config
from hpcfl.export.saved_clients import SavedClients
from hpcfl.federation.run_plan import plan_run
from hpcfl.log.reader import read_log
from tests.helpers.runs import assert_equal_runs, options

FEW = ("federation.participation=3", "federation.rounds=40", "log.evaluate_every=10")
"""Three of 20 clients a round, and a checkpoint after every second: one lasts into the next round."""


def ranges(*files: str) -> list[FileRange | None]:
    return [FileRange(name, 0, 10, "") if name else None for name in files]


@pytest.mark.parametrize(
    ("most", "again"), [(90, set()), (89, {0}), (70, {0}), (69, {0, 1, 2}), (60, {0, 1, 2})]
)
def test_files_that_are_mostly_out_of_date_are_left_first(most, again):
    """Of `a` one state of three is needed, of `b` two of three; client 5 changes, client 6 is not saved."""
    clients = ranges("a", "b", "b", "c", "c", "a", "")
    sizes = {"a": 30, "b": 30, "c": 20}
    assert clients_to_save_again(clients, sizes, {5}, [10] * 7, most) == again


def test_a_file_that_is_needed_whole_is_not_left():
    assert clients_to_save_again(ranges("a", "a", "b"), {"a": 20, "b": 10}, set(), [10] * 3, 30) == set()


def test_the_bound_holds_for_any_participation():
    """Simulated: 60 checkpoints, of 1 to 30 of 30 clients of very different sizes."""
    rng = np.random.default_rng(0)
    size_M = rng.choice([1, 2, 50, 400], 30).tolist()
    for factor in (2.0, 2.5, 4.0):
        clients: list[FileRange | None] = [None] * 30
        sizes: dict[str, int] = {}
        before: set[str] = set()
        for number in range(60):
            changed = set(rng.choice(30, rng.integers(1, 31), replace=False).tolist())
            most = (factor - 1) * sum(size_M)
            saved = changed | clients_to_save_again(clients, sizes, changed, size_M, most)
            for i in saved:
                clients[i] = FileRange(str(number), 0, size_M[i], "")
            sizes[str(number)] = sum(size_M[i] for i in saved)
            used = {range_.file for range_ in clients if range_}
            assert sum(sizes[name] for name in used) <= most
            assert sum(sizes[name] for name in used | before) <= factor * sum(size_M)
            before = used


@pytest.fixture(autouse=True)
def _prompt(monkeypatch) -> None:
    """Completes every checkpoint in the round after it, however slow the disk is."""
    pop = CheckpointWriter.pop_saved
    monkeypatch.setattr(CheckpointWriter, "pop_saved", lambda self, wait=False: pop(self, wait=True))


@pytest.fixture
def on_disk(monkeypatch) -> list[int]:
    """Fills with the bytes of all files of client states after every checkpoint."""
    found: list[int] = []
    write = CheckpointStore.write

    def measured(self, manifest):
        write(self, manifest)
        found.append(sum(path.stat().st_size for path in self.path.glob("*.bin")))

    monkeypatch.setattr(CheckpointStore, "write", measured)
    return found


def test_many_rounds_of_few_participants(train, stop_after, on_disk):
    """All clients together: what a run of everybody saves at its end."""
    stop_after[0] = 1000
    train("all.h5", "federation.participation=1.0", "federation.rounds=1", "runtime.checkpoint_rounds=0")
    whole = on_disk.pop()
    train("free.h5", *FEW, "runtime.checkpoint_disk=1000")
    free = on_disk.copy()
    assert max(free) > 2.5 * whole, "what is to be bounded would be more"
    on_disk.clear()
    train("run.h5", *FEW)
    assert len(on_disk) == len(free) == 21
    assert on_disk[0] < whole / 2, "clients that were never trained are not saved"
    assert max(on_disk) <= 2.5 * whole
    assert_equal_runs("run.h5", "free.h5")
    on_disk.clear()
    train("full.h5", *FEW, "runtime.checkpoint_disk=2")
    assert max(on_disk) <= 2 * whole


@pytest.mark.parametrize("instant", ["before the manifest", "before old files are removed"])
def test_killed_in_a_checkpoint_that_saves_clients_again(train, stop_after, monkeypatch, instant):
    stop_after[0] = 1000
    settings = (*FEW, "runtime.checkpoint_disk=2")
    train("whole.h5", *settings)
    write, remove, left = CheckpointStore.write, CheckpointStore.remove_unused, [15]

    def killed(self, manifest):
        left[0] -= 1
        if not left[0] and instant == "before the manifest":
            raise KeyboardInterrupt
        write(self, manifest)

    def unremoved(self, upto=None):
        if not left[0]:
            raise KeyboardInterrupt
        remove(self, upto)

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointStore, "write", killed)
        patch.setattr(CheckpointStore, "remove_unused", unremoved)
        patch.setattr("hpcfl.runtime.exit_handling.os._exit", lambda code: None)
        train("run.h5", *settings)
    saved = 27 if instant == "before the manifest" else 29
    store = CheckpointStore(Path("run.h5.ckpt"))
    newest = read_manifest(store.manifests()[0])
    assert newest.round == saved - 1
    assert len({range_.file for range_ in newest.clients if range_}) == 1, "all were saved again"
    done = train("run.h5", *settings)
    assert f"continues after round {saved} of 40" in done.output
    assert_equal_runs("run.h5", "whole.h5")
    unused = {path.name for path in store.path.glob("*.bin")}
    for path in store.manifests():
        unused -= read_manifest(path).files
    assert not unused


def test_pretrained_clients_are_saved_before_they_are_trained(train, stop_after, monkeypatch):
    """Their weights are read from a file, which may be gone when the run is continued."""
    monkeypatch.setattr("hpcfl.engine.assemble.read_pretrained", lambda *given: {"mlp": {}})
    stop_after[0] = 1
    train("run.h5", "federation.participation=1")
    assert all(read_manifest(CheckpointStore(Path("run.h5.ckpt")).manifests()[0]).clients)


def test_a_client_that_was_never_trained_is_exported_as_it_starts(hpcfl, train, stop_after):
    """One round of one client: the others are those of the same run before it."""
    stop_after[0] = 1000
    train("run.h5", "federation.participation=1", "federation.rounds=1")
    trained = int(np.flatnonzero(read_log("run.h5")["/round/participants"][0])[0])
    other = (trained + 1) % 20
    assert read_manifest(CheckpointStore(Path("run.h5.ckpt")).manifests()[0]).clients[other] is None
    run = read_log("run.h5")
    network = SavedClients(run).client(other).network()
    start = initial_network(plan_run(run.config), other)
    for name, value in start.state_dict().items():
        torch.testing.assert_close(network.state_dict()[name], value, rtol=0, atol=0)


def test_the_bound_belongs_to_a_run_not_to_what_it_is(train, stop_after):
    stop_after[0] = 3
    train("run.h5")
    stop_after[0] = 1000
    done = train("run.h5", "runtime.checkpoint_disk=7")
    assert "continues after round 3 of 6" in done.output


def test_too_little_disk_is_refused(hpcfl):
    done = hpcfl("train", *options("runtime.checkpoint_disk=1.5"))
    assert done.exit_code == 2
    assert "runtime.checkpoint_disk = 1.5" in done.output
    assert load_config(None, ["runtime.checkpoint_disk=2"]).runtime.checkpoint_disk == 2
