"""The command `hpcfl data prepare`: converts a source to one prepared file, downloading it if needed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from hpcfl.data.convert import Resize
from hpcfl.data.dataset import Dataset
from hpcfl.data.load import BUILT_IN
from hpcfl.data.npz import read_npz
from hpcfl.data.prepared_file import is_prepared, open_prepared, prepared_path, verify_images
from hpcfl.data.sources import htfllib, user_data
from hpcfl.data.sources.arrays import Layout, npz_file
from hpcfl.data.sources.fetch import SourceFiles, md5
from hpcfl.data.sources.raw_dataset import ImageFiles, RawDataset
from hpcfl.data.sources.registry import EMNIST, KNOWN_DATASETS
from hpcfl.data.sources.table import csv_file
from hpcfl.data.write_prepared import split_path, write_prepared
from hpcfl.errors import BadInput, nearest
from hpcfl.utils.formatting import plural

DESCRIBED = {"squash": "squashed", "train": "train part alone"}
DESCRIBED_CHOICES = ("resize", "part", "layout", "label")
PREFIXES, SUFFIXES = (user_data.PREFIX, htfllib.PREFIX), (".npz", ".csv")
"""Sources that are always a user's own data begin or end so."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Choices:
    """How a dataset is prepared; the defaults are those of `hpcfl data prepare`."""

    size: int | None = None
    """Side of the images; None: the dataset's own, or as they are."""
    resize: Resize = "crop"
    part: Literal["all", "train"] = "all"
    layout: Layout | None = None
    """Order of the axes of an array of images, or of other samples with four axes."""
    label: str | None = None
    """Column of the labels in a CSV file."""
    allow_pickle: bool = False

    def description(self) -> dict[str, str]:
        """Returns what differs from the defaults, for the provenance."""
        chosen = {name: getattr(self, name) for name in DESCRIBED_CHOICES}
        return {name: value for name, value in chosen.items() if value not in ("crop", "all", None)}


CHOICES = Choices()


def prepare(
    name: str,
    source: str | None,
    root: str,
    fresh: bool = False,
    new_name: str | None = None,
    choices: Choices = CHOICES,
) -> Iterator[str]:
    """Prepares a dataset (for `emnist`, all its splits) and yields a message for each."""
    names = [f"emnist-{split}" for split in EMNIST] if name == "emnist" else [name]
    if source is None and name in BUILT_IN:
        raise BadInput(f"{name} is built in and needs no preparation: use it with data.name = {name!r}")
    own = source is not None and (source.startswith(PREFIXES) or source.endswith(SUFFIXES))
    if own and names[0] in KNOWN_DATASETS:
        raise BadInput(
            f"--source {source}: that is your own data, {name} the name of a published dataset; "
            f"give yours another name: hpcfl data prepare my-{name} --source {source}"
        )
    for option, suffix in (("layout", ".npz"), ("label", ".csv")):
        if getattr(choices, option) is not None and not (source or "").endswith(suffix):
            raise BadInput(f"--{option} {getattr(choices, option)}: only with --source FILE{suffix}")
    if len(names) > 1 and new_name:
        raise BadInput(f"emnist is six datasets; --as {new_name} is one name")
    for dataset in names:
        _check_choices(dataset, new_name, choices)
        yield _prepare_one(dataset, new_name or dataset, source, Path(root), choices, fresh)


def check_name(name: str) -> None:
    """Raises BadInput if this cannot be the name of a dataset."""
    if not NAME.fullmatch(name) or name in BUILT_IN:
        raise BadInput(
            f"{name!r} cannot be a dataset's name: letters, digits, . _ - are allowed, "
            f"{' and '.join(BUILT_IN)} are taken"
        )


