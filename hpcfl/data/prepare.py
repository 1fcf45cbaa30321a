"""The command `hpcfl data prepare`: converts a source to one prepared file, downloading it if needed."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hpcfl.data.convert import Resize, convert
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
from hpcfl.data.sources.raw_dataset import ImageFiles, RawDataset
from hpcfl.data.sources.registry import EMNIST, KNOWN_DATASETS
from hpcfl.errors import BadInput, nearest
from hpcfl.utils.files import move_into_place, remove_leftovers, temporary_path

DESCRIBED = {"squash": "squashed", "train": "train part alone"}
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Choices:
    """How a dataset is prepared; the defaults are those of `hpcfl data prepare`."""

    size: int | None = None
    """Side of the images; None: the dataset's own, or as they are."""
    resize: Resize = "crop"
    part: Literal["all", "train"] = "all"

    def description(self) -> dict[str, str]:
        """Returns what differs from the defaults, for the provenance."""
        chosen = {"resize": self.resize, "part": self.part}
        return {name: value for name, value in chosen.items() if value not in ("crop", "all")}


def prepare(
    name: str,
    source: str | None,
    root: str,
    size: int | None,
    fresh: bool,
    new_name: str | None = None,
    resize: Resize = "crop",
    part: Literal["all", "train"] = "all",
) -> Iterator[str]:
    """Prepares a dataset (for `emnist`, all its splits) and yields a message for each."""
    names = [f"emnist-{split}" for split in EMNIST] if name == "emnist" else [name]
    if len(names) > 1 and source and (source.startswith(user_data.PREFIX) or source.endswith(".npz")):
        raise BadInput(f"emnist is six datasets; give --source {source} a name of its own")
    if len(names) > 1 and new_name:
        raise BadInput(f"emnist is six datasets; --as {new_name} is one name")
    choices = Choices(size, resize, part)
    for dataset in names:
        _check_choices(dataset, new_name, choices)
        yield _prepare_one(dataset, new_name or dataset, source, Path(root), choices, fresh)


def _check_choices(name: str, new_name: str | None, choices: Choices) -> None:
    """Raises BadInput for a name or a choice that this dataset cannot have."""
    known = KNOWN_DATASETS.get(name)
    for each in (name, new_name or name):
        if not NAME.fullmatch(each) or each == "spiral":
            raise BadInput(
                f"{each!r} cannot be a dataset's name: letters, digits, . _ - are allowed, spiral is taken"
            )
    if new_name and known is None:
        raise BadInput(f"--as {new_name}: {name} is your own data, whose name you choose already")
    if new_name and new_name != name and new_name in KNOWN_DATASETS:
        raise BadInput(f"--as {new_name}: that is the name of another dataset")
    if choices.part == "train" and not (known and known.train_part):
        having = ", ".join(each for each, entry in KNOWN_DATASETS.items() if entry.train_part)
        raise BadInput(f"--part train: only for {having}, not for {name}")
    if choices.resize == "squash" and known and known.size is None:
        raise BadInput(f"--resize squash: all images of {name} are squares; --size alone scales them")
    if choices.resize == "squash" and not known and choices.size is None:
        raise BadInput("--resize squash: needs --size, the side of the squares")


def _prepare_one(
    name: str, new_name: str, source: str | None, root: Path, choices: Choices, fresh: bool
) -> str:
    path = prepared_path(root, new_name)
    if is_prepared(path) and not fresh:
        data = open_prepared(path)
        verify_images(data)
        there = {key: data.provenance.get(key) for key in ("resize", "part") if key in data.provenance}
        other_size = choices.size is not None and data.shape[1:] != (choices.size, choices.size)
        if data.original not in ("", name) or there != choices.description() or other_size:
            raise BadInput(
                f"{path} is there already, prepared otherwise: {describe(data)}; "
                "give another name with --as, or --fresh to make it again"
            )
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
        remove_leftovers(root / new_name)
        with (
            _progress_bar() as report_progress,
            temporary_path(root / new_name) as scratch,
            temporary_path(path) as temporary,
        ):
            scratch.mkdir()
            files = SourceFiles(None, root / "sources", scratch.resolve(), report_progress)
            raw = _open(name, source, files)
            if choices.part == "train":
                raw = replace(raw, test=ImageFiles([]))
            size = choices.size
            if size is None and name in KNOWN_DATASETS:
                size = KNOWN_DATASETS[name].size
            provenance = _provenance(files, size) | choices.description()
            if name in KNOWN_DATASETS:
                provenance["original"] = name
            checksum = convert(raw, size, temporary, report_progress, provenance, choices.resize)
            check_written(temporary, checksum)
            move_into_place(temporary, path)
    except OSError as error:
        raise BadInput(
            f"cannot prepare {name}: {error.strerror or error}: {error.filename or path}"
        ) from None
    data = open_prepared(path)
    origin = source or data.provenance["source"][0].partition(" (")[0].rpartition("/")[0]
    return f"{path}: {describe(data)}, from {origin}; use it with data.name = {new_name!r}"


def describe(data: Dataset) -> str:
    """Returns a one-line description of a dataset."""
    channels, height, width = data.shape
    text = (
        f"{len(data.y)} images {height}×{width}×{channels} ({data.num_train} train, "
        f"{len(data.y) - data.num_train} test), {data.classes} classes"
    )
    if data.writer_ids is not None:
        text += f", {data.writer_ids.max() + 1} writers"
    chosen = [str(data.provenance[key]) for key in ("resize", "part") if key in data.provenance]
    if data.original and data.file and data.original != data.file.stem:
        text += f"; {data.original}"
    return ", ".join([text, *(DESCRIBED.get(choice, choice) for choice in chosen)])


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
