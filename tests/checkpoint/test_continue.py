"""Runs that were stopped end bit for bit as undisturbed ones."""

from __future__ import annotations

import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from hpcfl.checkpoint.store import read_manifest
from hpcfl.engine import assemble
from hpcfl.log.reader import read_log
from hpcfl.methods.baselines import BASELINES
from tests.helpers.cases import KSHOT, ONE_NETWORK, OWN
from tests.helpers.runs import CHECKPOINTS, assert_equal_runs, options, stop_early

METHODS = {
    "fedproto": ["log.evaluate_every=2", "method.aggregate=weighted"],
    "protonorm": ["log.evaluate_every=3"],
    "fedtgp-sparse": [*OWN["fedtgp-sparse"], "train.momentum=0.5"],
    "anchor": ["method.prototypes=running"],
    "fedsap-ssl": [*KSHOT, "method.semi=2", "federation.participation=12"],
    "local": [],
    "tests.helpers.toy_algorithm:Unlucky": ["federation.participation=12", *ONE_NETWORK],
    **{
        name: ["log.evaluate_every=2", "federation.participation=2", *OWN.get(name, [])] for name in BASELINES
    },
}


@pytest.mark.parametrize("name", METHODS)
def test_stopped_after_every_round_and_continued(train, stop_after, name):
    settings = (f"method.name={name}", *METHODS[name])
    stop_after[0] = 1000
    assert train("whole.h5", *settings).exit_code == 0
    for rounds in range(1, 6):
        stop_after[0] = 1
        done = train("parts.h5", *settings)
        assert done.exit_code == 75, done.output
        assert f"the same command goes on after round {rounds}" in done.output
        assert read_log("parts.h5").rounds_done == rounds
        assert read_log("parts.h5").status == "stopped"
    stop_after[0] = 1000
    done = train("parts.h5", *settings)
    assert done.exit_code == 0
    assert "continues after round 5 of 6" in done.output
    assert_equal_runs("parts.h5", "whole.h5")
    log = read_log("parts.h5")
    assert (log.status, log.attributes["restarts"]) == ("finished", 5)
    assert train("parts.h5", *settings).output == (
        "parts.h5 is finished: 6 rounds; --fresh keeps it aside and runs again\n"
    )


@pytest.mark.parametrize("foreign", ["text", "log", "deleted", "older log"])
def test_a_file_put_there_before_the_first_write_is_not_overwritten(train, stop_after, monkeypatch, foreign):
    """The log that is continued was read long before; a log of an older version has no id."""
    stop_early(train, stop_after)
    if foreign == "older log":
        with h5py.File("run.h5", "r+") as file:
            del file.attrs["run_id"]
    create, log = assemble.create_log, Path("run.h5")

    def replace_first(*arguments):
        log.rename("mine.h5")
        if foreign == "text":
            log.write_text("of another user")
        elif foreign == "log":
            shutil.copy("mine.h5", log)
            with h5py.File(log, "r+") as file:
                file.attrs["run_id"] = "0" * 32
        elif foreign == "older log":
            shutil.copy("mine.h5", log)
        return create(*arguments)

    monkeypatch.setattr(assemble, "create_log", replace_first)
    stop_after[0] = 1000
    done = train("run.h5", *CHECKPOINTS)
    if foreign in ("deleted", "older log"):
        assert done.exit_code == 0, done.output
        return
    assert (done.exit_code, "run.h5 is another run's by now" in done.output) == (1, True), done.output
    if foreign == "text":
        assert log.read_text() == "of another user"
    else:
        assert read_log(log).attributes["run_id"] == "0" * 32
    assert not list(Path().glob("*.part"))


def test_the_last_two_are_kept_and_clients_that_did_not_change_refer_to_older_files(train, stop_after):
    store = stop_early(train, stop_after)
    newest, older = (read_manifest(path) for path in store.manifests())
    assert newest.round == 3
    participants = read_log("run.h5")["/round/participants"]
    changed = np.any(participants[older.round + 1 :], axis=0).tolist()
    trained = np.any(participants, axis=0).tolist()
    assert not all(changed)
    assert not all(trained)
    for i in range(20):
        assert (newest.clients[i] != older.clients[i]) == changed[i]
        saved = newest.clients[i]
        assert (saved is not None) == trained[i]
        if saved:
            assert (saved.file.startswith("3-")) == changed[i]
            assert store.read(saved).nbytes == saved.nbytes
    named = newest.files | older.files
    manifests = {f"manifest-{m.round}.json" for m in (newest, older)}
    assert {p.name for p in store.path.iterdir()} == named | manifests


def test_a_rank_that_trains_all_that_it_must_save_completes_its_checkpoints(train, stop_after):
    """One rank in its pool and everybody in every round: nothing is left to save when the work is done."""
    everybody = "federation.participation=1.0"
    store = stop_early(train, stop_after, 4, everybody)
    manifests = [read_manifest(path) for path in store.manifests()]
    assert (len(manifests), manifests[0].round) == (2, 3)
    for manifest in manifests:
        assert len([store.read(piece) for piece in manifest.clients if piece]) == 20
    done = train("run.h5", everybody)
    assert "continues after round 4 of 6" in done.output
    train("whole.h5", everybody)
    assert_equal_runs("run.h5", "whole.h5")


