"""Rules about the pages: links, cited files and commands exist, lines are short, the index is complete."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest
import torch

from hpcfl.algorithms.build import build_algorithm
from hpcfl.cli import main
from hpcfl.config.loading import load_config
from hpcfl.federation.run_plan import plan_run
from hpcfl.models.pretrained import read_pretrained
from tests.helpers.mpi import ROOT

PAGES = sorted([ROOT / "README.md", ROOT / "hpcfl/share/jobs/README.md", *(ROOT / "docs").rglob("*.md")])
GENERATED = {ROOT / "docs/methods/combinations.md"}
"""Pages with generated lines, which may be long."""
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
CITED = re.compile(
    r"`((?:hpcfl|tests|tools|docs|methods|training|comm|engine|runtime|config|models|log)/[\w/.-]+)`"
)
COMMAND = re.compile(r"(?<![\w/.-])hpcfl ([a-z]+)(?: ([a-z]+))?")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def links(page: Path) -> list[tuple[Path, str]]:
    """Returns the file and the anchor of every link of a page that stays in the repository."""
    targets = [target.partition("#") for target in LINK.findall(FENCE.sub("", page.read_text()))]
    return [
        (page.parent / path if path else page, anchor) for path, _, anchor in targets if "://" not in path
    ]


def code(page: Path) -> str:
    """Returns the code of a page, in blocks and in lines."""
    text = page.read_text()
    return "\n".join([*FENCE.findall(text), *re.findall(r"`([^`]+)`", FENCE.sub("", text))])


def anchors(page: Path) -> set[str]:
    """Returns the anchors that GitHub makes of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_page
def test_links_lead_somewhere(page):
    """GitHub does not follow symbolic links of directories, so no link may lead through one."""
    for path, anchor in links(page):
        assert path.exists(), f"{page.name}: {path}"
        assert path.resolve() == ROOT.resolve() / os.path.relpath(path, ROOT), f"{page.name}: {path}"
        assert not anchor or anchor in anchors(path), f"{page.name}: #{anchor}"


def test_the_index_has_every_page():
    index = {path.resolve() for path, _ in links(ROOT / "docs/README.md")}
    assert {page for page in PAGES if page.name != "README.md"} <= index


@each_page
def test_cited_files_exist(page):
    for name in CITED.findall(page.read_text()):
        assert (ROOT / name).exists() or (ROOT / "hpcfl" / name).exists(), f"{page.name}: {name}"


@each_page
def test_named_commands_exist(page):
    for name, sub in COMMAND.findall(code(page)):
        assert isinstance(main, click.Group)
        assert name in main.commands, f"{page.name}: hpcfl {name}"
        command = main.commands[name]
        assert not isinstance(command, click.Group) or not sub or sub in command.commands, f"{name} {sub}"


@pytest.mark.parametrize("page", sorted({*PAGES} - GENERATED), ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_are_short(page):
    lines = page.read_text().splitlines()
    assert [line for line in lines if len(line) >= 120 and not line.startswith("|")] == []


def small_runs() -> list[str]:
    """Returns the commands of method pages and configurations that train on the built-in data."""
    pages = [code(page).replace("\\\n", " ") for page in PAGES if page.parent.name == "methods"]
    files = [path.read_text() for path in sorted((ROOT / "hpcfl/share/configs").glob("*.toml"))]
    lines = [line.strip("# ") for text in (*pages, *files) for line in text.splitlines()]
    return sorted({" ".join(line.split()) for line in lines if re.match("hpcfl train .*spiral", line)})


@pytest.mark.parametrize("command", small_runs())
def test_a_small_run_of_a_page_begins(command):
    """Data, networks and pretrained weights fit the method; no test trains for that many rounds."""
    name, *given = [word for word in shlex.split(command)[2:] if word != "--set"]
    assert all("=" in setting for setting in given)
    plan = plan_run(load_config(name, given))
    read_pretrained(
        plan.config.models.pretrained, plan.architectures, plan.data.shape, *plan.dims, plan.directory
    )
    build_algorithm(plan, torch.device("cpu"))


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) < 200


def test_the_method_of_the_readme_is_a_configuration(tmp_path):
    [method] = re.findall(r"^```toml\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "mine.toml").write_text(method)
    loaded = load_config(str(tmp_path / "mine.toml"), []).method
    assert {key: getattr(loaded, key) for key in tomllib.loads(method)["method"]} == tomllib.loads(method)[
        "method"
    ]
