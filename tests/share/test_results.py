"""docs/results: every row is one series of its study, which is shipped or in docs/results/studies."""

from __future__ import annotations

import pytest

from hpcfl.report.reference_file import fits, read_reference
from hpcfl.share.lookup import STUDIES
from hpcfl.study.study_file import read_study
from tests.helpers.mpi import ROOT
from tests.share.test_papers import series_of

DIRECTORY = ROOT / "docs" / "results"
RESULTS = sorted(DIRECTORY.glob("*.toml"))
CHOSEN = DIRECTORY / "studies"
"""Studies that `hpcfl study choose` wrote."""


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_every_row_is_one_series_of_its_study(path):
    [study] = [*STUDIES.glob(f"**/{path.stem}.toml"), *CHOSEN.glob(f"{path.stem}.toml")]
    all_series = series_of(read_study(study))
    tables = read_reference(path).tables
    assert tables
    for table in tables:
        for row in table.rows:
            for each in (each for each in row if each is not None):
                assert sum(fits(known, each.match) for known in all_series) == 1, each.number.place
