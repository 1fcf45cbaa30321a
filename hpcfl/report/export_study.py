"""`hpcfl export` of a study: its tables as CSV or LaTeX files."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from hpcfl.export.replace_files import replace_files
from hpcfl.report.records import read_records
from hpcfl.report.series import make_settings
from hpcfl.report.table_formats import FORMATS, plain
from hpcfl.report.tables import make_tables
from hpcfl.report.verdict import make_verdict
from hpcfl.study.results import Results, read_results, row
from hpcfl.utils.formatting import print_line

SUFFIXES = {"csv": "csv", "latex": "tex"}


def print_exported_study(path: str, kind: str, out: str | None) -> None:
    """Writes the tables of a study beside it, or below `out`, and prints where."""
    study = Path(path).resolve()
    study = study.parent if study.is_file() else study
    directory = study.with_name(f"{study.name}-{kind}") if out is None else Path(out) / study.name
    records = read_records([str(study)])
    settings = make_settings(records.runs)
    verdict = make_verdict([series for setting in settings for series in setting.series])

    def write(staging: Path) -> Iterator[str]:
        for table in make_tables(settings, verdict):
            name = f"{table.name}.{SUFFIXES[kind]}"
            (staging / name).write_text(FORMATS[SUFFIXES[kind]](table), encoding="utf-8")
            yield name
        if kind == "csv":
            yield _write_cells(read_results(study), staging)

    for problem in records.problems:
        print_line(f"passed over: {problem}")
    files = replace_files(directory, kind, study.name, write)
    print_line(f"{path}: {', '.join(files)} in {directory}")


def _write_cells(results: Results, directory: Path) -> str:
    """Writes one row per cell with its values and summary, and returns the name of the file."""
    rows = [row(cell) for cell in results]
    columns = list(dict.fromkeys(name for each in rows for name in each))
    with open(directory / "cells.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        for each in rows:
            writer.writerow({k: plain(v) if isinstance(v, str) else v for k, v in each.items()})
    return "cells.csv"
