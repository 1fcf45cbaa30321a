"""`hpcfl bench peers`: the files of a workload, what is measured of a program, and the table."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hpcfl.bench.job import HPCFL
from hpcfl.bench.peers import command, environments, measurement
from hpcfl.bench.peers.environments import Environment, make_environment
from hpcfl.bench.peers.measurement import Measurement, from_times, measure
from hpcfl.bench.peers.programs import task as shared
from hpcfl.bench.peers.table import Row, count_lines, figures, ratios
from hpcfl.bench.peers.workloads import WORKLOADS, Workload, prepare
from hpcfl.config.loading import parse_config
from hpcfl.federation.run_plan import plan_run
from hpcfl.training.samples import SampleSource

PROGRAMS = sorted(command.FOLDER.glob("*.py"))
SMALL = {"clients": 8, "participants": 4, "samples": 6, "rounds": 4, "tests": 2}


def small(name: str) -> Workload:
    return replace(WORKLOADS[name], **SMALL)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [name for name in WORKLOADS if not WORKLOADS[name].published_split])
def test_all_programs_get_the_samples_that_hpcfl_trains_on(name, tmp_path):
    prepared = prepare(small(name), "synthetic", "data", 2, tmp_path)
    plan = plan_run(parse_config(prepared.config.read_text()))
    source = SampleSource(plan.data, plan.config.data, torch.device("cpu"))
    task = shared.Task(**json.loads(prepared.task.read_text()))
    data = shared.ClientData(task)
    assert len(data) == len(plan.clients) == 8
    for client in plan.clients:
        x, y = data.tensors(client.id)
        own_x, own_y = source.samples(client.train).batch(np.arange(6))
        torch.testing.assert_close(x, own_x.contiguous(), rtol=1e-5, atol=1e-5)
        assert y.tolist() == own_y.tolist()
        assert len(client.test) == 2
    assert (task.lr, task.batch_size, task.epochs) == (plan.train.lr, plan.train.batch_size, 1)
    assert (task.clients, task.participants) == (8, plan.config.federation.per_round)
    assert shared.Classifier(task)(x).shape == (6, 10)


def test_htfllib_gets_the_published_split(tmp_path):
    """All samples of the split, in its order."""
    prepared = prepare(
        replace(WORKLOADS["htcnn8"], clients=4, participants=4), "synthetic", "data", 2, tmp_path
    )
    plan = plan_run(parse_config(prepared.config.read_text()))
    data = shared.ClientData(shared.Task(**json.loads(prepared.task.read_text())))
    assert [len(data[i][1]) for i in range(4)] == [len(client.train) for client in plan.clients]
    assert data[3][1].tolist() == plan.data.y[plan.clients[3].train].tolist()
    assert [client.architecture for client in plan.clients] == ["cnn1", "cnn2", "cnn3", "cnn4"]
    assert (plan.train.batch_size, plan.config.method.weight) == (32, 10.0)


def test_the_network_is_that_of_the_published_set_up():
    """3×3×32, 3×3×32×64, and a dense layer behind a max pool of 24×24 pixels."""
    network = shared.simple_cnn((1, 28, 28), 128)
    assert [tuple(p.shape) for p in network.parameters() if p.ndim > 1] == [
        (32, 1, 3, 3),
        (64, 32, 3, 3),
        (128, 64 * 12 * 12),
    ]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_programs_do_without_hpcfl(path):
    names = [
        getattr(node, "module", None) or node.names[0].name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert not [name for name in names if name.startswith("hpcfl")]


def test_programs_can_use_the_task_as_a_key(tmp_path, monkeypatch):
    """Flower's clients keep their data by task; lists in it would make each of them fail."""
    prepared = prepare(small("cnn"), "synthetic", "data", 2, tmp_path)
    monkeypatch.setattr(sys, "argv", ["program", str(prepared.task)])
    assert hash(shared.read_task()) == hash(shared.read_task())


def test_a_round_lasts_from_line_to_line():
    """Ends at 7, 8, 10, 13, 17: rounds of 1, 2, 3 and 4 s after the first; the last is not counted."""
    got = from_times(1.0, [7.0, 8.0, 10.0, 13.0, 17.0], 0.5, 5)
    assert got == Measurement(2.0, 0.5, 7.0 - 1.0 - 2.0, 5)


def test_a_program_is_measured_with_its_child_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(measurement, "INTERVAL", 0.05)
    program = (
        "import os, time\nchild = os.fork()\nx = bytearray(20_000_000) if not child else b''\n"
        "for i in range(1, 6):\n    time.sleep(0.1)\n    child and print('round', i, flush=True)\n"
    )
    got = measure([sys.executable, "-c", program], tmp_path, 5)
    assert not got.problem
    assert got.round_seconds > 0.09
    assert got.peak_bytes > 20_000_000


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("print('round 1'); raise ValueError('no such key')", "exit code 1 after 1 of 4 rounds: ValueError"),
        ("print('round 1')", "exit code 0 after 1 of 4 rounds: round 1"),
    ],
)
def test_a_program_that_fails_says_how(tmp_path, program, says):
    assert measure([sys.executable, "-c", program], tmp_path, 4).problem.startswith(says)


def test_ratios_are_medians_of_the_repeats():
    own, other = Row("hpcfl", 20), Row("x", 50)
    for row, values in ((own, [1.0, 2.0, 4.0]), (other, [3.0, 10.0, 16.0])):
        for value in values:
            row.add(Measurement(value, 3 * value, 2 * value, 1000))
    assert ratios(other, own) == [*["4.00 (3.00–5.00)"] * 3, "1.00", "2.5"]


