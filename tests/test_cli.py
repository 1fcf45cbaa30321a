from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from itertools import count
from pathlib import Path

import pytest

from hpcfl.config.identity import keys
from hpcfl.config.loading import dump_config, load_config
from hpcfl.log.reader import read_log
from hpcfl.log.schema import ENTRIES
from hpcfl.methods.catalogue import CATALOGUE
from hpcfl.models.registry import ARCHITECTURES, GROUPS
from hpcfl.runtime.deadline import Deadline
from tests.conftest import ROOT, mpich

SMALL = ("--set=data.samples_per_class=100", "--set=federation.rounds=2")


def test_one_plain_line_per_round_where_there_is_no_terminal(hpcfl):
    lines = hpcfl("train", *SMALL).output.splitlines()
    assert [line.split("  ")[0] for line in lines[1:3]] == ["round 1/2", "round 2/2"]
    for word in ("accuracy", " s ", "20 clients", "up ", "down "):
        assert word in lines[2]
    assert "2 rounds in" in lines[3]
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize(("stop", "when"), [(1, None), (2, ""), (3, " in round 2")])
def test_the_last_line_of_a_stopped_run_has_the_last_evaluated_accuracy(hpcfl, monkeypatch, stop, when):
    rounds = count(1)
    monkeypatch.setattr(Deadline, "passed", lambda self, seconds: next(rounds) == stop)
    settings = ("--set=federation.rounds=4", "--set=log.evaluate_every=2")
    done = hpcfl("train", *SMALL, *settings, "--out", "a.h5")
    assert done.exit_code == 75
    facts, log = done.output.splitlines()[-2].split("; ", 1)
    assert facts.startswith(f"hpcfl: {stop} rounds in ")
    if when is None:
        assert log == "log: a.h5"
    else:
        share = f"{read_log('a.h5')['/round/accuracy'][1]:.2%}"
        assert log == f"accuracy {share}{when}, best {share} in round 2; log: a.h5"


def test_the_name_of_a_log_follows_from_the_configuration(hpcfl, monkeypatch):
    hpcfl("train", *SMALL)
    monkeypatch.setenv("HPCFL_DATA", "elsewhere")  # where data lies makes no other run
    again = hpcfl("train", *SMALL)
    assert again.exit_code == 0
    assert "is finished: 2 rounds" in again.output
    hpcfl("train", *SMALL, "--set=seed=1")
    assert len(list(Path().glob("fedproto-spiral-*.h5"))) == len(list(Path().glob("*.h5.ckpt"))) == 2
    assert len(list(Path().iterdir())) == 4


def test_a_finished_run_says_so_and_changes_nothing(hpcfl):
    hpcfl("train", *SMALL, "--out", "a.h5")
    before = Path("a.h5").read_bytes()
    done = hpcfl("train", *SMALL, "--out", "a.h5")
    assert (done.exit_code, Path("a.h5").read_bytes()) == (0, before)


def test_fresh_keeps_the_old_log_aside(hpcfl):
    for _ in range(3):
        assert hpcfl("train", *SMALL, "--out", "a.h5", "--fresh").exit_code == 0
    logs = ["a.1.h5", "a.2.h5", "a.h5"]
    assert sorted(p.name for p in Path().iterdir()) == sorted([*logs, *(f"{log}.ckpt" for log in logs)])
    assert {read_log(log).status for log in logs} == {"finished"}


def test_a_log_of_another_configuration_is_refused_with_the_difference(hpcfl):
    hpcfl("train", *SMALL, "--out", "a.h5")
    before = Path("a.h5").read_bytes()
    done = hpcfl("train", *SMALL, "--set=train.lr=0.5", "--out", "a.h5")
    assert done.exit_code == 2
    assert "train.lr = 0.01 there, 0.5 here" in done.output
    assert Path("a.h5").read_bytes() == before


def test_a_diverged_run_is_not_taken_for_a_finished_one(hpcfl):
    assert hpcfl("train", *SMALL, "--set=train.lr=1e30", "--out", "a.h5").exit_code == 1
    done = hpcfl("train", *SMALL, "--set=train.lr=1e30", "--out", "a.h5")
    assert done.exit_code == 2
    assert "a.h5 diverged in round 1" in done.output


