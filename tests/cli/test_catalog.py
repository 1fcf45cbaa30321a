"""`hpcfl catalog NAME`: what a method or a part is, and its options."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hpcfl.methods.catalogue import CATALOGUE
from hpcfl.methods.describe import describe
from hpcfl.methods.parts import PARTS

NAMES = sorted({*CATALOGUE, *(name for parts in PARTS.values() for name in parts)})


@pytest.mark.parametrize("name", NAMES)
def test_every_name_has_a_description_and_documented_options(name):
    tables = describe(name)
    assert tables
    for title, rows in tables.items():
        if not title.startswith("options"):
            assert {row[0]: row[1] for row in rows}["about"]
        for row in rows if title.startswith("options") else ():
            assert len(row) == 4
            assert all(row), f"{name}: {row}"


def test_a_whole_algorithm():
    rows = describe("fedgh")["options of method.name = 'fedgh'"]
    assert [row[:3] for row in rows] == [
        ("method.server_lr", "float > 0", "0.01"),
        ("method.server_epochs", "int ≥ 1", "1"),
        ("method.server_batch", "int ≥ 1", "unset"),
        ("method.infer", "head | trained", "head"),
    ]
    assert rows[1][3] == "Epochs over the uploaded prototypes per round."


def test_a_baseline_with_prototypes_shows_both_inferences():
    rows = describe("fedmps")["options of method.name = 'fedmps'"]
    assert rows[-1][:3] == ("method.infer", "head | global", "head")
    assert not [row for row in describe("fml")["options of method.name = 'fml'"] if row[0] == "method.infer"]


def test_a_prototype_method_shows_its_own_values():
    rows = {row[0]: row[1:3] for row in describe("fedtgp-fm")["options of method.name = 'fedtgp-fm'"]}
    assert rows["method.refine"][1] == "tgp"
    assert rows["method.margin"] == ("max-min | max-pair | fixed | none", "fixed")
    assert rows["method.weight"] == ("float ≥ 0", "10.0")


def test_a_name_of_a_method_and_of_a_refinement_shows_both():
    titles = list(describe("simplex"))
    assert titles[0] == "method.name = 'simplex'"
    assert "method.refine = 'simplex'" in titles
    assert ("unit_length", "True") in describe("simplex")["method.refine = 'simplex'"]


def test_an_unknown_name_is_one_sentence(hpcfl):
    done = hpcfl("catalog", "fedtpg")
    assert done.exit_code == 2
    assert done.output.startswith("hpcfl: NAME = 'fedtpg': allowed is one of ")
    assert done.output.endswith("(nearest: fedtgp)\n")


def test_the_command_prints_the_options(hpcfl):
    done = hpcfl("catalog", "fedgh")
    assert done.exit_code == 0
    assert "method.server_lr" in done.output


def test_own_names_load_no_torch():
    program = (
        "import sys; from click.testing import CliRunner; from hpcfl.cli import main; "
        "code = CliRunner().invoke(main, ['catalog', 'fedtgp']).exit_code; "
        "print(code, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0 False"


OWN = '''
from typing import Annotated, Literal
from pydantic import Field
from hpcfl.config.section import Section
from hpcfl.methods.aggregate import Aggregate


class Mine(Aggregate):
    """What it is.

    More of it."""

    paper = "Me, 2030 [1]"
    needs_counts = True

    class Options(Section):
        share: Annotated[float, Field(gt=0, lt=1)] = 0.5
        """A share [of all]."""
        kind: Literal["a", "b"] = "b"
        """One of two."""
        limit: int | None = None
        """May be left out."""


def far(z, target):
    """A distance."""
'''


def test_an_import_path(hpcfl, tmp_path, monkeypatch):
    (tmp_path / "own_catalog.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    done = hpcfl("catalog", "own_catalog:Mine")
    assert done.exit_code == 0, done.output
    assert "Me, 2030 [1]" in done.output
    assert "A share [of all]." in done.output
    tables = describe("own_catalog:Mine")
    assert tables["method.aggregate = 'own_catalog:Mine'"] == [
        ("about", "What it is."),
        ("paper", "Me, 2030 [1]"),
        ("code", "own_catalog:Mine"),
        ("needs_counts", "True"),
    ]
    assert tables["options of method.aggregate = 'own_catalog:Mine'"] == [
        ("method.share", "float > 0 < 1", "0.5", "A share [of all]."),
        ("method.kind", "a | b", "b", "One of two."),
        ("method.limit", "int", "unset", "May be left out."),
    ]
    assert describe("own_catalog:far")["method.distance = 'own_catalog:far'"][0] == ("about", "A distance.")
    done = hpcfl("catalog", "own_catalog:Other")
    assert done.exit_code == 2
    assert "has no Other" in done.output
