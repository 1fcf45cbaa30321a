"""A small study for reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.studies import GOOD, TINY, start


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a finished study with one diverged cell; tests do not change it."""
    path = tmp_path_factory.mktemp("study") / "tiny.toml"
    path.write_text(TINY)
    assert start(path, [*GOOD, "odd-lr=1e+30"]) == 1
    return path.parent / "out"