def test_show_prints_one_run_at_a_glance_and_several_side_by_side(hpcfl):
    hpcfl("train", *SMALL, "--out", "a.h5")
    hpcfl("train", *SMALL, "--set=method.name=local", "--out", "b.h5")
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


def test_the_catalogue_lists_every_name(hpcfl):
    listed = hpcfl("catalog").output
    for name in (*CATALOGUE, *ARCHITECTURES, *GROUPS, "spiral"):
        assert name in listed


def test_a_configuration_survives_its_log(hpcfl):
    Path("c.toml").write_text('[models]\nlist = ["mlp_64"]\n[federation]\nclients = 3\nrounds = 1\n')
    hpcfl("train", "c.toml", "--out", "a.h5")
    assert read_log("a.h5").config == load_config("c.toml")
    Path("again.toml").write_text(dump_config(load_config("c.toml")))
    assert load_config("again.toml") == load_config("c.toml")


def test_the_quick_start_file_holds_every_key_with_its_default():
    path = ROOT / "configs" / "quickstart.toml"
    assert load_config(str(path)) == load_config()
    text = path.read_text()
    for key in keys():
        assert f"{key.rpartition('.')[2]} = " in text


def test_an_empty_file_is_the_quick_start(tmp_path):
    (tmp_path / "empty.toml").write_text("")
    assert load_config(str(tmp_path / "empty.toml")) == load_config()


def test_the_readme_lists_every_dataset_of_the_log():
    text = (ROOT / "README.md").read_text() + (ROOT / "docs" / "log.md").read_text()
    for entry in ENTRIES:
        assert f"`{entry.path}`" in text


@pytest.mark.parametrize("where", ["| head -n 1", ">&-", "2>&- >&-"])
def test_a_reader_that_leaves_or_never_was_does_not_end_the_run(tmp_path, where):
    settings = " ".join([*SMALL, "--set=federation.rounds=60"])
    command = f"{sys.executable} -m hpcfl train {settings} --out a.h5 {where}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr == ""
    assert read_log(tmp_path / "a.h5").status == "finished"


def test_an_encoding_without_our_characters_does_not_end_the_run(tmp_path):
    environ = os.environ | {"PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "hpcfl", "train", *SMALL, "--set=log.evaluate_every=2", "--out", "a.h5"]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "accuracy ?" in done.stdout


def test_a_name_is_shown_as_it_is(hpcfl):
    hpcfl("train", *SMALL, "--out", "[bold]b:smile:.h5")
    shown = hpcfl("show", "[bold]b:smile:.h5")
    assert "[bold]b:smile:.h5: finished" in shown.output


def test_usage_errors_are_printed_once_under_mpirun(tmp_path):
    for arguments in (["train", "--bogus"], ["trian"], ["show", "nothing.h5"]):
        done = mpich().run(3, "-m", "hpcfl", *arguments, cwd=tmp_path)
        assert done.returncode == 2
        said = [line for line in done.stderr.splitlines() if "rror" in line or "cannot read" in line]
        assert len(said) == 1, done.stderr


def on_a_terminal(command: list[str], directory: Path, columns: int) -> str:
    """Returns what a command writes to a terminal of its own."""
    theirs, ours = pty.openpty()[::-1]
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environ = os.environ | {"TERM": "xterm"}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, cwd=directory, env=environ):
        os.close(theirs)
        seen = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
            seen += part
    os.close(ours)
    return seen.decode()


def test_a_terminal_gets_a_live_bar_alone_and_under_mpirun(tmp_path):
    settings = [*SMALL, "--set=federation.rounds=20"]
    alone = on_a_terminal([sys.executable, "-m", "hpcfl", "train", *settings, "--out", "a.h5"], tmp_path, 80)
    command = mpich().command(2, "-m", "hpcfl", "train", *settings, "--out", "b.h5")
    for seen in (alone, on_a_terminal(command, tmp_path, 120)):
        assert "\x1b[" in seen
        assert "round 19/20" in seen
        assert "round 20/20" in seen
        assert "accuracy" in seen
        assert "20 rounds in" in seen
    assert read_log(tmp_path / "b.h5").attributes["ranks"] == 2
