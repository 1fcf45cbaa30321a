"""Runs every study of the papers at small scale, one after another, and makes their tables.

Every cell must finish, and every number of a paper's table must have one of ours beside it.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from hpcfl.report.records import read_records
from hpcfl.report.reference import paper_table
from hpcfl.report.reference_file import reference_of_study
from hpcfl.report.series import make_settings
from hpcfl.report.tables import Table
from hpcfl.share.lookup import STUDIES, shipped
from tests.helpers.mpi import MPICH


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools/test --stress papers", description=__doc__)
    names = [name for name, _ in shipped(STUDIES) if name.startswith("papers/")]
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=f"of {', '.join(names)}; default: all")
    parser.add_argument("-n", "--ranks", type=int, default=3, help="ranks of each study (default: 3)")
    parser.add_argument("--minutes", type=float, default=40, help="most that all may take (default: 40)")
    asked = parser.parse_args(arguments)
    if unknown := {*asked.studies} - {*names}:
        parser.error(f"no such study: {', '.join(sorted(unknown))}")
    began, problems = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="hpcfl-papers-") as folder:
        for name in asked.studies or names:
            start = time.monotonic()
            found = run_study(name, Path(folder) / name.rpartition("/")[2], asked.ranks)
            problems += [f"{name}: {problem}" for problem in found]
            words = "; ".join(found) or "complete"
            print(f"{name:<34} {time.monotonic() - start:6.0f} s  {words}", flush=True)
    minutes = (time.monotonic() - began) / 60
    print(f"{minutes:.1f} minutes, {len(problems)} problems")
    if minutes > asked.minutes:
        problems.append(f"more than {asked.minutes:g} minutes")
    return 1 if problems else 0


def run_study(name: str, out: Path, ranks: int) -> list[str]:
    """Returns what is wrong with a study's runs at small scale, or with its report."""
    run = ("-m", "hpcfl", "study", "run", name, "--scale", "small", "--out", out)
    done = MPICH.run(ranks, *run, timeout=3600)
    if done.returncode:
        return [f"exit code {done.returncode}: {(done.stdout + done.stderr).strip()[-600:]}"]
    records = read_records([str(out)])
    problems, settings = list(records.problems), make_settings(records.runs)
    for published in () if name.endswith("-short") else reference_of_study(out.name).tables:
        table = paper_table(published, settings, small=True)  # a short study has parts of its table
        problems += ["the table is not there"] if table is None else missing_numbers(table)
    return problems


def missing_numbers(table: Table) -> list[str]:
    """Returns the numbers of a paper's table that have none of ours below them."""
    return [
        f"{table.name}: none of ours at {paper[0].text}, {heading}"
        for paper, ours in zip(table.rows[::3], table.rows[1::3], strict=True)
        for heading, there, here in zip(table.columns, paper, ours, strict=True)
        if not math.isnan(there.mean) and math.isnan(here.mean)
    ]


if __name__ == "__main__":
    sys.exit(main())
