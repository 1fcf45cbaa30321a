"""A configuration or a study is a file, else the name of a shipped one."""

from __future__ import annotations

from pathlib import Path

import pytest

import hpcfl as package
from hpcfl.config.loading import load_config
from hpcfl.errors import BadInput
from hpcfl.share.lookup import CONFIGS, STUDIES, find_config, find_study, shipped
from hpcfl.study.study_file import read_study
from tests.helpers.runs import SHORT

SPIRAL = ["data.name=spiral", "models.group=mlp4", "models.features=32", "federation.rounds=1"]
SETTINGS = [f"--set={setting}" for setting in SPIRAL]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_name_is_that_of_a_shipped_file():
    assert find_config("fedtgp") == CONFIGS / "fedtgp.toml"
    assert load_config("fedtgp").method.name == "fedtgp"
    assert find_study("methods") == STUDIES / "methods.toml"


def test_a_file_goes_first_and_a_directory_does_not():
    Path("fedtgp").mkdir()
    assert find_config("fedtgp") == CONFIGS / "fedtgp.toml"
    Path("fedtgp.toml").write_text("seed = 7\n")
    with pytest.raises(BadInput, match=r"a file fedtgp.toml is here, and one is shipped: write fedtgp.toml"):
        find_config("fedtgp")
    assert load_config("fedtgp.toml").seed == 7


def test_a_path_is_no_name():
    for path in ("./fedtgp", "configs/fedtgp.toml", "./fedtgp.toml", "fedtgp.toml"):
        assert find_config(path) == Path(path)
        with pytest.raises(BadInput, match=r"No such file or directory$"):
            load_config(path)


def test_a_study_reads_its_base_beside_itself():
    by_name, by_path = read_study("scalability", "small"), read_study(STUDIES / "scalability.toml", "small")
    assert by_name == by_path
    assert by_name.slug == "scalability-small"


@pytest.mark.parametrize(
    ("command", "want"),
    [
        (
            ["train", "fedtpg"],
            "fedtpg: No such file, and no shipped configuration has this name (nearest: fedtgp)",
        ),
        (["plan", "-n3", "quikstart"], "(nearest: quickstart)"),
        (["doctor", "protonrom"], "(nearest: protonorm)"),
        (["data", "show", "spiral", "--config", "simplx"], "(nearest: simplex)"),
        (["bench", "step", "ancor"], "(nearest: anchor)"),
        (["train", "0"], "has this name; hpcfl catalog lists them"),
        (
            ["study", "run", "scalabilty"],
            "scalabilty: No such file, and no shipped study has this name (nearest: scalability)",
        ),
        (["study", "status", "papers/fedtgp-tabel1"], "(nearest: papers/fedtgp-table1)"),
        (["study", "submit", "heterogenity"], "(nearest: heterogeneity)"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else None,
)
def test_an_unknown_name_is_one_sentence_with_the_nearest(hpcfl, command, want):
    done = hpcfl(*command)
    assert done.exit_code == 2
    assert want in done.output
    assert len(done.output.splitlines()) == 1
    assert list(Path().iterdir()) == []


def test_commands_take_names(hpcfl):
    assert "fedtgp on spiral" in hpcfl("train", "fedtgp", *SETTINGS, "--out", "a.h5").output
    assert "fedtgp on spiral" in hpcfl("plan", "fedtgp", "-n3", *SETTINGS).output
    assert hpcfl("data", "show", "spiral", "--config", "fedproto", "--out=a.csv").exit_code == 0
    run = package.train("fedtgp", settings=SPIRAL, out="a.h5")
    assert run is not None
    assert run.status == "finished"


def test_a_shipped_study_runs_by_its_name(hpcfl):
    settings = ("--scale", "small", *SHORT)
    done = hpcfl("study", "run", "scalability", *settings, "--cell=clients-fedproto-20-0.2-s0")
    assert done.exit_code == 0, done.output
    assert Path("runs/scalability-small/clients-fedproto-20-0.2-s0.h5").is_file()
    assert "393 waiting, 1 finished" in hpcfl("study", "status", "scalability", *settings).output


def test_the_catalogue_lists_what_is_shipped(hpcfl):
    listed = hpcfl("catalog").output
    for folder in (CONFIGS, STUDIES):
        for name, about in shipped(folder):
            assert name in listed
            assert 0 < len(about) < 120
    assert str(CONFIGS) in listed
