"""`hpcfl show`: one run at a glance, several side by side."""

from pathlib import Path

import numpy as np
import pytest

from hpcfl.errors import BadInput
from hpcfl.log.reader import read_log
from hpcfl.log.target import ToTarget
from tests.helpers.logs import add, new_log
from tests.helpers.runs import SHORT


def test_show_prints_one_run_at_a_glance_and_several_side_by_side(hpcfl):
    hpcfl("train", *SHORT, "--out", "a.h5")
    hpcfl("train", *SHORT, "--set=method.name=local", "--out", "b.h5")
    one = hpcfl("show", "a.h5").output
    accuracy = f"{100 * read_log('a.h5')['/round/accuracy'][-1]:.2f}%"
    for part in (
        "finished, 2 of 2 rounds",
        "aggregate weighted, refine none, anchor round, distance mse, weight 30.0",
        accuracy,
        "5 mlp_64",
        "diverged",
    ):
        assert part in one
    two = hpcfl("show", "a.h5", "b.h5").output.splitlines()
    assert accuracy in two[1]
    assert "local" in two[2]
    assert "–" in two[2]  # no global prototypes
    missing = hpcfl("show", "nothing.h5")
    assert missing.exit_code == 2
    assert missing.output == "hpcfl: cannot read nothing.h5: No such file or directory\n"


def test_a_name_is_shown_as_it_is(hpcfl):
    hpcfl("train", *SHORT, "--out", "[bold]b:smile:.h5")
    shown = hpcfl("show", "[bold]b:smile:.h5")
    assert "[bold]b:smile:.h5: finished" in shown.output


def test_what_a_run_needed_to_reach_an_accuracy(hpcfl):
    """Rounds 1 to 4 with accuracies 0.2, none, 0.7, 0.5; up 1, 10, 100, 1000 bytes, down ten times that."""
    log = new_log(Path("run.h5"))
    for t, accuracy in enumerate([0.2, np.nan, 0.7, 0.5]):
        costs = {"round__bytes_up": 10**t, "round__bytes_down": 10 ** (t + 1), "round__seconds": 0.5}
        add(log, accuracy, round__train_accuracy=t / 4, **costs)
    run = read_log("run.h5")
    assert run.to_target(0.2) == ToTarget(1, 1, 10, 0.5)
    assert run.to_target(0.6) == ToTarget(3, 111, 1110, 1.5)
    assert run.to_target(0.71) is None
    assert run.to_target(0.25, "/round/train_accuracy") == ToTarget(2, 11, 110, 1.0)
    with pytest.raises(BadInput, match="/client/accuracy does not hold one value per round"):
        run.to_target(0.5, "/client/accuracy")
    log.close("finished")
