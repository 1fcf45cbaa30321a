"""`hpcfl export --to reference`: a study's results, read again beside the same runs, differ by nothing."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest

from hpcfl.report.reference_file import read_reference


def test_a_later_report_has_the_results_beside_its_own(hpcfl, study):
    shutil.copytree(study, "tiny")
    done = hpcfl("export", "tiny", "--to", "reference", "-o", "results")
    assert done.exit_code == 0, done.output
    assert "3 of 4 series in results/tiny.toml" in done.output.replace("\n", " ")
    text = Path("results/tiny.toml").read_text()
    assert text.startswith("# Results of a study, by `hpcfl export --to reference`: mean")
    assert "seeds 0, 1" in text.splitlines()[1]
    results, curve = read_reference(Path("results/tiny.toml")).tables
    assert [column.name for column in curve.table.column] == ["round 1", "round 2", "round 3"]
    assert {"best", "accuracy", "head", "bytes_up"} <= {column.name for column in results.table.column}
    assert "seconds" not in text.replace("seeds", "")

    assert hpcfl("report", "tiny", "-o", "out", "--reference", "results/tiny.toml").exit_code == 0
    for name in ("paper-results", "paper-accuracybyround"):
        [_, *lines] = csv.reader(Path(f"out/tables/{name}.csv").read_text().splitlines())
        assert len(lines) == 3 * 3
        for published, ours, difference in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
            assert [published[1], ours[1], difference[1]] == ["published", "ours", "difference"]
            for there, here in zip(published[2:], ours[2:], strict=True):
                assert float(there) == pytest.approx(float(here), abs=1e-4, nan_ok=True)


def test_a_file_of_ones_own_is_not_overwritten(hpcfl, study):
    shutil.copytree(study, "tiny")
    Path("tiny.toml").write_text("mine")
    done = hpcfl("export", "tiny", "--to", "reference")
    assert (done.exit_code, Path("tiny.toml").read_text()) == (2, "mine")
    assert "was not written by an export" in done.output
    assert hpcfl("export", "tiny", "--to", "reference", "-o", "new").exit_code == 0
    assert hpcfl("export", "tiny", "--to", "reference", "-o", "new").exit_code == 0, "its own is replaced"


def test_one_run_is_refused(hpcfl, study):
    log = next(study.glob("clients-*.h5"))
    done = hpcfl("export", str(log), "--to", "reference")
    assert (done.exit_code, "takes the directory of one study" in done.output) == (2, True)
