"""The command `hpcfl data prepare`: converts a source to one prepared file, downloading it if needed."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hpcfl.data.convert import convert
from hpcfl.data.dataset import Dataset
from hpcfl.data.prepared_file import (
    check_written,
    is_prepared,
    open_prepared,
    prepared_path,
    verify_images,
)
from hpcfl.data.sources import user_data
from hpcfl.data.sources.fetch import ProgressCallback, SourceFiles
from hpcfl.data.sources.raw_dataset import RawDataset
from hpcfl.data.sources.registry import EMNIST, KNOWN_DATASETS
from hpcfl.errors import BadInput, nearest
from hpcfl.utils.files import move_into_place, remove_leftovers, temporary_path

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def prepare(name: str, source: str | None, root: str, size: int | None, fresh: bool) -> Iterator[str]:
    """Prepares a dataset (for `emnist`, all its splits) and yields a message for each."""
    names = [f"emnist-{split}" for split in EMNIST] if name == "emnist" else [name]
    if len(names) > 1 and source and (source.startswith(user_data.PREFIX) or source.endswith(".npz")):
        raise BadInput(f"emnist is six datasets; give --source {source} a name of its own")
    for dataset in names:
        yield _prepare_one(dataset, source, Path(root), size, fresh)


def _prepare_one(name: str, source: str | None, root: Path, size: int | None, fresh: bool) -> str:
    if not NAME.fullmatch(name) or name == "spiral":
        raise BadInput(
            f"{name!r} cannot be a dataset's name: letters, digits, . _ - are allowed, spiral is taken"
        )
    path = prepared_path(root, name)
    if is_prepared(path) and not fresh:
        data = open_prepared(path)
        verify_images(data)
        return f"{path} is there already: {describe(data)}; --fresh makes it again"
    if name not in KNOWN_DATASETS and source is None:
        raise BadInput(
            f"{name!r} is not known{nearest(name, [*KNOWN_DATASETS, 'emnist'])}: give your own data with "
            "--source (an .npz, an image folder, or torchvision:CLASS), or choose from "
            f"{', '.join(KNOWN_DATASETS)}"
        )
    try:
        root.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path)
        remove_leftovers(root / name)
        with (
            _progress_bar() as report_progress,
            temporary_path(root / name) as scratch,
            temporary_path(path) as temporary,
        ):
            scratch.mkdir()
            files = SourceFiles(None, root / "sources", scratch.resolve(), report_progress)
            raw = _open(name, source, files)
            if size is None and name in KNOWN_DATASETS:
                size = KNOWN_DATASETS[name].size
            checksum = convert(raw, size, temporary, report_progress, _provenance(files, size))
            check_written(temporary, checksum)
            move_into_place(temporary, path)
    except OSError as error:
        raise BadInput(
            f"cannot prepare {name}: {error.strerror or error}: {error.filename or path}"
        ) from None
    data = open_prepared(path)
    origin = source or data.provenance["source"][0].partition(" (")[0].rpartition("/")[0]
    return f"{path}: {describe(data)}, from {origin}; use it with data.name = {name!r}"


def describe(data: Dataset) -> str:
    """Returns a one-line description of a dataset."""
    channels, height, width = data.shape
    text = (
        f"{len(data.y)} images {height}×{width}×{channels} ({data.num_train} train, "
        f"{len(data.y) - data.num_train} test), {data.classes} classes"
    )
    return text if data.writer_ids is None else f"{text}, {data.writer_ids.max() + 1} writers"


def _open(name: str, source: str | None, files: SourceFiles) -> RawDataset:
    """Opens the user's `source`, or the files of a known dataset."""
    if source is not None and source.startswith(user_data.PREFIX):
        return user_data.torchvision_class(files, source)
    if source is not None:
        files.source = Path(source)
        if not files.source.exists():
            raise BadInput(f"--source {source}: there is no such file or directory")
        if files.source.suffix == ".npz":
            return user_data.npz_file(files, files.source)
    if name in KNOWN_DATASETS:
        return KNOWN_DATASETS[name].open(files)
    assert files.source is not None
    if not files.source.is_dir():
        raise BadInput(
            f"--source {source}: must be an .npz, a directory with one folder of images per class, "
            "or torchvision:CLASS"
        )
    return user_data.image_folder(files, files.source)


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
