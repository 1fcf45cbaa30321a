"""Every shipped file that claims a paper's setting has what docs/settings.md says of that paper."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hpcfl.config.loading import load_config
from hpcfl.config.schema import Config
from hpcfl.data.sources.registry import PUBLISHED_FORMS
from hpcfl.methods.catalogue import method_spec
from hpcfl.share.lookup import CONFIGS, STUDIES
from hpcfl.study.keys import flatten
from hpcfl.study.study_file import read_study
from tests.helpers.mpi import ROOT

CLAIM = re.compile(r"^# Setting: ([A-Za-z ]+), (.+)$", re.MULTILINE)
PLACE = re.compile(r"^(Tables?|Fig\.) ([\d, ]+\d|\d+)")
FILES = [*sorted(CONFIGS.glob("*.toml")), *sorted(STUDIES.glob("**/*.toml"))]
CLAIMING = [path for path in FILES if CLAIM.search(path.read_text())]


@dataclass(frozen=True)
class Row:
    """Where `conditions` hold, `key` has this value; only in `tables`, if there are any."""

    conditions: tuple[tuple[str, Any], ...]
    key: str
    value: Any
    tables: frozenset[str]


def tables_of(text: str) -> frozenset[str]:
    """Returns the tables and figures that a text names, as in "Tables 1, 2 and Fig. 4"."""
    found = []
    for part in text.split(" and "):
        if match := PLACE.match(part):
            found += [f"{match[1].removesuffix('s')} {number}" for number in re.findall(r"\d+", match[2])]
    return frozenset(found)


@cache
def rows() -> dict[str, list[Row]]:
    """Returns the rows of the page by paper."""
    result: dict[str, list[Row]] = {}
    for section in (ROOT / "docs" / "settings.md").read_text().split("\n## ")[1:]:
        paper = section.partition("\n")[0]
        result[paper] = []
        for line in section.splitlines():
            if not line.startswith("| `"):
                continue
            first, values, place = (cell.strip() for cell in line.strip("|").split("|"))
            keys = re.findall(r"`([^`]+)`", first)
            for alternative in re.split(r" or (?=`)", values):
                value = [tomllib.loads(f"v = {text}")["v"] for text in re.findall(r"`([^`]+)`", alternative)]
                assert len(value) == len(keys), line
                conditions = tuple(zip(keys[:-1], value[:-1], strict=True))
                result[paper].append(Row(conditions, keys[-1], value[-1], tables_of(place)))
    return result


def values_of(config: Config) -> Any:
    """Returns a function: the value of a key in a run, that of [method] with what the catalogue adds."""
    name = config.data.name
    spec = method_spec(config.method, PUBLISHED_FORMS.get(name, (name,))[0])

    def value(key: str) -> Any:
        section, _, last = key.rpartition(".")
        if section == "method":
            for place in (config.method.options, getattr(spec, "options", {}), spec.settings.model_dump()):
                if place.get(last) is not None:
                    return place[last]
            return getattr(spec, last, getattr(config.method, last, None))
        return getattr(getattr(config, section) if section else config, last)

    return value


def problems(
    paper: str, tables: frozenset[str], config: Config, given: set[str], everything: bool = True
) -> list[str]:
    """Returns what contradicts the paper's rows, and keys outside [method] that the file leaves unsaid."""
    value, found = values_of(config), []
    allowed: dict[str, list[Any]] = {}
    for row in rows()[paper]:
        applies = not row.tables or row.tables & tables
        if applies and all(value(key) == wanted for key, wanted in row.conditions):
            allowed.setdefault(row.key, []).append(row.value)
    for key, choices in allowed.items():
        if value(key) not in choices:
            found.append(f"{key} = {value(key)!r}, in the paper {choices}")
        if everything and key not in given and not key.startswith("method."):
            found.append(f"{key} is not said")
    return found


