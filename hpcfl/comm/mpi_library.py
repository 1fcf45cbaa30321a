"""Finds the MPI library that this Python uses, without initializing it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class MpiLibrary:
    """The MPI library's version text, its file, and the network transports loaded with it."""

    text: str = ""
    path: str = ""
    transports: tuple[str, ...] = ()
    trouble: str = ""
    """Why it cannot be loaded; empty if it can."""

    @property
    def name(self) -> str:
        """Its name and version."""
        first = self.text.split("\n")[0].split(",")[0]
        return " ".join(first.replace("Version:", "").split())

    @property
    def is_open_mpi(self) -> bool:
        return self.text.startswith("Open MPI")


TRANSPORTS = ("libucp", "libfabric", "libpsm2", "libpsm3", "libcxi", "libibverbs")


def find_mpi_library() -> MpiLibrary:
    """Loads the MPI library and returns what is known of it; MPI is not initialized."""
    try:
        from hpcfl.comm.mpi import MPI

        text = MPI.Get_library_version()
    except (ImportError, RuntimeError, OSError) as error:
        return MpiLibrary(trouble=" ".join(str(error).split()))
    files = _mapped_files()
    path = next((file for file in files if Path(file).name.startswith(("libmpi.", "libmpich."))), "")
    used = {name for file in files for name in TRANSPORTS if Path(file).name.startswith(f"{name}.")}
    return MpiLibrary(text.strip("\0 \n"), path, tuple(sorted(used)))


def _mapped_files() -> list[str]:
    """Returns the files that this process has mapped; empty without /proc."""
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return []
    return sorted({fields[-1] for line in lines if len(fields := line.split(maxsplit=5)) == 6})
