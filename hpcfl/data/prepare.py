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
from hpcfl.data.prepared_file import is_there, locate, open_prepared, verify
from hpcfl.data.sources import user_data as own
from hpcfl.data.sources.fetch import Where
from hpcfl.data.sources.raw_dataset import Found
from hpcfl.data.sources.registry import EMNIST, KNOWN
from hpcfl.errors import BadInput, nearest
from hpcfl.utils.files import aside, put, sweep

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def prepare(name: str, source: str | None, root: str, size: int | None, fresh: bool) -> Iterator[str]:
    """Prepares a dataset (of `emnist` every split) and yields what was done, in words."""
    names = [f"emnist-{split}" for split in EMNIST] if name == "emnist" else [name]
    if len(names) > 1 and source and (source.startswith(own.PREFIX) or source.endswith(".npz")):
        raise BadInput(f"emnist is six datasets; give --source {source} a name of its own")
    for each in names:
        yield _prepare(each, source, Path(root), size, fresh)


def _prepare(name: str, source: str | None, root: Path, size: int | None, fresh: bool) -> str:
    if not NAME.fullmatch(name) or name == "spiral":
        raise BadInput(
            f"{name!r} cannot be a dataset's name: letters, digits, . _ - are allowed, spiral is taken"
        )
    path = locate(root, name)
    if is_there(path) and not fresh:
        data = open_prepared(path)
        verify(data)
        return f"{path} is there already: {describe(data)}; --fresh makes it again"
    if name not in KNOWN and source is None:
        raise BadInput(
            f"{name!r} is not known{nearest(name, [*KNOWN, 'emnist'])}: give your own data with --source "
            f"(an .npz, an image folder, or torchvision:CLASS), or choose from {', '.join(KNOWN)}"
        )
    try:
        root.mkdir(parents=True, exist_ok=True)
        sweep(path)
        sweep(root / name)
        with _bar() as show, aside(root / name) as scratch, aside(path) as part:
            scratch.mkdir()
            where = Where(None, root / "sources", scratch.resolve(), show)
            found = _open(name, source, where)
            if size is None and name in KNOWN:
                size = KNOWN[name].size
            convert(found, size, part, show, _provenance(where, size))
            put(part, path)
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


def _open(name: str, source: str | None, where: Where) -> Found:
    """Opens what the user gave, or the files of a known dataset."""
    if source is not None and source.startswith(own.PREFIX):
        return own.vision(where, source)
    if source is not None:
        where.source = Path(source)
        if not where.source.exists():
            raise BadInput(f"--source {source}: there is no such file or directory")
        if where.source.suffix == ".npz":
            return own.npz(where, where.source)
    if name in KNOWN:
        return KNOWN[name].open(where)
    assert where.source is not None
    if not where.source.is_dir():
        raise BadInput(
            f"--source {source}: must be an .npz, a directory with one folder of images per class, "
            "or torchvision:CLASS"
        )
    return own.folder(where, where.source)


def _provenance(where: Where, size: int | None) -> dict[str, Any]:
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
