"""Finds the job scripts, and copies them to where jobs are submitted from."""

from __future__ import annotations

import os
from pathlib import Path

from hpcfl.errors import BadInput

SHIPPED = Path(__file__).parent / "jobs"


def find_jobs() -> Path:
    """Returns the directory of the job scripts: HPCFL_JOBS, else ./jobs if there, else the shipped one."""
    if given := os.environ.get("HPCFL_JOBS"):
        return Path(given)
    return Path("jobs") if Path("jobs").is_dir() else SHIPPED


def copy_jobs(directory: Path) -> int:
    """Copies the shipped files that are missing and returns their number; none if a file there differs."""
    contents = {path.name: path.read_bytes() for path in sorted(SHIPPED.iterdir()) if path.is_file()}
    try:
        missing = [name for name, content in contents.items() if _is_missing(directory / name, content)]
        directory.mkdir(parents=True, exist_ok=True)
        for name in missing:
            _write(directory / name, contents[name])
    except OSError as error:
        raise BadInput(f"cannot write {error.filename or directory}: {error.strerror}") from None
    return len(missing)


def _is_missing(path: Path, content: bytes) -> bool:
    """Returns whether a file has to be copied; raises if another one is in its place."""
    if not os.path.lexists(path):
        return True
    if not path.is_file() or path.read_bytes() != content:
        raise BadInput(f"{path} differs from the shipped one: move it away, or name another directory")
    return False


def _write(path: Path, content: bytes) -> None:
    """Writes a new file, whole or not at all, and nothing where a link leads."""
    with open(path, "xb") as file:
        try:
            file.write(content)
            file.flush()
        except OSError:
            path.unlink()
            raise
