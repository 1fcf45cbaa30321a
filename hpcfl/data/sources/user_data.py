"""User data: an image folder, or any dataset of torchvision."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hpcfl.data.sources.fetch import SourceFiles
from hpcfl.data.sources.raw_dataset import ArraySamples, ImageFiles, RawDataset, error_text, load_image
from hpcfl.errors import BadInput, nearest
from hpcfl.utils.torchvision_loader import load_torchvision

PREFIX = "torchvision:"
TEST_FOLDERS = ("test", "val", "valid")
GRAY = {"1", "L", "LA"}


def image_folder(files: SourceFiles, top: Path) -> RawDataset:
    """Opens an image folder: one directory per class, at the top or in `train` and `test` or `val`."""
    files.used.append(str(top.resolve()))
    train, test = _split_folders(top)
    class_names = [path.name for path in _directories(train[0])]
    if not class_names:
        raise BadInput(f"{train[0]} has no directories: an image folder has one per class, with its images")
    label = {name: k for k, name in enumerate(class_names)}
    images = [[pair for folder in split for pair in _image_files(folder, label)] for split in (train, test)]
    gray = _all_gray([path for split in images for path, _ in split])
    return RawDataset(ImageFiles(images[0]), ImageFiles(images[1]), class_names, gray=gray)


def _split_folders(top: Path) -> tuple[list[Path], list[Path]]:
    """Returns the train folders and the test folders; with a test folder, validation data is train data."""
    inside = {path.name: path for path in _directories(top)}
    if "train" not in inside:
        return [top], []
    if unexpected := sorted(inside.keys() - {"train", *TEST_FOLDERS}):
        raise BadInput(
            f"{top} has train and {unexpected[0]}: either parts (train, val, test) or classes, not both"
        )
    others = [inside[name] for name in TEST_FOLDERS if name in inside]
    return [inside["train"], *others[1:]], others[:1]


def _directories(top: Path) -> list[Path]:
    directories = (path for path in top.iterdir() if path.is_dir())
    return sorted(path for path in directories if not path.name.startswith(".") and path.suffix != ".part")


def _image_files(top: Path, label: dict[str, int]) -> Iterator[tuple[str, int]]:
    """Yields every image file below the class directories of `top`, with its label."""
    suffixes = load_torchvision().datasets.folder.IMG_EXTENSIONS
    for directory in _directories(top):
        if directory.name not in label:
            raise BadInput(f"{directory} is a class that the train part does not have")
        inside = (
            Path(folder, name) for folder, _, names in os.walk(directory, onerror=_fail) for name in names
        )
        paths = sorted(p for p in inside if p.suffix.lower() in suffixes and not p.name.startswith("."))
        if not paths:
            raise BadInput(f"{directory} has no images ({', '.join(suffixes)}); fill it or take it out")
        for path in paths:
            yield str(path), label[directory.name]


def _fail(error: OSError) -> None:
    raise error


def _all_gray(paths: list[str]) -> bool:
    """Returns whether all images are gray; reads only their headers."""
    from PIL import Image

    for path in paths:
        try:
            with Image.open(path) as image:
                if image.mode not in GRAY:
                    return False
        except Exception:
            load_image(path)  # raises BadInput with the reason
    return True


def torchvision_class(files: SourceFiles, source: str) -> RawDataset:
    """Opens `torchvision:CLASS` or `torchvision:CLASS:DIRECTORY`; downloads only without a directory."""
    name, _, directory = source.removeprefix(PREFIX).partition(":")
    datasets = load_torchvision().datasets
    class_names = [n for n in datasets.__all__ if inspect.isclass(getattr(datasets, n))]
    if name not in class_names:
        raise BadInput(f"--source {source}: torchvision has no dataset {name}{nearest(name, class_names)}")
    dataset_class = getattr(datasets, name)
    parameters = inspect.signature(dataset_class).parameters
    root = Path(directory) if directory else files.downloads / name
    if "root" not in parameters or name == "EMNIST":
        raise BadInput(
            f"--source {source}: cannot be read this way"
            + (", see emnist-byclass" if name == "EMNIST" else "")
        )
    arguments: dict[str, Any] = {"root": root}
    if "download" in parameters:
        arguments["download"] = not directory
    files.used.append(f"{source} (torchvision {load_torchvision().__version__})")
    files.report_progress(f"opening {name}", 0, None)
    if not directory:
        root.mkdir(parents=True, exist_ok=True)
    train, test = _open_splits(source, dataset_class, parameters, arguments)
    return RawDataset(train, test, getattr(train, "classes", None))


def _open_splits(source: str, dataset_class: Any, parameters: Any, arguments: dict[str, Any]) -> list[Any]:
    """Returns train and test samples, by whichever argument the class selects them."""
    choices: list[list[dict[str, Any]]]
    if "train" in parameters:
        choices = [[{"train": True}], [{"train": False}]]
    elif "split" in parameters:
        choices = [[{"split": n} for n in ("trainval", "train")], [{"split": n} for n in TEST_FOLDERS]]
    else:
        choices = [[{}], []]
    splits: list[Any] = []
    for options in choices:
        problem: Exception | None = None
        for option in options:
            try:
                splits.append(dataset_class(**arguments, **option))
                break
            except ValueError as error:  # this class has no split of this name
                problem = error
            except Exception as error:
                raise _unusable(source, arguments["root"], error) from None
        else:
            if problem:
                raise _unusable(source, arguments["root"], problem)
            splits.append(ArraySamples(np.zeros((0, 1, 1), np.uint8), np.zeros(0, np.int64)))
    return splits


def _unusable(source: str, root: Path, error: Exception) -> BadInput:
    return BadInput(f"--source {source}: torchvision cannot open it in {root} ({error_text(error)})")