def test_lines_are_those_of_code(tmp_path):
    (tmp_path / "a.py").write_text('"""Two\nlines."""\n\n# comment\nx = """kept\nas data"""\n')
    (tmp_path / "a.toml").write_text("# comment\n\n[train]\nlr = 0.1\n")
    assert (count_lines(tmp_path / "a.py"), count_lines(tmp_path / "a.toml")) == (2, 2)


def test_figures_have_their_spread():
    """Four participants in 1, 2 and 4 s."""
    row = Row("x", 50)
    for value in (1.0, 4.0, 2.0):
        row.add(Measurement(value, 3 * value, 2 * value, int(value * 2**20)))
    spreads = ["2.000 (1.000–4.000)", "6.000 (3.000–12.000)", "2.0 (1.0–4.0)", "4.0 (2.0–8.0)", "2 (1–4)"]
    assert figures(row, 4) == [*spreads, "50"]


def test_an_environment_whose_simulator_does_not_start_is_a_row_that_says_so(tmp_path, monkeypatch):
    def run(given, **_):
        code = int("-c" in given)
        return subprocess.CompletedProcess(given, code, "", "Traceback\nPackageNotFoundError: flwr\n" * code)

    monkeypatch.setattr(environments.subprocess, "run", run)
    assert make_environment("flower", tmp_path).problem == "does not start: PackageNotFoundError: flwr"


def test_htfllib_whose_files_cannot_be_written_is_a_row_that_says_so(tmp_path, monkeypatch):
    (tmp_path / "run_htfllib.py").write_text("import sys\nraise OSError('no space' + sys.argv[3])")
    monkeypatch.setattr(command, "FOLDER", tmp_path)
    prepared = prepare(small("fedproto"), "synthetic", "data", 2, tmp_path)
    environment = {"htfllib": Environment(Path(sys.executable))}
    runner = command.PeerRunner(prepared, tmp_path, 3, tmp_path, environment)
    rows = runner.compare(["htfllib"], 0)
    rows["htfllib"].add(runner.run("htfllib"))
    assert rows["htfllib"].problem == "cannot write the clients' files: OSError: no spacefiles"


def test_the_version_of_htfllib_is_its_commit(tmp_path):
    system = tmp_path / "system"
    system.mkdir()
    assert command.htfllib_version(system) == "HtFLlib commit unknown"
    git = ["git", "-c", "user.name=n", "-c", "user.email=e", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    word = command.htfllib_version(system).removeprefix("HtFLlib commit ")
    assert len(word) >= 7
    assert commit.startswith(word)


def test_a_simulator_that_does_not_install_is_a_row_that_says_so(tmp_path, monkeypatch):
    def run(given, **_):
        code = int("--constraint" in given)
        return subprocess.CompletedProcess(given, code, "", "ERROR: no matching version\n" * code)

    monkeypatch.setattr(environments.subprocess, "run", run)
    made = make_environment("pfl", tmp_path)
    assert made.problem == "does not install: ERROR: no matching version"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Runs hpcfl on one process, and stand-ins for the other simulators' programs."""
    monkeypatch.chdir(tmp_path)
    folder = Path("programs")
    folder.mkdir()
    (folder / "run_flower.py").write_text("for i in range(1, 5): print('round', i, flush=True)")
    (folder / "run_fluke.py").write_text("import nothing_of_that_name")
    (folder / "run_pfl.py").touch()
    monkeypatch.setattr(command, "FOLDER", folder.absolute())
    monkeypatch.setattr(command, "on_ranks", lambda ranks, *arguments: [*HPCFL, *map(str, arguments)])
    found = {
        "flower": Environment(Path(sys.executable), "flwr 1.0"),
        "fluke": Environment(Path(sys.executable), "fluke 1.0"),
        "pfl": Environment(Path(), problem="does not install: no wheel"),
    }
    monkeypatch.setattr(command, "make_environment", lambda name, directory: found[name])


@pytest.mark.usefixtures("here")
def test_the_table_has_a_row_for_each(bench_command):
    done = bench_command(
        *("peers", "--environments", "env", "--workload", "logistic", "--data", "synthetic"),
        *("--clients", 20, "--rounds", 4, "--repeats", 1),
    )
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    rows = {line.split()[0]: line for line in lines if line.startswith(("hpcfl  ", "flower  "))}
    assert rows["hpcfl"].split()[-1].isdigit()
    assert rows["flower"].split()[-1] == "1"
    assert any("; flower: flwr 1.0; " in line for line in lines)
    assert any(line.startswith("fluke: exit code 1 after 0 of 4 rounds: ModuleNotFound") for line in lines)
    assert any("does not install: no wheel" in line for line in lines)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--root", "nowhere"], "no data: prepare cifar10 or fmnist in nowhere"),
        (["--htfllib", "nowhere"], "--htfllib nowhere: no HtFLlib there"),
        (["--workload", "fedtgp", "--data", "synthetic"], "no other simulator does these workloads"),
        (["--data", "spiral"], "--data spiral: its samples are no images"),
        (["--data", "synthetic", "--workload", "cnn"], "1000 clients need 60000 samples"),
    ],
)
@pytest.mark.usefixtures("here")
def test_bad_input(bench_command, arguments, says):
    done = bench_command("peers", "--environments", "env", *arguments)
    assert done.exit_code == 2, done.output
    assert says in done.output
    assert len(done.output.splitlines()) == 1
