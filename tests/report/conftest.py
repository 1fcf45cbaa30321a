"""A small study for reports."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from hpcfl.cli import main
from tests.helpers.studies import GOOD, TINY, start


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a finished study with one diverged cell; tests do not change it."""
    path = tmp_path_factory.mktemp("study") / "tiny.toml"
    path.write_text(TINY)
    assert start(path, [*GOOD, "odd-lr=1e+30"]) == 1
    return path.parent / "out"


TITLE = "<script>alert('x')</script> \"quoted\" & 50% $x_1$\nsecond line"


@pytest.fixture(scope="session")
def report(study: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The directory of a report about the study with one damaged log, and what the command printed."""
    place = tmp_path_factory.mktemp("report")
    logs = Path(shutil.copytree(study, place / "logs"))
    (logs / "clients-local-4-s1.h5").write_bytes(b"damaged")
    before = {path: path.read_bytes() for path in logs.rglob("*") if path.is_file()}
    arguments = ["report", str(logs), "-o", str(place / "out"), "--title", TITLE]
    done = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert {path: path.read_bytes() for path in logs.rglob("*") if path.is_file()} == before
    assert sorted(path.name for path in place.iterdir()) == ["logs", "out"]
    return place / "out", done.output
