"""`hpcfl show`: one run at a glance, several side by side."""

from hpcfl.log.reader import read_log
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
