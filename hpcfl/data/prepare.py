"""`hpcfl data prepare`: from a source to one prepared file, once, on a machine that may use the internet."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hpcfl.data.convert import convert
from hpcfl.data.dataset import Dataset
from hpcfl.data.prepared_file import is_prepared, open_prepared, prepared_path, verify_images
from hpcfl.data.sources import user_data
from hpcfl.data.sources.fetch import SourceFiles
from hpcfl.data.sources.raw_dataset import RawDataset
from hpcfl.data.sources.registry import EMNIST, KNOWN_DATASETS
from hpcfl.errors import BadInput, nearest
from hpcfl.utils.files import move_into_place, part_file, remove_leftovers

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def prepare(name: str, source: str | None, root: str, size: int | None, fresh: bool) -> Iterator[str]:
    """Prepares a dataset (of `emnist` every split) and yields what was done, in words."""
    names = [f"emnist-{split}" for split in EMNIST] if name == "emnist" else [name]
    if len(names) > 1 and source and (source.startswith(user_data.PREFIX) or source.endswith(".npz")):
        raise BadInput(f"emnist is six datasets; give --source {source} a name of its own")
    for each in names:
        yield _prepare(each, source, Path(root), size, fresh)


def _prepare(name: str, source: str | None, root: Path, size: int | None, fresh: bool) -> str:
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
            f"{name!r} is not known{nearest(name, [*KNOWN_DATASETS, 'emnist'])}: give your own data with --source "
            f"(an .npz, an image folder, or torchvision:CLASS), or choose from {', '.join(KNOWN_DATASETS)}"
        )
    try:
        root.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path)
        remove_leftovers(root / name)
        with _bar() as show, part_file(root / name) as scratch, part_file(path) as part:
            scratch.mkdir()
            where = SourceFiles(None, root / "sources", scratch.resolve(), show)
            found = _open(name, source, where)
            if size is None and name in KNOWN_DATASETS:
                size = KNOWN_DATASETS[name].size
            convert(found, size, part, show, _provenance(where, size))
            move_into_place(part, path)
    except OSError as error:
        raise BadInput(
            f"cannot prepare {name}: {error.strerror or error}: {error.filename or path}"
        ) from None
    data = open_prepared(path)
    origin = source or data.provenance["source"][0].partition(" (")[0].rpartition("/")[0]
    return f"{path}: {describe(data)}, from {origin}; use it with data.name = {name!r}"


def describe(data: Dataset) -> str:
    """Returns a dataset in a few words."""
    channels, height, width = data.shape
    said = (
        f"{len(data.y)} images {height}×{width}×{channels} ({data.train} train, "
        f"{len(data.y) - data.train} test), {data.classes} classes"
    )
    return said if data.writer is None else f"{said}, {data.writer.max() + 1} writers"


def _open(name: str, source: str | None, where: SourceFiles) -> RawDataset:
    """Opens what the user gave, or the files of a known dataset."""
    if source is not None and source.startswith(user_data.PREFIX):
        return user_data.torchvision_class(where, source)
    if source is not None:
        where.source = Path(source)
        if not where.source.exists():
            raise BadInput(f"--source {source}: there is no such file or directory")
        if where.source.suffix == ".npz":
            return user_data.npz_file(where, where.source)
    if name in KNOWN_DATASETS:
        return KNOWN_DATASETS[name].open(where)
    assert where.source is not None
    if not where.source.is_dir():
        raise BadInput(
            f"--source {source}: must be an .npz, a directory with one folder of images per class, "
            "or torchvision:CLASS"
        )
    return user_data.image_folder(where, where.source)


def _provenance(where: SourceFiles, size: int | None) -> dict[str, Any]:
    return {
        "source": where.used,
        "size": size,
        "prepared": datetime.now(UTC).isoformat(timespec="seconds"),
        **{name: version(name) for name in ("hpcfl", "torchvision", "pillow")},
    }


@contextlib.contextmanager
def _bar() -> Iterator[Callable[[str, int, int | None], None]]:
    """Yields a function that shows how far something is; nothing where there is no terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("loading torchvision", total=None)
        yield lambda what, done, total: progress.update(task, description=what, completed=done, total=total)
