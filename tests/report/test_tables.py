"""Tables: mean ± std by hand, best and second marked, and hostile names harmless in every format."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hpcfl.log.reader import read_log
from hpcfl.report.series import make_settings
from hpcfl.report.table_formats import escape_latex, escape_markdown, to_csv, to_latex, to_markdown
from hpcfl.report.tables import Cell, Table, make_tables, results_table
from hpcfl.report.verdict import make_verdict
from tests.helpers.records import record

HEAD = {"head": (0.5, 0.5)}
HOSTILE = [
    "<script>alert(1)</script>",
    "a|b\nc\\\\d & 50% $x_1^2$ #{~}",
    '"quoted" `code` **bold** [link](http://x)',
    "\\input{/etc/passwd}",
    "=HYPERLINK(1)",
    "[1ex] 中文 \x1b[31m",
]


def table(name: str) -> Table:
    rows = ((Cell(name), Cell("1.00", 1.0, place=1)), (Cell("[other]"), Cell("0.50", 0.5, place=2)))
    return Table("results", "Results", (name, "accuracy"), (False, True), rows)


def test_mean_and_deviation_over_seeds():
    """0.60 and 0.64: mean 62, sample deviation √(2·0.02²) = 2.83 points."""
    runs = [
        record("local", HEAD, f"seed={seed}", rounds=(0.1, last)) for seed, last in ((0, 0.60), (1, 0.64))
    ]
    found = results_table(make_settings(runs))
    cells = dict(zip(found.columns, found.rows[0], strict=True))
    assert (cells["accuracy"].text, cells["seeds"].text) == ("62.00 ± 2.83", "2")
    assert cells["up per round"].text == "40 B"


def test_best_is_bold_second_underlined_and_diverged_a_dash():
    runs = [
        record(method, HEAD, rounds=(0.1, last), status=status)
        for method, last, status in (
            ("local", 0.6, "finished"),
            ("fedproto", 0.7, "finished"),
            ("fedorgp", 0.9, "diverged"),
            ("fedtgp", 0.5, "finished"),
        )
    ]
    found = results_table(make_settings(runs))
    column = found.columns.index("accuracy")
    assert [(row[column].text, row[column].place) for row in found.rows] == [
        *(("60.00", 2), ("70.00", 1), ("–", 0), ("50.00", 0))
    ]
    assert found.rows[2][2].text == "0, 1 diverged"
    markdown, latex = to_markdown(found), to_latex(found)
    assert "| **70.00** |" in markdown
    assert "| <u>60.00</u> |" in markdown
    assert r"\textbf{70.00}" in latex
    assert r"\underline{60.00}" in latex


def test_several_settings_make_a_table_of_methods_and_settings():
    runs = [
        record(method, HEAD, f"federation.clients={n}", rounds=(n / 100,))
        for method, n in (("local", 20), ("fedproto", 20), ("local", 40))
    ]
    settings = make_settings(runs)
    tables = make_tables(settings, make_verdict([s for setting in settings for s in setting.series]))
    assert [each.name for each in tables] == ["results", "accuracy", "verdict"]
    assert tables[1].columns == ("method", "clients 20", "clients 40")
    assert [[cell.text for cell in row] for row in tables[1].rows] == [
        ["local", "20.00", "40.00"],
        ["fedproto", "20.00", "–"],
    ]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_in_their_cell_of_markdown(name):
    lines = to_markdown(table(name)).splitlines()
    assert len(lines) == 4
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 3 for line in lines)
    assert "<script" not in lines[2]
    assert not re.search(r"(?<!\\)\]\(", lines[2])


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_in_their_cell_of_latex(name):
    text = to_latex(table(name))
    assert text.count(" \\\\\n") == 3
    body = text[text.index(r"\toprule") : text.index(r"\bottomrule")]
    commands = {*re.findall(r"\\([A-Za-z]+)", body)}
    allowed = {"toprule", "midrule", "textbf", "underline", "textbackslash", "textasciitilde"}
    assert commands <= allowed | {"textasciicircum", "textless", "textgreater", "textbar"}
    assert all(
        line.count("&") - line.count(r"\&") == 1 for line in body.splitlines() if line.startswith("  {}")
    )
    assert not re.search(r"(?<!\\)[%#_^~$]", body)
    assert text.isascii()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_in_their_cell_of_csv(name):
    rows = list(csv.reader(io.StringIO(to_csv(table(name)))))
    assert [len(row) for row in rows] == [3, 3, 3]
    assert rows[1][1:] == ["1.0", "nan"]
    assert not rows[1][0].startswith("=")


def test_escapes_by_hand():
    assert escape_latex("a_b & ±5% – λ") == r"a\_b \& $\pm$5\% -- $\lambda$"
    assert escape_markdown("a|b<c>_d") == r"a\|b&lt;c&gt;\_d"


RULES = (
    r"\IfFileExists{booktabs.sty}{\usepackage{booktabs}}"
    r"{\let\toprule\hline\let\midrule\hline\let\bottomrule\hline}"
)
"""Of booktabs, which Debian's smallest LaTeX lacks."""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles(tmp_path, report):
    """Tables with hostile names, and all tables of a report."""
    tables = [to_latex(table(name)) for name in HOSTILE]
    files = sorted((report[0] / "tables").glob("*.tex"))
    assert [file.stem for file in files] == ["accuracy", "results", "verdict"]
    text = "\n\n".join([*tables, *(file.read_text() for file in files)])
    (tmp_path / "t.tex").write_text(
        rf"\documentclass{{article}}{RULES}\begin{{document}}\tiny {text}\end{{document}}"
    )
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
    assert "Output written on t.pdf" in done.stdout


def test_a_study_is_exported_as_csv_and_latex(hpcfl, study, tmp_path):
    copy = Path(shutil.copytree(study, tmp_path / "copy"))
    (copy / "clients-local-4-s1.h5").write_bytes(b"damaged")
    done = hpcfl("export", copy, "--to", "csv")
    assert done.exit_code == 0, done.output
    assert "passed over: cannot read" in done.output
    assert "clients-local-4-s1.h5" in done.output
    cells = (tmp_path / "copy-csv" / "cells.csv").read_text()
    [row] = [row for row in csv.DictReader(io.StringIO(cells)) if row["cell"] == "clients-fedproto-4-s0"]
    accuracy = read_log(study / "clients-fedproto-4-s0.h5")["/round/accuracy"][-1]
    assert float(row["accuracy"]) == accuracy
    assert sorted(path.name for path in (tmp_path / "copy-csv").iterdir()) == [
        *("accuracy.csv", "cells.csv", "hpcfl-csv.json", "results.csv", "verdict.csv")
    ]
    assert hpcfl("export", study, "--to", "latex", "-o", "here").exit_code == 0
    latex = Path("here/out/results.tex").read_text().partition(r"\toprule")[2]
    assert r"\textbf{" in latex
    assert " ± " not in latex
    assert "--" in latex  # the diverged cell
    assert not [*study.parent.glob("out-*")]


def test_latex_is_for_studies(hpcfl):
    done = hpcfl("export", "run.h5", "--to", "latex")
    assert (done.exit_code, done.output) == (
        2,
        "hpcfl: --to latex takes the directory of a study; hpcfl report writes the tables of runs\n",
    )
