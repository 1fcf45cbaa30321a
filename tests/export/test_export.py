"""Runs in the forms of other programs come back as they went in."""

from __future__ import annotations

import csv
import json
import sys
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from hpcfl.log.reader import Run, read_log
from hpcfl.log.schema import COMPONENT_NAMES, METRICS
from hpcfl.log.tables import tables
from hpcfl.metrics.metric import ROUNDS_OF, STRING, Metric
from tests.helpers.logs import SIZES, new_log

ROUNDS = 5


def values(metric: Metric, rng: np.random.Generator) -> np.ndarray:
    """Returns a row of numbers with all their digits, a few of them missing."""
    shape = tuple(SIZES[dim] for dim in metric.dims[1:])
    if metric.dtype == "?":
        return rng.random(shape) < 0.5
    if metric.dtype.startswith("i"):
        return rng.integers(-1, 2**31 - 1, shape)
    number = np.asarray(rng.standard_normal(shape) * 10.0 ** rng.integers(-300, 300, shape))
    number[rng.random(shape) < 0.2] = np.nan
    number[rng.random(shape) < 0.1] = np.inf
    return number


def make(path: Path, seed: int = 0, rounds: int = ROUNDS) -> Run:
    """Writes a log of random rows."""
    rng = np.random.default_rng(seed)
    log = new_log(path)
    for _ in range(rounds):
        row = {metric.path: values(metric, rng) for metric in METRICS if metric.dims[0] == "round"}
        log.append(row | {"/round/seconds": rng.random()}, {})
    log.close("finished")
    return read_log(path)


