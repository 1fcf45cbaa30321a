"""Writes a prepared file from an opened source, under a temporary name until it is complete and verified."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hpcfl.data.convert import Resize, convert
from hpcfl.data.prepared_file import check_written, is_prepared, open_prepared
from hpcfl.data.sources.fetch import ProgressCallback, SourceFiles
from hpcfl.data.sources.raw_dataset import RawDataset
from hpcfl.data.split_file import write_split
from hpcfl.errors import BadInput
from hpcfl.utils.files import move_into_place, remove_leftovers, temporary_path


def write_prepared(
    path: Path,
    open_source: Callable[[SourceFiles], RawDataset],
    size: int | None,
    resize: Resize,
    about: dict[str, str],
    replaces: bool = True,
) -> None:
    """Writes the samples of a source to a prepared file, and its split, if it has one, beside it.

    `about` joins the provenance. Unless `replaces`, a file that is there must have the same content.
    """
    root, scratch_path = path.parent, path.with_suffix("")
    try:
        root.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path)
        remove_leftovers(scratch_path)
        with (
            _progress_bar() as report_progress,
            temporary_path(scratch_path) as scratch,
            temporary_path(path) as temporary,
        ):
            scratch.mkdir()
            files = SourceFiles(None, root / "sources", scratch.resolve(), report_progress)
            raw = open_source(files)
            provenance = _provenance(files, size) | about
            checksum = convert(raw, size, temporary, report_progress, provenance, resize)
            if is_prepared(path) and not replaces:
                if open_prepared(path).checksum != checksum:
                    raise BadInput(f"{path} is there already, with other samples: fresh=True replaces it")
                return
            check_written(temporary, checksum)
            if raw.split is not None:
                write_split(split_path(path), raw.split)
            move_into_place(temporary, path)
    except OSError as error:
        raise BadInput(
            f"cannot prepare {path.stem}: {error.strerror or error}: {error.filename or path}"
        ) from None


def split_path(path: Path) -> Path:
    """Returns where the split of a source lies that brings one."""
    return path.with_name(f"{path.stem}-split.npz")


def _provenance(files: SourceFiles, size: int | None) -> dict[str, Any]:
    return {
        "source": files.used,
        "size": size,
        "prepared": datetime.now(UTC).isoformat(timespec="seconds"),
        **{name: version(name) for name in ("hpcfl", "torchvision", "pillow")},
    }


@contextlib.contextmanager
def _progress_bar() -> Iterator[ProgressCallback]:
    """Yields a callback that updates a progress bar; it shows nothing without a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("loading torchvision", total=None)
        yield lambda what, done, total: progress.update(task, description=what, completed=done, total=total)
