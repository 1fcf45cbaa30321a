"""The papers' numbers: each is a series of its study, and stands in the paper's text."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from hpcfl.config.identity import settings
from hpcfl.report.reference_file import Published, PublishedTable, fits, read_reference, slug, study_of
from hpcfl.report.reference_types import BLOCK
from hpcfl.share.lookup import REFERENCES
from hpcfl.study.cells import seed_group
from hpcfl.study.study_file import Study, read_study
from tests.helpers.mpi import ROOT

TEXTS = ROOT.parent / "shared" / "papers"
FILES = {"sparse": "sparse-prototypes"}
"""Texts of papers that have another name here."""
TABLES = [
    pytest.param(path.stem, each, id=f"{path.stem}-{slug(each.table.name)}")
    for path in sorted(REFERENCES.glob("*.toml"))
    for each in read_reference(path).tables
]
each_table = pytest.mark.parametrize(("paper", "published"), TABLES)


def series_of(study: Study) -> list[dict]:
    """Returns what is known of the runs of each series of a study."""
    groups: dict[tuple[str, str], list] = {}
    for cell in study.cells:
        groups.setdefault(seed_group(cell.block, cell.values), []).append(cell)
    return [
        {**settings(cells[0].config), **cells[0].values, BLOCK: cells[0].block} for cells in groups.values()
    ]


@each_table
@pytest.mark.parametrize("scale", ["full", "small"])
def test_every_number_is_one_series_of_its_study(paper: str, published: PublishedTable, scale: str):
    """A run may stand in two columns, as τ = 100 and S = 100 of FedTGP's Table 7 do, with the same number."""
    all_series = series_of(read_study(f"papers/{study_of(paper, published)}", scale))
    used: dict[tuple[int, str, int | None], tuple[float, float | None]] = {}
    for row in published.rows:
        for each in row:
            if each is not None:
                found = [n for n, known in enumerate(all_series) if fits(known, each.match)]
                assert len(found) == 1, each.number.place
                stated = each.number.value, each.number.deviation
                meant = found[0], each.number.measure, each.number.round
                assert used.setdefault(meant, stated) == stated, f"{each.number.place}: of another run"
    if not published.table.study:
        empty = sum(each is None for row in published.rows for each in row)
        assert len(all_series) - len({n for n, *_ in used}) <= empty, "a series that the table does not have"


@each_table
def test_numbers_have_the_papers_digits(paper: str, published: PublishedTable):
    for each in (each for row in published.rows for each in row if each is not None):
        for number in numbers_of(each):
            assert round(number, each.decimals) == number, each.number.place


def numbers_of(each: Published) -> list[float]:
    return [each.number.value] + ([] if each.number.deviation is None else [each.number.deviation])


def numbers_in(line: str) -> list[str]:
    """Returns the numbers of a line, and 4.25 where it has 4.254.25."""
    line = re.sub(r"(?<=\d)(?:,|\{,\})(?=\d{3})", "", line)
    found = []
    for number in re.findall(r"\d[\d.]*", line):
        half = number[: len(number) // 2]
        found += [number.rstrip(".")] + ([half] if number == 2 * half else [])
    return found


@each_table
def test_every_row_stands_in_the_text(paper: str, published: PublishedTable):
    """All numbers of a row are in one line of the paper's text, in the same order."""
    text = TEXTS / f"{FILES.get(paper, paper)}.md"
    if not text.is_file():
        pytest.skip(f"the paper's text is not there: {text}")
    lines = [numbers_in(line) for line in text.read_text().splitlines()]
    for row in published.rows:
        there = [each for each in row if each is not None]
        wanted = [f"{abs(number):.{each.decimals}f}" for each in there for number in numbers_of(each)]
        assert any(is_in_order(wanted, line) for line in lines), there[0].number.place


def is_in_order(wanted: Sequence[str], line: Sequence[str]) -> bool:
    """Returns whether a line has the numbers, in their order, perhaps with others between."""
    rest = iter(line)
    return all(number in rest for number in wanted)


def test_what_is_not_in_the_text_is_found():
    assert is_in_order(["1.00", "3.00"], ["1.00", "2.00", "3.00"])
    assert not is_in_order(["3.00", "1.00"], ["1.00", "2.00", "3.00"])
    assert not is_in_order(["1.00", "1.00"], ["1.00", "2.00"])
    assert numbers_in("0.15490.1549 at 10, 11,18211{,}182 on 12.") == [
        "0.15490.1549",
        "0.1549",
        "10",
        "1118211182",
        "11182",
        "12",
    ]
