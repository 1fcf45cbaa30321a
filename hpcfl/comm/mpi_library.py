"""Which MPI this Python would use, without starting it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class MpiLibrary:
    """What the MPI library says of itself, the file it is in, and the transports loaded with it."""

    text: str = ""
    path: str = ""
    transports: tuple[str, ...] = ()
    trouble: str = ""
    """Why it cannot be loaded; empty: it can."""

    @property
    def name(self) -> str:
        """Name and version in a few words."""
        first = self.text.split("\n")[0].split(",")[0]
        return " ".join(first.replace("Version:", "").split())

    @property
    def is_open_mpi(self) -> bool:
        return self.text.startswith("Open MPI")


TRANSPORTS = ("libucp", "libfabric", "libpsm2", "libpsm3", "libcxi", "libibverbs")


def find_mpi_library() -> MpiLibrary:
    """Returns the MPI library; loads it, and starts nothing."""
    try:
        from hpcfl.comm.mpi import MPI

        text = MPI.Get_library_version()
    except (ImportError, RuntimeError, OSError) as error:
        return MpiLibrary(trouble=" ".join(str(error).split()))
    files = _loaded()
    path = next((file for file in files if Path(file).name.startswith(("libmpi.", "libmpich."))), "")
    used = {name for file in files for name in TRANSPORTS if Path(file).name.startswith(f"{name}.")}
    return MpiLibrary(text.strip("\0 \n"), path, tuple(sorted(used)))


def _loaded() -> list[str]:
    """Returns the files that this process has mapped, where the system tells."""
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return []
    return sorted({fields[-1] for line in lines if len(fields := line.split(maxsplit=5)) == 6})
