"""The papers' claims: decided by paired differences, by numbers derived by hand."""

from __future__ import annotations

import re

import pytest

from hpcfl.report.claims import claims_table
from hpcfl.report.reference_file import read_reference, reference_of_study
from hpcfl.report.series import make_settings
from hpcfl.share.lookup import REFERENCES
from hpcfl.study.study_file import read_study
from tests.helpers.mpi import ROOT
from tests.helpers.records import record

HEAD = {"head": (0.5, 0.5)}
CLAIM = """
[[claim]]
says = "FedTGP is above FedProto"
paper = "A paper"
place = "Table 1"
higher = { method.name = "fedtgp" }
lower = { method.name = "fedproto" }
measure = "accuracy"
stated = 10.6
"""


def row(tmp_path, gains: dict[int, float], seeds_of_lower=(0, 1, 2)) -> list[str]:
    """Returns the row of the claim for runs of FedTGP so much better than FedProto, by seed."""
    (tmp_path / "c.toml").write_text(CLAIM)
    runs = [record("fedproto", HEAD, f"seed={s}", rounds=(0.3 + s / 10,)) for s in seeds_of_lower]
    runs += [record("fedtgp", HEAD, f"seed={s}", rounds=(0.3 + s / 10 + gain,)) for s, gain in gains.items()]
    [found] = claims_table(read_reference(tmp_path / "c.toml").claims, make_settings(runs), False).rows
    return [cell.text for cell in found]


def test_a_claim_holds_if_the_interval_is_above_zero(tmp_path):
    """Gains of 4, 5 and 6 points: mean 5, std 1, half 4.302653/√3 = 2.48."""
    found = row(tmp_path, {0: 0.04, 1: 0.05, 2: 0.06})
    assert found == [
        *("FedTGP is above FedProto", "A paper, Table 1", "accuracy, points", "+10.60", "+5.00"),
        *("+2.52 to +7.48", "3", "holds"),
    ]


@pytest.mark.parametrize(
    ("gains", "end"),
    [
        ({0: -0.04, 1: -0.05, 2: -0.06}, ["−5.00", "−7.48 to −2.52", "3", "does not hold"]),
        ({0: 0.01, 1: 0.02, 2: 0.03}, ["+2.00", "−0.48 to +4.48", "3", "undecided"]),
        ({0: 0.04}, ["+4.00", "–", "1", "undecided"]),
        ({7: 0.04}, ["–", "–", "0", "not run"]),
        ({}, ["–", "–", "0", "not run"]),
    ],
)
def test_other_verdicts(tmp_path, gains, end):
    assert row(tmp_path, gains)[4:] == end


def test_runs_of_another_split_are_not_compared(tmp_path):
    (tmp_path / "c.toml").write_text(CLAIM)
    runs = [
        record("fedproto", HEAD, checksum_split="a"),
        record("fedtgp", HEAD, checksum_split="b"),
    ]
    [found] = claims_table(read_reference(tmp_path / "c.toml").claims, make_settings(runs), False).rows
    assert found[-1].text == "not run"


def test_the_claims_are_about_methods_of_their_study_and_stand_in_the_papers_tables():
    """A stated difference is that of two numbers of the papers' tables."""
    claims = reference_of_study("claims-chosen").claims
    methods = {cell.settings["method.name"] for cell in read_study("claims").cells}
    assert len(methods) == 8
    files = {"FedTGP": "fedtgp", "ProtoNorm": "protonorm", "FedORGP": "fedorgp", "FedSAP": "fedsap"}
    for claim in claims:
        assert {claim.higher["method.name"], claim.lower["method.name"]} <= methods
        tables = read_reference(REFERENCES / f"{files.get(claim.paper, 'sparse')}.toml").tables
        name = claim.place.partition(",")[0]
        [published] = [each for each in tables if each.table.name == name]
        rows = [[each.number.value if each else None for each in line] for line in published.rows]
        gaps = {
            round(abs(a - b), 4)
            for column in zip(*rows, strict=True)
            for a in column
            for b in column
            if a is not None and b is not None
        }
        assert claim.stated in gaps, claim.says


def test_the_page_has_every_claim():
    page = (ROOT / "docs" / "papers.md").read_text()
    section = page.split("## Claims")[1].split("\n## ")[0]
    for claim in reference_of_study("claims").claims:
        assert re.search(re.escape(f"| {claim.says} | {claim.paper}, {claim.place} |"), section), claim.says