def _check_choices(name: str, new_name: str | None, choices: Choices) -> None:
    """Raises BadInput for a name or a choice that this dataset cannot have."""
    known = KNOWN_DATASETS.get(name)
    for each in (name, new_name or name):
        check_name(each)
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
        there = {key: data.provenance[key] for key in DESCRIBED_CHOICES if key in data.provenance}
        other_size = choices.size is not None and data.shape[1:] != (choices.size, choices.size)
        if data.original not in ("", name) or there != choices.description() or other_size:
            option = " with --as" if name in KNOWN_DATASETS else ""
            raise BadInput(
                f"{path} is there already, prepared otherwise: {describe(data)}; "
                f"give another name{option}, or --fresh to make it again"
            )
        if source is not None and name not in KNOWN_DATASETS and not _was_made_from(data, source):
            raise BadInput(
                f"{path} is there already, made from other data: {describe(data)}; "
                "give another name, or --fresh to replace it"
            )
        return f"{path} is there already: {describe(data)}; --fresh makes it again"
    if name not in KNOWN_DATASETS and source is None:
        raise BadInput(
            f"{name!r} is not known{nearest(name, [*KNOWN_DATASETS, 'emnist'])}: give your own data with "
            "--source (an .npz, a .csv, an image folder, torchvision:CLASS or htfllib:DIR), or choose from "
            f"{', '.join(KNOWN_DATASETS)}"
        )
    known = KNOWN_DATASETS.get(name)
    size = known.size if known and choices.size is None else choices.size
    about = choices.description() | ({"original": name} if known else {})
    write_prepared(path, lambda files: _open_part(name, source, files, choices), size, choices.resize, about)
    data = open_prepared(path)
    origin = source or data.provenance["source"][0].partition(" (")[0].rpartition("/")[0]
    said = f"{path}: {describe(data)}, from {origin}; use it with data.name = {new_name!r}"
    if source is None or not source.startswith(htfllib.PREFIX):
        return said
    split = split_path(path)
    clients = sum(name.startswith("train_") for name in read_npz(split, str(split)))
    return f"{said}, federation.clients = {clients} and partition.file = {str(split)!r}"


def _was_made_from(data: Dataset, source: str) -> bool:
    """Returns whether a prepared file was made from this source of a user's own: a file by its content."""
    made_from = data.provenance["source"]
    if source.startswith(user_data.PREFIX):
        return any(each.startswith(f"{source} (") for each in made_from)
    path = _existing(source)
    if path.is_dir():
        return str(path.resolve()) in made_from
    return any(each.endswith(f"(md5 {md5(path)})") for each in made_from)


def prepare_python(name: str, raw: RawDataset, root: Path, size: int | None, fresh: bool) -> Path:
    """Prepares data that a Python program has; a file with the same content stays."""
    check_name(name)
    if name in KNOWN_DATASETS:
        raise BadInput(f"{name} is the name of a published dataset: give your own data another name")
    path = prepared_path(root, name)

    def open_source(files: SourceFiles) -> RawDataset:
        files.used.append("Python")
        return raw

    write_prepared(path, open_source, size, "crop", {}, replaces=fresh)
    return path


def describe(data: Dataset) -> str:
    """Returns a one-line description of a dataset."""
    size = "×".join(map(str, data.x.shape[1:]))
    samples = plural(len(data.y), "image" if data.is_images else f"{data.x.dtype} sample")
    text = (
        f"{samples} {'' if data.is_images else 'of '}{size} ({data.num_train} train, "
        f"{len(data.y) - data.num_train} test), {plural(data.classes, 'class', 'classes')}"
    )
    if data.writer_ids is not None:
        text += f", {plural(data.writer_ids.max() + 1, 'writer')}"
    chosen = [str(data.provenance[key]) for key in ("resize", "part") if key in data.provenance]
    if data.original and data.file and data.original != data.file.stem:
        text += f"; {data.original}"
    return ", ".join([text, *(DESCRIBED.get(choice, choice) for choice in chosen)])


def _existing(source: str) -> Path:
    """Returns the file or directory that a source names."""
    path = Path(source.removeprefix(htfllib.PREFIX))
    if not path.exists():
        raise BadInput(f"--source {source}: there is no such file or directory")
    return path


def _open_part(name: str, source: str | None, files: SourceFiles, choices: Choices) -> RawDataset:
    """Opens a source, of which `choices` may take the train part alone."""
    raw = _open(name, source, files, choices)
    return replace(raw, test=ImageFiles([])) if choices.part == "train" else raw


def _open(name: str, source: str | None, files: SourceFiles, choices: Choices) -> RawDataset:
    """Opens the user's `source`, or the files of a known dataset."""
    if source is not None and source.startswith(user_data.PREFIX):
        return user_data.torchvision_class(files, source)
    if source is not None:
        files.source = _existing(source)
        if source.startswith(htfllib.PREFIX):
            return htfllib.htfllib_directory(files, files.source, choices.allow_pickle)
        if files.source.suffix == ".npz":
            return npz_file(files, files.source, choices.layout)
        if files.source.suffix == ".csv":
            return csv_file(files, files.source, choices.label)
    if name in KNOWN_DATASETS:
        return KNOWN_DATASETS[name].open(files)
    assert files.source is not None
    if not files.source.is_dir():
        raise BadInput(
            f"--source {source}: must be an .npz, a .csv, a directory with one folder of images per class, "
            "or torchvision:CLASS"
        )
    return user_data.image_folder(files, files.source)