def cells(path: Path) -> dict[str, list[str]]:
    """Returns the columns of a CSV file as text."""
    with open(path, newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    assert len(set(head)) == len(head), "no two columns have one name"
    return {name: [row[place] for row in rows] for place, name in enumerate(head)}


COLUMN = {
    "/round/accuracy": ("rounds", "accuracy"),
    "/refine/loss": ("rounds", "refine_loss"),
    "/prototypes/energy": ("rounds", "prototypes_energy"),
    "/prototypes/distance": ("rounds", "prototypes_distance_least"),
    "/client/accuracy": ("clients", "accuracy"),
    "/client/thresholds": ("clients", "thresholds_margin"),
    "/round/participants": ("clients", "round_participants"),
    "/prototypes/margin": ("classes", "margin"),
    "/clients/architecture": ("client_table", "architecture"),
    "/clients/class_counts": ("client_classes", "class_counts"),
}


def test_every_dataset_comes_back_from_csv_bit_for_bit(hpcfl):
    run = make(Path("run.h5"))
    done = hpcfl("export", "run.h5", "--to", "csv")
    assert done.exit_code == 0, done.output
    columns = {path.stem: cells(path) for path in Path("run-csv").glob("*.csv")}
    assert columns.keys() == {table.name for table in tables(run)} | {"run"}
    seen = set()
    for table in tables(run):
        text = columns[table.name]
        for metric in table.metrics:
            seen.add(metric.path)
            want = run[metric.path]
            names = [name for name in text if name in table._names(metric)]
            got = np.array([text[name] for name in names]).T.reshape(want.shape)
            if metric.dtype == STRING:
                assert got.tolist() == want.tolist()
            elif metric.dtype == "?":
                np.testing.assert_array_equal(got == "True", want)
            else:
                np.testing.assert_array_equal(got.astype(metric.dtype), want)
        for place, key in enumerate(table.keys):
            shape = [len(run[table.metrics[0].path]), *(SIZES[dim] for dim in table.keys[1:])]
            assert [int(cell) for cell in text[key]] == np.indices(shape)[place].ravel().tolist()
    assert seen == {metric.path for metric in METRICS if metric.dims[0] not in ROUNDS_OF}
    for path, (table_name, column) in COLUMN.items():
        assert column in columns[table_name], path
    said = dict(zip(columns["run"]["attribute"], columns["run"]["value"], strict=True))
    assert said["rounds_done"] == str(ROUNDS)
    assert said["config"] == run.attributes["config"]


def test_places_that_count_nothing_have_names():
    dims = {dim: SIZES[dim] for metric in METRICS for dim in metric.dims if dim in COMPONENT_NAMES}
    assert {dim: len(names) for dim, names in COMPONENT_NAMES.items()} == dims


def test_a_run_without_rows_has_headings_alone(hpcfl):
    make(Path("run.h5"), rounds=0)
    assert hpcfl("export", "run.h5", "--to", "csv").exit_code == 0
    assert cells(Path("run-csv/rounds.csv"))["accuracy"] == []
    assert cells(Path("run-csv/client_table.csv"))["client"] == ["0", "1", "2"]


def test_exporting_again_replaces_its_own_files_and_no_others(hpcfl):
    make(Path("run.h5"))
    for kind in ("csv", "tensorboard", "csv"):
        assert hpcfl("export", "run.h5", "--to", kind, "-o", "out").exit_code == 0
    Path("out/run/mine.csv").write_text("mine")
    kept = sorted(path.name for path in Path("out/run").iterdir())
    Path("run.h5").unlink()
    other = make(Path("run.h5"), seed=1)
    for kind in ("csv", "tensorboard"):
        assert hpcfl("export", "run.h5", "--to", kind, "-o", "out").exit_code == 0
    now = sorted(path.name for path in Path("out/run").iterdir())
    assert [name for name in now if "tfevents" not in name] == [
        name for name in kept if "tfevents" not in name
    ]
    assert sum("tfevents" in name for name in now) == 1
    assert cells(Path("out/run/rounds.csv"))["seconds"] == list(map(repr, other["/round/seconds"].tolist()))
    assert Path("out/run/mine.csv").read_text() == "mine"


def test_what_no_export_wrote_is_left_alone(hpcfl):
    make(Path("run.h5"))
    Path("run-csv").mkdir()
    Path("run-csv/clients.csv").write_text("mine")
    done = hpcfl("export", "run.h5", "--to", "csv")
    assert (done.exit_code, done.output) == (
        2,
        "hpcfl: run-csv/clients.csv was not written by an export; choose another -o\n",
    )
    assert [(path.name, path.read_text()) for path in Path("run-csv").iterdir()] == [("clients.csv", "mine")]
    for content in ("no list", '{"files": 3}', "[]"):
        Path("run-csv/hpcfl-csv.json").write_text(content)
        assert hpcfl("export", "run.h5", "--to", "csv").exit_code == 2
    Path("run-csv/hpcfl-csv.json").write_text(
        json.dumps({"files": ["../run.h5", "clients.csv/../../run.h5"]})
    )
    assert hpcfl("export", "run.h5", "--to", "csv").exit_code == 2
    assert Path("run.h5").exists()


def test_bad_input_is_one_sentence(hpcfl, monkeypatch):
    make(Path("run.h5"))
    Path("sub").mkdir()
    make(Path("sub/run.h5"))
    Path("file").write_text("")
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    for arguments, reason in (
        (["nothing.h5", "--to", "csv"], "cannot read nothing.h5: No such file or directory"),
        (["file", "--to", "csv"], "cannot read file: not an HDF5 file, or a damaged one"),
        (
            ["run.h5", "sub/run.h5", "--to", "csv", "-o", "x"],
            "x/run would hold 2 runs: export them one by one, each with its own -o",
        ),
        (["run.h5", "--to", "csv", "-o", "file"], "cannot write to file/run: Not a directory"),
        (
            ["run.h5", "--to", "tensorboard"],
            "--to tensorboard needs a package that is not installed: pip install tensorboard",
        ),
    ):
        done = hpcfl("export", *arguments)
        assert (done.exit_code, done.output) == (2, f"hpcfl: {reason}\n")
    assert sorted(path.name for path in Path().iterdir()) == ["file", "run.h5", "sub"]


@pytest.mark.parametrize(("name", "directory"), [("..h5", "."), ("...h5", "..")])
def test_no_name_of_a_log_leads_out_of_the_directory(hpcfl, name, directory):
    make(Path(name))
    done = hpcfl("export", name, "--to", "csv", "-o", "out/deep")
    assert (done.exit_code, done.output) == (
        2,
        f"hpcfl: {name}: {directory!r} is no name for a directory in out/deep; rename the log\n",
    )
    assert [path.name for path in Path().iterdir()] == [name]


def test_tensorboard_reads_every_round_from_its_own_files(hpcfl):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.util.tensor_util import make_ndarray

    run = make(Path("run.h5"))
    assert hpcfl("export", "run.h5", "--to", "tensorboard").exit_code == 0
    (path,) = Path("run-tensorboard").glob("events.out.tfevents.*")
    got: dict[tuple[str, int], np.ndarray] = {}
    ends = {}
    for event in EventFileLoader(str(path)).Load():
        for value in event.summary.value:
            got[value.tag, event.step] = make_ndarray(value.tensor)
            ends[event.step] = event.wall_time
    start = datetime.fromisoformat(run.attributes["start"]).timestamp()
    want = {0: start}
    for t, seconds in enumerate(run["/round/seconds"].tolist()):
        want[t + 1] = want[t] + seconds
    assert ends == pytest.approx(want, abs=1e-6)
    config = got.pop(("config", 0)).item().decode()
    assert "".join(line[4:] + "\n" for line in config.split("\n")) == run.attributes["config"]
    got.pop(("method", 0))
    for t in range(ROUNDS):
        known = run["/client/accuracy"][t]
        known = known[np.isfinite(known)]
        if len(known):
            buckets = got.pop(("client/accuracy", t + 1))
            assert buckets[:, 2].sum() == len(known)
            assert (buckets[0, 0], buckets[-1, 1]) == (known.min(), known.max())
    scalars = {
        (metric.path[1:], t + 1): np.float64(value)
        for metric in METRICS
        if metric.dims == ("round",)
        for t, value in enumerate(run[metric.path])
        if not np.isnan(value)
    }
    assert got.keys() == scalars.keys()
    with np.errstate(over="ignore"):
        for key, value in scalars.items():
            assert got[key].item() == np.float32(value), key
