"""Ways to run hpcfl in tests: in this process, as a command, and under both MPIs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hpcfl.bench import stand_in
from hpcfl.cli import main
from tests.helpers.mpi import ROOT, Mpi, mpich, open_mpi
from tests.helpers.studies import TINY

LAUNCHER_VARIABLES = ("PMI_", "OMPI_", "PMIX_", "SLURM_", "HYDI_")


def pytest_configure() -> None:
    """Lets torch know the stand-in device, of which there is none until a test asks, before any training."""
    if stand_in.is_possible():
        stand_in.prepare()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what starts mpirun: all of tests/mpi, and whatever uses the fixture `mpi`."""
    for item in items:
        if ROOT / "tests" / "mpi" in item.path.parents or "mpi" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.mpi)


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run alone even if pytest itself runs in a batch job."""
    for name in list(os.environ):
        if name.startswith((*LAUNCHER_VARIABLES, "HPCFL_")):
            monkeypatch.delenv(name)
    monkeypatch.delenv("COLUMNS", raising=False)  # parallel workers of pytest have it


@pytest.fixture
def hpcfl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Returns `hpcfl` as a function of its arguments, run in this process in an empty directory."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A study that takes seconds."""
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture(params=["mpich", "openmpi"])
def mpi(request: pytest.FixtureRequest) -> Mpi:
    return {"mpich": mpich, "openmpi": open_mpi}[request.param]()