def test_what_looks_like_a_claim_is_one():
    for path in FILES:
        first = path.read_text().partition("\n")[0]
        claims = re.search(r"as in .*Table|^# The tables of ", first)
        assert bool(claims) <= (path in CLAIMING), path.name
    assert {path.stem for path in FILES if path not in CLAIMING} == {
        *("quickstart", "fmnist"),
        *(
            "scalability",
            "heterogeneity",
            "devices",
            "methods",
            "claims",
            "comparison",
            "comparison_fmnist",
            "sparse_table1",
            "fedsap_table3",
            "fedsap_table4",
            "fedtgp-table10-short",
            "fedtgp-habits",
        ),
    }


@pytest.mark.parametrize("path", CLAIMING, ids=lambda path: path.stem)
def test_a_file_has_the_setting_that_it_claims(path):
    match = CLAIM.search(path.read_text())
    assert match
    paper, tables = match[1], tables_of(match[2])
    assert paper in rows()
    assert tables
    if path.parent == CONFIGS:
        given = flatten(tomllib.loads(path.read_text()), "")
        assert problems(paper, tables, load_config(str(path)), set(given)) == []
        return
    blocks: set[str] = set()
    for cell in read_study(path).cells:
        assert cell.config is not None
        label = re.match(r"(table|fig)(\d+)", cell.block)
        named = {"table": "Table", "fig": "Fig."}[label[1]] + f" {label[2]}" if label else None
        own = frozenset([named]) if named else tables
        assert own <= tables
        blocks |= own
        assert problems(paper, own, cell.config, set(cell.settings)) == [], cell.name
    assert blocks == tables


def test_the_page_names_its_files():
    page = (ROOT / "docs" / "settings.md").read_text()
    for section in page.split("\n## ")[1:]:
        paper = section.partition("\n")[0]
        opening = section.partition("\n| ")[0]
        for path in CLAIMING:
            match = CLAIM.search(path.read_text())
            assert match
            name = f"papers/{path.stem.partition('-')[0]}-*" if path.parent.name == "papers" else path.stem
            assert (match[1] == paper) == (f"`{name}`" in opening), path.stem
    for papers_rows in rows().values():
        assert {row.key for row in papers_rows} >= {
            *("data.name", "data.normalise", "partition.name", "models.group", "models.features"),
            *("models.same_start", "models.style", "train.lr", "train.momentum", "train.batch_size"),
            *("train.epochs", "federation.clients", "federation.participation", "federation.rounds"),
            *("method.distance", "method.weight"),
        }


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("fedtgp", "models.same_start=false", "models.same_start = False, in the paper [True]"),
        ("fedtgp", "method.weight=0.1", "method.weight = 0.1, in the paper [10.0]"),
        ("fedtgp", "models.features=64", "models.features = 64, in the paper [512]"),
        ("fedorgp", "partition.min_samples=40", "partition.min_samples = 40, in the paper [128]"),
        ("protonorm", "data.name=tinyimagenet-train", "method.scale = 200.0, in the paper [400.0]"),
        ("protonorm", "data.name=tinyimagenet", "data.name = 'tinyimagenet', in the paper"),
        ("fedsap", "method.proxy=0.0", "method.proxy = 0.0, in the paper [1.0]"),
    ],
)
def test_what_differs_is_found(name: str, settings: str, says: str):
    path = CONFIGS / f"{name}.toml"
    match = CLAIM.search(path.read_text())
    assert match
    config = load_config(str(path), [settings])
    found = problems(match[1], tables_of(match[2]), config, set(), everything=False)
    assert any(problem.startswith(says) for problem in found), found


def test_what_is_not_said_is_found(tmp_path: Path):
    text = (CONFIGS / "fedtgp.toml").read_text().replace("same_start = true\n", "")
    (tmp_path / "c.toml").write_text(text)
    given = set(flatten(tomllib.loads(text), ""))
    found = problems("FedTGP", frozenset(["Table 1"]), load_config(str(tmp_path / "c.toml")), given)
    assert "models.same_start is not said" in found
