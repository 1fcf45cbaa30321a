"""`hpcfl study choose`: the options with the best accuracy on validation samples, with more seeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hpcfl.log.reader import read_log
from hpcfl.study.study_file import read_study
from tests.helpers.studies import start

BUDGET = """
about = "a small budget"
[set]
data.samples_per_class = 60
federation.rounds = 2
federation.clients = 4
models.features = 4
partition.alpha = 10.0
partition.validation_fraction = 0.2
[[block]]
name = "budget"
[block.grid]
method.name = ["fedproto", "protonorm"]
method.weight = [1.0, 30.0]
train.lr = [0.01, 0.02]
seed = [0]
[[block]]
name = "alone"
cells = [{method.name = "local"}]
[block.grid]
train.lr = [0.01, 0.02]
"""


@pytest.fixture(scope="module")
def budget(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("budget") / "budget.toml"
    path.write_text(BUDGET)
    assert start(path) == 0
    return path


def choose(hpcfl, study: Path, *more: str):
    return hpcfl("study", "choose", str(study), "--out", str(study.parent / "out"), *more)


def test_the_best_on_validation_samples_is_chosen_for_each_method_and_setting(hpcfl, budget):
    done = choose(hpcfl, budget, "-o", "chosen.toml", "--seeds", "3,4")
    assert done.exit_code == 0, done.output
    assert "chosen.toml: 6 methods with 2 seeds each" in done.output
    chosen = read_study("chosen.toml")
    assert len(chosen.cells) == 6 * 2
    assert chosen.about == "budget, the options that validation chose"
    for cell in chosen.cells:
        assert cell.problem == ""
        assert cell.config is not None
        assert cell.config.seed in (3, 4)
        config = cell.config
        if config.method.name == "local":
            continue
        found = {}
        for log in (budget.parent / "out").glob("budget-*.h5"):
            run = read_log(log)
            if (run.config.method.name, run.config.train.lr) == (config.method.name, config.train.lr):
                found[run.config.method.weight] = np.nanmax(run["/round/validation_accuracy"])
        assert len(found) == 2
        assert config.method.weight == max(found, key=lambda weight: (found[weight], -float(weight or 0)))
        assert config.partition == run.config.partition
        assert config.federation == run.config.federation


def test_a_study_that_is_not_finished_is_refused(hpcfl, budget):
    done = hpcfl("study", "choose", str(budget), "--out", "nothing", "-o", "c.toml")
    assert (done.exit_code, Path("c.toml").exists()) == (2, False)
    assert "10 cells of budget not finished: budget-fedproto-1.0-0.01-s0, " in done.output


def test_without_validation_there_is_nothing_to_choose_from(hpcfl, tmp_path):
    path = tmp_path / "plain.toml"
    budget, alone = BUDGET.split("[[block]]")[::2]
    path.write_text(
        f"{budget}[[block]]{alone}".replace("validation_fraction = 0.2", "validation_fraction = 0.0")
    )
    assert start(path) == 0
    done = choose(hpcfl, path, "-o", "c.toml")
    assert (done.exit_code, Path("c.toml").exists()) == (2, False)
    assert "nothing to choose from: give the study a partition.validation_fraction" in done.output


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["-o", "c.txt"], "must end in .toml"),
        (["-o", "c.toml", "--seeds", "1,1"], "--seeds 1,1: must be different whole numbers"),
        (["-o", "c.toml", "--seeds", "a"], "--seeds a: must be different whole numbers"),
        (["-o", "mine.toml"], "was not written by hpcfl study choose"),
    ],
)
def test_bad_arguments_are_one_sentence(hpcfl, budget, arguments, reason):
    Path("mine.toml").write_text("mine = 1")
    done = choose(hpcfl, budget, *arguments)
    assert (done.exit_code, reason in done.output.replace("\n", " ")) == (2, True), done.output
    assert Path("mine.toml").read_text() == "mine = 1"
