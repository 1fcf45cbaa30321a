"""`hpcfl report`: the page is whole, safe and needs no network; every figure is there or says why not."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from markupsafe import escape

from hpcfl.config.identity import identity
from hpcfl.config.loading import load_config, parse_config
from hpcfl.log.reader import read_log
from hpcfl.report.command import config_names
from hpcfl.report.figures import catalogue
from hpcfl.report.page import inline_svg, page_runs
from hpcfl.report.records import make_record
from tests.helpers.records import record
from tests.helpers.runs import SHORT, assert_equal_runs, options
from tests.report.conftest import TITLE

VOID = {"meta", "input", "br", "link", "img", "hr"}
BLOCKS = {
    "p",
    "div",
    "section",
    "figure",
    "table",
    "ul",
    "fieldset",
    "h1",
    "h2",
    "h3",
    "header",
    "main",
    "nav",
}
INTERACTIVE = {"a", "button", "input"}
PARENTS = {
    "tr": None,
    "td": "tr",
    "th": "tr",
    "li": "ul",
    "figcaption": "figure",
    "legend": "fieldset",
    "main": "body",
}
PARTS = {"train": slice(0, 60), "test": slice(60, None)}
OWN_NETWORK = """
from torch import nn

def net(shape, features):
    return nn.Sequential(nn.Linear(shape[0], features), nn.ReLU())
"""


class Page(HTMLParser):
    """Collects elements, ids, addresses and text of a page, and checks that elements are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.data: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(attrs) == len(dict(attrs)), "an attribute twice"
        assert not (tag in BLOCKS and {"p", "span", "a", "button", "label", "h1", "h2", "h3"} & {*self.open})
        assert not (tag in INTERACTIVE and {"a", "button"} & {*self.open})
        assert PARENTS.get(tag) in (None, self.open[-1] if self.open else None), f"{tag} in {self.open}"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.data.append(data)
        self.text += data

    def values(self, name: str) -> list[str]:
        return [value for _, attributes in self.elements if (value := attributes.get(name)) is not None]


@pytest.fixture(scope="module")
def page(report: tuple[Path, str]) -> Page:
    return Page((report[0] / "index.html").read_text("utf-8"))


def test_a_damaged_log_is_named_and_passed_over(report, page):
    assert re.search(r"passed over: cannot read \S+clients-local-4-s1.h5", report[1])
    assert "clients-local-4-s1.h5" in page.text[page.text.index("What is missing, and why") :]
    assert "index.html: " in report[1].splitlines()[-1]


def test_the_page_loads_nothing(page):
    assert [value for name in ("src", "data", "srcset", "action") for value in page.values(name)] == []
    addresses = [*page.values("href"), *page.values("xlink:href")]
    picture = "data:image/png;base64,"  # of a heatmap
    assert not [each for each in addresses if re.match(r"[a-z]+:|//", each) and not each.startswith(picture)]
    [policy] = [each for each in page.values("content") if "-src" in each]
    assert "default-src 'none'" in policy


def test_the_only_script_is_the_one_that_the_policy_allows(report, page):
    text = (report[0] / "index.html").read_text("utf-8")
    kinds = [attributes.get("type") for tag, attributes in page.elements if tag == "script"]
    assert {*kinds[:-1]} == {"application/json"}  # the values of the figures, which no browser runs
    assert kinds[-1] is None
    script = text[text.index("<script>") + 8 : text.rindex("</script>")]
    assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in text
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]


def test_a_hostile_title_is_text(page):
    heading = " ".join(TITLE.split())
    assert page.text.count(heading) == 2  # title and h1


def test_every_link_leads_to_a_file_or_a_place_in_the_page(report, page):
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    for target in [*page.values("href"), *page.values("xlink:href")]:
        if target.startswith("data:image/png"):
            continue
        assert target[1:] in ids if target.startswith("#") else (report[0] / target).is_file(), target
    places = re.findall(r"url\(#([^)]+)\)", (report[0] / "index.html").read_text("utf-8"))
    assert {*places} <= {*ids}


def test_pictures_have_a_text_and_can_be_toggled(page):
    pictures = [attributes for tag, attributes in page.elements if tag == "svg"]
    assert pictures
    assert all(each["role"] == "img" and each["aria-label"] for each in pictures)
    groups = [attributes["value"] for tag, attributes in page.elements if tag == "input"]
    classes = page.values("class")
    assert groups == ["series-0", "series-local"]
    assert all(group in classes for group in groups)


def test_figures_say_their_values(report, page):
    """Accuracy by round: a point for each row of the CSV file, by series, within the picture."""
    [values] = [json.loads(each) for each in page.data[:1]]
    rows = list(csv.DictReader((report[0] / "figures" / "accuracy-by-round.csv").read_text().splitlines()))
    assert sum(len(group["at"]) for group in values) == len(rows)
    assert {group["series"] for group in values} == {"series-0", "series-local"}
    [first] = [row for row in rows if row["method"] == "local" and row["setting"] == rows[0]["setting"]][:1]
    [group] = [group for group in values if group["series"] == "series-local"][:1]
    x, y, text = group["at"][0]
    assert text.startswith(f"round {float(first['round']):.0f}: {100 * float(first['accuracy mean']):.4g}")
    [box] = [each["viewbox"] for tag, each in page.elements if tag == "svg"][:1]
    width, height = map(float, str(box).split()[2:])
    assert 0 < x < width
    assert 0 < y < height


