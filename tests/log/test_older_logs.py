"""Logs that lack metrics of today: an older version, or a method that does not have them."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

from hpcfl.errors import BadInput
from hpcfl.log.reader import read_log
from hpcfl.log.schema import OLDEST, VERSION
from tests.helpers.logs import add, new_log
from tests.helpers.runs import SMALL, train_log


def make_older(path):
    """Makes a log one of the oldest schema."""
    with h5py.File(path, "r+") as file:
        for name in ("/round/loss_ce", "/client/thresholds", "/round/uploads", "/prototypes/stale"):
            del file[name]
        file.attrs["schema"] = OLDEST
        del file.attrs["datasets"]


@pytest.fixture
def older(tmp_path):
    """A log of the oldest schema that lacks two floats, a count and a flag."""
    path = tmp_path / "run.h5"
    log = new_log(path)
    for _ in range(3):
        add(log)
    make_older(path)
    return path


def test_floats_that_are_lacking_are_nan(older):
    run = read_log(older)
    assert run["/round/loss_ce"].shape == (3,)
    assert run["/client/thresholds"].shape == (3, 3, 2)
    assert np.isnan(run["/client/thresholds"]).all()
    assert (run["/round/accuracy"] == 0.5).all()
    assert np.isnan(run.frame("rounds")["loss_ce"]).all()
    only = read_log(older, {"/round/loss_ce": slice(-2, None)})
    assert np.isnan(only["/round/loss_ce"]).tolist() == [True, True]


@pytest.mark.parametrize("path", ["/round/uploads", "/prototypes/stale"])
def test_a_count_or_flag_that_is_lacking_is_one_sentence(older, path):
    with pytest.raises(BadInput, match=f"run.h5 has no {path}: its method, or the version of hpcfl"):
        read_log(older)[path]
    with pytest.raises(BadInput, match=r"has no /round/acc \(nearest: /round/accuracy\)"):
        read_log(older)["/round/acc"]


def test_commands_read_an_older_log(hpcfl):
    older = "run.h5"
    train_log(hpcfl, *SMALL)
    make_older(older)
    for command in (["show", older], ["watch", older, "--once"], ["export", older, "--to", "csv"]):
        assert hpcfl(*command).exit_code == 0, command
    assert hpcfl("diff", older, older).exit_code == 0


def test_a_log_of_today_that_lacks_a_dataset_is_damaged(hpcfl, tmp_path):
    add(new_log(tmp_path / "run.h5"))
    with h5py.File(tmp_path / "run.h5", "r+") as file:
        del file["/round/loss_ce"]
    done = hpcfl("show", tmp_path / "run.h5")
    assert done.exit_code == 2
    assert "not a whole log of hpcfl" in done.output


@pytest.mark.parametrize("schema", [OLDEST - 1, VERSION + 1])
def test_other_schemas_are_refused(hpcfl, tmp_path, schema):
    new_log(tmp_path / "run.h5")
    with h5py.File(tmp_path / "run.h5", "r+") as file:
        file.attrs["schema"] = schema
    done = hpcfl("show", tmp_path / "run.h5")
    assert done.exit_code == 2
    assert f"has schema {schema}; this version of hpcfl reads {OLDEST} to {VERSION}" in done.output
