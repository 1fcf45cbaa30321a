"""Runs every study of the papers at small scale, one after another, and makes their tables.

Every cell must finish, and every number of a paper's table must have one of ours beside it.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from hpcfl.report.reference_file import slug, tables_of_study
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
    report = out.with_name(f"{out.name}-report")
    command = [sys.executable, "-m", "hpcfl", "report", str(out), "-o", str(report)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return [f"report: {done.stderr.strip()[-600:]}"]
    return [  # a short study has parts of its table
        problem
        for published in ([] if name.endswith("-short") else tables_of_study(out.name))
        for problem in missing_numbers(report / "tables" / f"paper-{slug(published.table.name)}.csv")
    ]


def missing_numbers(path: Path) -> list[str]:
    """Returns the numbers of a paper's table that have none of ours below them."""
    if not path.is_file():
        return [f"{path.name} is not there"]
    [head, *lines] = csv.reader(path.read_text().splitlines())
    found = []
    for paper, ours in zip(lines[::3], lines[1::3], strict=True):
        for column in range(2, len(head), 2):
            if paper[column] != "nan" and ours[column] == "nan":
                found.append(f"{path.stem}: none of ours at {paper[0]}, {head[column].removesuffix(' mean')}")
    return found


if __name__ == "__main__":
    sys.exit(main())