def test_every_figure_is_made_or_says_why_not(report, page):
    missing = page.text[page.text.index("What is missing, and why") :]
    made = []
    for entry in catalogue.FIGURES:
        if (report[0] / "figures" / f"{entry.name}.svg").exists():
            made.append(entry.name)
            text = (report[0] / "figures" / f"{entry.name}.csv").read_text("utf-8")
            rows = list(csv.reader(text.splitlines()))
            assert len(rows) > 1
            assert len({len(row) for row in rows}) == 1
            assert (report[0] / "figures" / f"{entry.name}.png").read_bytes().startswith(b"\x89PNG")
            assert (report[0] / "figures" / f"{entry.name}.pdf").read_bytes().startswith(b"%PDF")
        else:
            assert f"{entry.title}: no run" in missing
    assert len(catalogue.FIGURES) - len(made) == 12
    assert "Features in the plane: no run has saved test features (log.features_at)" in missing
    assert "Features that prototypes use: no run has saved global prototypes with zeros" in missing


def test_the_configuration_of_a_run_is_beside_the_page(report, page, study):
    assert f"hpcfl train {report[0]}/configs/clients-fedproto-4-s0.toml --out" in page.text
    config = load_config(str(report[0] / "configs" / "clients-fedproto-4-s0.toml"), [])
    log = read_log(study / "clients-fedproto-4-s0.h5")
    assert config == parse_config(log.attributes["config"])
    assert log.attributes["version_torch"] in page.text


def test_the_command_of_a_run_repeats_it_where_its_relative_paths_begin(hpcfl, tmp_path, monkeypatch):
    """Prepared data, a split in a file and a network of one's own, all relative to the run's directory."""
    place = tmp_path / "it's here"
    place.mkdir()
    monkeypatch.chdir(place)
    x_NF = np.random.default_rng(0).normal(size=(240, 4)).astype("float32")
    np.savez("own.npz", x=x_NF, y=np.arange(240) % 3)
    assert hpcfl("data", "prepare", "own", "--source", "own.npz").exit_code == 0
    split: dict[str, Any] = {
        f"{part}_{i}": np.arange(i, 240, 3)[cut] for i in range(3) for part, cut in PARTS.items()
    }
    np.savez("split.npz", **split)
    Path("repeat_net.py").write_text(OWN_NETWORK)
    settings = ["data.name=own", "partition.file=split.npz", "federation.clients=3", "federation.rounds=2"]
    command = ["hpcfl", "train", "--out", "w1.h5", *options(*settings, "models.list=['repeat_net:net']")]
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(command, check=True, env=environment, timeout=300)
    monkeypatch.chdir(tmp_path)
    assert hpcfl("report", place / "w1.h5", "-o", "a report").exit_code == 0
    [run] = page_runs([make_record(read_log(place / "w1.h5"))], ["configs/w1.toml"], tmp_path / "a report")
    assert escape(run.command) in (tmp_path / "a report" / "index.html").read_text()
    subprocess.run(run.command, shell=True, check=True, env=environment, timeout=300)
    assert_equal_runs(place / "w1.h5", place / "w1-again.h5")
    again = read_log(place / "w1-again.h5")
    assert identity(again.config) == identity(read_log(place / "w1.h5").config)


def test_config_names_are_harmless_and_differ():
    runs = [record("local", {}) for _ in range(2)]
    assert config_names(runs) == ["configs/local.toml", "configs/local-2.toml"]


def test_groups_of_a_series_get_a_class_and_ids_the_name_of_their_figure():
    svg = '<?xml?><!-- <b> --><svg width="1"><g id="series-0"><path id="a"/></g><use xlink:href="#a"/></svg>'
    assert inline_svg(svg, "f", 'A "title"') == (
        '<svg role="img" aria-label="A &#34;title&#34;" width="1"><g class="series-0">'
        '<path id="f-a"/></g><use xlink:href="#f-a"/></svg>'
    )


def test_a_second_report_replaces_the_first_and_nothing_else(hpcfl, monkeypatch):
    monkeypatch.setattr(catalogue, "FIGURES", catalogue.FIGURES[:1])
    hpcfl("train", *SHORT, "--out", "<b>$&.h5")
    assert hpcfl("report", "<b>$&.h5", "-o", "out").exit_code == 0
    Path("out/mine.txt").write_text("mine")
    assert hpcfl("report", "<b>$&.h5", "-o", "out", "--title", "again").exit_code == 0
    text = Path("out/index.html").read_text("utf-8")
    assert "<title>again</title>" in text
    assert "<b>" not in text
    assert Path("out/mine.txt").read_text() == "mine"
    assert sorted(path.name for path in Path("out/figures").iterdir()) == [
        f"accuracy-by-round.{suffix}" for suffix in ("csv", "pdf", "png", "svg")
    ]
    Path("other").mkdir()
    Path("other/index.html").write_text("mine")
    refused = hpcfl("report", "<b>$&.h5", "-o", "other")
    assert (refused.exit_code, refused.output) == (
        2,
        "hpcfl: other/index.html was not written by an export; choose another -o\n",
    )
    assert [path.name for path in Path("other").iterdir()] == ["index.html"]
    Path("linked").mkdir()
    Path("elsewhere").mkdir()
    Path("linked/figures").symlink_to(Path("elsewhere").absolute())
    assert hpcfl("report", "<b>$&.h5", "-o", "linked").exit_code == 2
    assert not [*Path("elsewhere").iterdir()]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nothing.h5", "-o", "out"], "cannot read nothing.h5: No such file or directory"),
        ([".", "-o", "out"], "holds no cells of a study"),
        ([".", "x.h5", "-o", "out"], "a report is about logs of runs, or about one directory of a study"),
        (["x.h5", "-o", "out", "--target", "90"], "90.0 is not in the range"),
        (["x.h5"], "Missing option '-o'"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(hpcfl, arguments, reason):
    done = hpcfl("report", *arguments)
    assert done.exit_code == 2
    assert reason in done.output
    assert not [*Path().iterdir()]
