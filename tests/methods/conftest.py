"""Fixtures of the tests of methods."""

from __future__ import annotations

import importlib
import sys

import pytest

from tests.helpers.own_code import write_ideas


@pytest.fixture(scope="module")
def ideas(tmp_path_factory: pytest.TempPathFactory):
    """A directory with own_ideas.py, from which it is imported into this process too."""
    directory = tmp_path_factory.mktemp("ideas")
    write_ideas(directory)
    sys.path.append(str(directory))
    importlib.invalidate_caches()
    yield directory
    sys.path.remove(str(directory))
    for name in ("own_ideas", "own_helper"):
        sys.modules.pop(name, None)
