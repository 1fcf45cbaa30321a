"""A job script with stand-ins for all that it calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.jobs import Job


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)