def test_more_rounds_extend_a_finished_run(train, stop_after):
    """Round 6 was saved only because it was the last."""
    stop_after[0] = 1000
    settings = ("method.name=fedtgp", "method.server_epochs=2", "log.prototypes_every=4")
    train("whole.h5", *settings, "federation.rounds=9")
    train("run.h5", *settings)
    done = train("run.h5", *settings, "federation.rounds=9")
    assert done.exit_code == 0, done.output
    assert "continues after round 6 of 9" in done.output
    assert_equal_runs("run.h5", "whole.h5")
    fewer = train("run.h5", *settings, "federation.rounds=4")
    assert fewer.exit_code == 2
    assert "federation.rounds = 4: run.h5 has 9 rounds already" in fewer.output


def test_a_last_round_that_was_evaluated_out_of_turn_cannot_be_extended(train):
    train("run.h5", "log.evaluate_every=4")
    done = train("run.h5", "log.evaluate_every=4", "federation.rounds=9")
    assert done.exit_code == 2
    assert "ended with round 6, which was evaluated out of turn (log.evaluate_every = 4)" in done.output


def test_another_configuration_is_refused_with_the_difference(train, stop_after):
    stop_early(train, stop_after)
    done = train("run.h5", "train.lr=0.02")
    assert done.exit_code == 2
    assert "run.h5 is a run of another configuration (train.lr = 0.01 there, 0.02 here)" in done.output
    assert train("run.h5", "runtime.checkpoint_minutes=3", "runtime.walltime_minutes=off").exit_code == 0


def test_fresh_keeps_log_and_checkpoints_aside(train, stop_after, hpcfl):
    stop_early(train, stop_after)
    done = hpcfl("train", "--out", "run.h5", "--fresh", *options(*CHECKPOINTS))
    assert done.exit_code == 0
    assert read_log("run~1.h5").status == "stopped"
    assert Path("run~1.h5.ckpt", "manifest-3.json").exists()
    assert Path("run.h5.ckpt", "manifest-5.json").exists()


def test_fresh_takes_a_number_that_is_free_for_both(train, stop_after, hpcfl):
    """The checkpoints of a log kept aside before are still there, the log itself was deleted."""
    stop_early(train, stop_after)
    Path("run~1.h5.ckpt").mkdir()
    Path("run~1.h5.ckpt", "manifest-9.json").touch()
    done = hpcfl("train", "--out", "run.h5", "--fresh", *options(*CHECKPOINTS))
    assert done.exit_code == 0, done.output
    assert read_log("run~2.h5").status == "stopped"
    assert Path("run~2.h5.ckpt", "manifest-3.json").exists()
    assert [path.name for path in Path("run~1.h5.ckpt").iterdir()] == ["manifest-9.json"]
    assert not Path("run~1.h5").exists()


def test_checkpoints_that_are_a_link_are_refused(train):
    """What lies there may have the names of checkpoints and be somebody else's."""
    Path("mine").mkdir()
    for name in ("0-1-abcd.bin", "thesis.part", "manifest-7.json"):
        Path("mine", name).touch()
    Path("run.h5.ckpt").symlink_to("mine")
    done = train("run.h5")
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert "run.h5.ckpt: it is a symbolic link" in done.output
    assert len(list(Path("mine").iterdir())) == 3
    assert sorted(path.name for path in Path().iterdir()) == ["mine", "run.h5.ckpt"]


@pytest.mark.parametrize(("every", "said"), [(1, "continues after round "), (1000, "starts again")])
def test_a_run_that_is_killed_after_its_last_checkpoint_ends(train, stop_after, monkeypatch, every, said):
    stop_after[0] = 1000
    settings = (f"runtime.checkpoint_rounds={every}", "federation.rounds=5")
    train("whole.h5", *settings)

    def killed(self, status):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("hpcfl.log.writer.LogWriter.close", killed)
        patch.setattr("hpcfl.runtime.exit_handling.os._exit", lambda code: None)
        train("run.h5", *settings)
    assert (read_log("run.h5").status, read_log("run.h5").rounds_done) == ("running", 5)
    assert Path("run.h5.ckpt", "manifest-4.json").exists()
    done = train("run.h5", *settings)
    assert done.exit_code == 0, done.output
    assert said in done.output
    assert read_log("run.h5").status == "finished"
    assert_equal_runs("run.h5", "whole.h5")


def test_a_stopped_run_may_be_asked_to_end_where_it_stands(train, stop_after):
    settings = ("log.evaluate_every=3",)
    stop_early(train, stop_after, 4, *settings)
    assert train("run.h5", *settings, "federation.rounds=4").exit_code == 0
    train("whole.h5", *settings, "federation.rounds=4")
    assert_equal_runs("run.h5", "whole.h5")


def test_a_finished_run_without_checkpoints_is_kept_when_it_is_run_for_longer(train, stop_after):
    stop_after[0] = 1000
    train("run.h5")
    shutil.rmtree("run.h5.ckpt")
    done = train("run.h5", "federation.rounds=7")
    assert "the run starts again; the old log is kept as run~1.h5" in done.output
    assert (read_log("run~1.h5").rounds_done, read_log("run~1.h5").status) == (6, "finished")
    assert (read_log("run.h5").rounds_done, read_log("run.h5").status) == (7, "finished")
