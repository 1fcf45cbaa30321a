"""`hpcfl data prepare` as a function, and what it left behind checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcfl.data.sources import mnist


@pytest.fixture(autouse=True)
def _no_debian(monkeypatch, tmp_path):
    monkeypatch.setattr(mnist, "DEBIAN", tmp_path / "no-package")


@pytest.fixture
def prepare(hpcfl):
    """Returns `prepare(*arguments, says="", code=0)`: runs the command; what it may leave is checked."""

    def run(*arguments: object, says: str = "", code: int = 0) -> str:
        done = hpcfl("data", "prepare", "--root", "root", *arguments)
        assert done.exit_code == code, done.output
        assert says in done.output
        if code:
            assert done.output.startswith("hpcfl: ")
            assert done.output.count("\n") == 1
            assert not done.exception or isinstance(done.exception, SystemExit)
        left = {path.name for path in Path("root").iterdir()} if Path("root").exists() else set()
        assert not [name for name in left if name.endswith(".part")]
        if code:
            assert not [name for name in left if name.endswith(".h5")]
        return done.output

    return run
