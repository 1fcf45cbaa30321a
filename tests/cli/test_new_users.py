"""What new users type, and what they are told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import hpcfl as package
from hpcfl.config.loading import is_read_once, load_config
from hpcfl.errors import BadInput
from hpcfl.log.reader import read_log
from hpcfl.runtime.lock import RunLock
from hpcfl.utils.formatting import format_flops, format_memory, plural
from tests.helpers.mpi import ROOT, Mpi, mpich
from tests.helpers.runs import SHORT, assert_equal_runs, options

CONFIG = "federation.rounds = 2\ndata.samples_per_class = 100\n"
HPCFL = [sys.executable, "-m", "hpcfl"]


@pytest.mark.parametrize("source", ["-", "/dev/stdin"])
def test_a_configuration_from_standard_input(tmp_path, mpi: Mpi, source):
    for out, command in (("alone.h5", HPCFL), ("two.h5", mpi.command(2, "-m", "hpcfl"))):
        arguments = [*command, "train", source, "--out", out]
        done = subprocess.run(
            arguments, input=CONFIG, capture_output=True, text=True, cwd=tmp_path, timeout=120
        )
        assert done.returncode == 0, done.stderr
    assert read_log(tmp_path / "two.h5").rounds_done == 2
    assert_equal_runs(tmp_path / "alone.h5", tmp_path / "two.h5")


def test_a_configuration_from_a_pipe(tmp_path, monkeypatch):
    """What a shell opens for `hpcfl train <(…)` can be read once: rank 0 reads it for all."""
    monkeypatch.setenv("PATH", f"{mpich().bin}:{os.environ['PATH']}")
    (tmp_path / "c.toml").write_text(CONFIG)
    for start, out in (("", "alone.h5"), ("mpirun -n 2 ", "two.h5")):
        line = f"{start}hpcfl train <(cat c.toml) --out {out}"
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=tmp_path, timeout=300)
        assert done.returncode == 0, done.stderr
    assert read_log(tmp_path / "two.h5").rounds_done == 2
    assert_equal_runs(tmp_path / "alone.h5", tmp_path / "two.h5")


def test_a_pipe_with_a_name_is_read_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert all(map(is_read_once, (tmp_path / "pipe", "-", "/dev/stdin", "/dev/fd/63")))
    assert not any(map(is_read_once, (tmp_path, "c.toml", "\0", {}, None)))


def test_bad_input_on_standard_input_is_one_sentence(tmp_path, mpi: Mpi):
    arguments = [*mpi.command(2, "-m", "hpcfl"), "train", "-"]
    done = subprocess.run(
        arguments, input="train.lr = 0", capture_output=True, text=True, cwd=tmp_path, timeout=120
    )
    assert done.returncode == 2
    assert done.stderr.count("hpcfl: train.lr = 0: must be") == 1


def test_a_clone_in_the_working_directory_hides_nothing(tmp_path):
    """The clone is a directory without __init__.py, which Python takes for a package if it finds no other."""
    (tmp_path / "hpcfl").symlink_to(ROOT)
    for arguments in (["-m", "hpcfl", "--version"], ["-c", "import hpcfl; print(hpcfl.train.__doc__)"]):
        done = subprocess.run([sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_plan_assumes_this_machine(hpcfl, monkeypatch):
    for clients, ranks in ((2, 3), (20, 5)):
        done = hpcfl(
            "plan", "--cores", "4", *options("partition.alpha=10.0", f"federation.clients={clients}")
        )
        assert done.exit_code == 0, done.output
        assert f"{ranks} ranks on 1 node of 4 cores" in done.output
    assert "5 ranks on 4 nodes" in hpcfl("plan", "--cores", "1", "--nodes", "4").output


def test_plan_has_one_kind_of_unit_for_memory_and_no_zero_flops(hpcfl):
    text = hpcfl("plan", "-n", "3").output
    memory, rest = text.split("samples:")
    assert "GiB" in memory
    for unit in (" GB", " MB", " kB"):
        assert unit not in memory
    assert "kFLOP" in rest
    assert "0.00" not in rest.partition("log:")[2]
    units = [format_memory(n) for n in (3, 1536, 3 * 2**20, 2.5 * 2**30)]
    assert units == ["3 B", "1.5 KiB", "3.0 MiB", "2.50 GiB"]
    assert [format_flops(n) for n in (12, 9.2e3, 1.17e8, 1.5e9)] == [
        *("12 FLOP", "9.2 kFLOP", "117.0 MFLOP", "1.50 GFLOP")
    ]


def test_one_client_is_one_client(hpcfl):
    settings = options("federation.clients=1", "federation.rounds=1", "partition.name=iid")
    done = hpcfl("train", "--out", "one.h5", *settings)
    shown = hpcfl("show", "one.h5").output + hpcfl("watch", "--once", "one.h5").output
    shown += hpcfl("plan", *settings).output
    for text in (done.output, shown):
        assert "1 client" in text
        assert "1 clients" not in text
        assert "1 rounds" not in text
    assert (plural(1, "rank has", "ranks have"), plural(2, "cell")) == ("1 rank has", "2 cells")


@pytest.mark.parametrize(
    ("key", "suggested"),
    [
        ("federation.client", "federation.clients"),
        ("lr", "train.lr"),
        ("alpha", "partition.alpha"),
        ("trian.lr", "train"),
        ("train.batchsize", "train.batch_size"),
        ("method.taw", "method.tau"),
        ("train.learning_rate", ""),
        ("method.foo", ""),
        ("runtime.cpu", ""),
        ("data.path", ""),
        ("federation.foo", ""),
    ],
)
def test_only_keys_that_are_near_are_suggested(hpcfl, key, suggested):
    done = hpcfl("train", "--set", f"{key}=1")
    nearest = f" (nearest: {suggested})" if suggested else ""
    assert done.output == f"hpcfl: unknown key {key.replace('trian.lr', 'trian')}{nearest}\n"


def test_a_locked_log_is_refused_before_anything_is_promised(hpcfl):
    assert hpcfl("train", "--out", "run.h5", *SHORT).exit_code == 0
    lock = RunLock(Path("run.h5"))
    lock.acquire()
    try:
        done = hpcfl("train", "--out", "run.h5", "--fresh", *SHORT)
        checked = hpcfl("doctor", "--out", "run.h5")
    finally:
        lock.release()
    assert done.exit_code == 2
    assert "two jobs cannot write one log" in done.output
    assert "will be kept" not in done.output
    assert checked.exit_code == 1
    assert "run.h5.lock is held: another job writes this log" in checked.output
    assert "will be kept under another name" in hpcfl("train", "--out", "run.h5", "--fresh", *SHORT).output
    assert "is held" not in hpcfl("doctor", "--out", "run.h5").output


def test_ranks_without_a_client_are_mentioned(tmp_path, mpi: Mpi):
    settings = options("federation.clients=1", "federation.rounds=1", "partition.name=iid")
    done = mpi.run(3, "-m", "hpcfl", "train", "--out", "run.h5", *settings, cwd=tmp_path)
    assert "hpcfl: 1 rank has no client: 1 client per round, 2 workers\n" in done.stdout


def test_an_unknown_path_of_a_log_names_the_nearest(hpcfl):
    assert hpcfl("train", "--out", "run.h5", *SHORT).exit_code == 0
    with pytest.raises(BadInput, match=r"run.h5 has no /round/acc \(nearest: /round/accuracy\)"):
        package.open_run("run.h5")["/round/acc"]


def test_errors_in_python_do_not_speak_of_options():
    for text in ("train.lr", "seed.x=1"):
        with pytest.raises(BadInput) as caught:
            package.train({"seed": 1}, settings=[text])
        assert str(caught.value).startswith(f"settings: {text}: ")
        with pytest.raises(BadInput, match=f"^--set {text}: "):
            load_config({"seed": 1}, [text])


def test_directories_of_the_log_are_made(hpcfl):
    assert "problem" not in hpcfl("doctor", "--out", "nodir/x/run.h5").output.partition("output")[2][:80]
    assert not Path("nodir").exists()
    assert hpcfl("train", "--out", "nodir/x/run.h5", *SHORT).exit_code == 0
    assert read_log("nodir/x/run.h5").status == "finished"


def test_a_log_is_no_directory(hpcfl):
    """A path that ends with a slash, of a directory that is not there, would become a file of that name."""
    done = hpcfl("train", "--out", "runs/", *SHORT)
    assert done.exit_code == 2
    assert done.output == "hpcfl: --out runs/: must be a file, for example runs/run.h5\n"
    with pytest.raises(BadInput, match=r"^out = runs/: must be a file"):
        package.train(out="runs/")
    assert list(Path().iterdir()) == []


def test_another_configuration_names_both_ways_out(hpcfl):
    assert hpcfl("train", "--out", "run.h5", *SHORT).exit_code == 0
    done = hpcfl("train", "--out", "run.h5", *SHORT, "--set", "train.lr=0.5")
    assert done.exit_code == 2
    assert done.output.endswith("--fresh keeps it aside and runs again, or choose another --out\n")


def test_from_python_an_existing_log_names_arguments_and_not_options(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tables = {"federation.rounds": 1, "data.samples_per_class": 100}
    package.train(tables, out="run.h5")
    with pytest.raises(
        BadInput, match=r"; fresh=True keeps it aside and runs again, or choose another out=$"
    ):
        package.train(tables | {"train.lr": 0.5}, out="run.h5")
    Path("run.h5").write_bytes(Path("run.h5").read_bytes()[:-9000])
    with pytest.raises(BadInput, match=r"; fresh=True keeps it aside and runs again$"):
        package.train(tables, out="run.h5")


def test_an_exception_in_a_constructor_shows_the_line(hpcfl, monkeypatch):
    monkeypatch.syspath_prepend(".")
    lines = ["class Net:", "    def __init__(self, shape, features):", "        self.width = shape['x']"]
    Path("wrong_constructor.py").write_text("\n".join(lines))
    done = hpcfl("train", "--set", "models.list=['wrong_constructor:Net']")
    assert done.exit_code == 2
    assert done.output.count("\n") == 1
    assert "(TypeError: tuple indices must be integers" in done.output
    assert "wrong_constructor.py:3)" in done.output
