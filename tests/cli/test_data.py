"""`hpcfl data show`: the table, the picture, the counts and the split all say the same."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hpcfl.config.loading import load_config
from hpcfl.federation.run_plan import plan_run
from tests.helpers import layouts

FIVE_CLIENTS = ("--set=data.samples_per_class=100", "--set=federation.clients=5")


def counts() -> np.ndarray:
    return plan_run(
        load_config(None, [setting.removeprefix("--set=") for setting in FIVE_CLIENTS])
    ).class_counts_MK


def test_the_table_has_every_count_where_there_is_room(hpcfl):
    lines = hpcfl("data", "show", "spiral", *FIVE_CLIENTS).output.splitlines()
    assert lines[0] == "written: spiral-dirichlet.png"
    assert lines[1].split("  ")[0] == "client"
    for client, row in enumerate(counts()):
        cells = lines[2 + client].split()
        assert cells[0] == str(client)
        assert cells[1] == str(row.sum())
        assert cells[3:] == [str(count) if count else "·" for count in row]


def test_counts_and_split_are_written_and_the_split_can_be_used(hpcfl):
    hpcfl("data", "show", "spiral", *FIVE_CLIENTS, "--out", "c.csv", "--out", "s.npz")
    with open("c.csv", newline="") as file:
        heading, *rows = csv.reader(file)
    assert heading == ["client", *(f"arm {k}" for k in range(6))]
    np.testing.assert_array_equal(np.array(rows, dtype=int)[:, 1:], counts())
    runs = [hpcfl("train", *FIVE_CLIENTS, "--set=federation.rounds=1", "--out", "a.h5")]
    given = ("--set=partition.file=s.npz", "--set=federation.rounds=1")
    runs.append(hpcfl("train", *FIVE_CLIENTS, *given, "--out", "b.h5"))
    first, second = (run.output.splitlines()[1].split("  ")[1] for run in runs)
    assert first == second  # the same accuracy
    assert not Path("spiral-dirichlet.png").exists()


@pytest.mark.parametrize("end", ["png", "svg", "pdf"])
def test_the_picture_is_dark_where_there_are_many(hpcfl, end):
    assert hpcfl("data", "show", "spiral", *FIVE_CLIENTS, "--out", f"p.{end}").exit_code == 0
    assert Path(f"p.{end}").stat().st_size > 5000
    if end == "png":
        pixels = np.asarray(Image.open("p.png").convert("L"))
        assert pixels.min() < 60
        assert (pixels == 255).mean() > 0.2  # classes that a client has not stay white


def test_many_classes_are_summed_up_and_those_of_nobody_named(hpcfl):
    np.savez("own.npz", x=layouts.images(2040, 4), y=np.repeat(np.arange(102), 20))
    hpcfl("data", "prepare", "own", "--source", "own.npz")
    published = ("name=pathological", "style=published", "classes_per_client=10", "min_samples=4")
    chosen = [f"--set=partition.{setting}" for setting in published]
    said = hpcfl("data", "show", "own", *chosen).output
    assert "most of (all in --out FILE.csv)" in said
    assert said.endswith("classes that belong to no client: 100, 101\n")
    trained = hpcfl("train", "--set=data.name=own", *chosen, "--set=federation.rounds=1").output
    assert "hpcfl: classes that belong to no client: 100, 101" in trained


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["spirol"], "no such dataset"),
        (["spiral", "--config", "none.toml"], "cannot read configuration none.toml"),
        (["spiral", "--out", "x.jpg"], "--out x.jpg: must end in .png, .pdf, .svg, .csv or .npz"),
        (["spiral", "--out", "nowhere/x.png"], "cannot write nowhere/x.png: nowhere is not a directory"),
        (["spiral", "--set", "partition.alpha=0"], "partition.alpha = 0"),
    ],
)
def test_wrong_input(hpcfl, arguments, says):
    done = hpcfl("data", "show", *arguments)
    assert done.exit_code == 2
    assert says in done.output
    assert done.output.count("\n") == 1
    assert not list(Path().iterdir())
