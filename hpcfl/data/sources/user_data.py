"""User data: an .npz file, an image folder, or any dataset of torchvision."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hpcfl.data.npz import read_npz
from hpcfl.data.sources.fetch import SourceFiles
from hpcfl.data.sources.raw_dataset import ArraySamples, ImageFiles, RawDataset, error_text, load_image
from hpcfl.errors import BadInput, nearest
from hpcfl.utils.torchvision_loader import load_torchvision

PREFIX = "torchvision:"
TEST_FOLDERS = ("test", "val", "valid")
GRAY = {"1", "L", "LA"}


def npz_file(files: SourceFiles, path: Path) -> RawDataset:
    """Opens an .npz file with `x` (uint8) and `y`, and optionally other arrays of KEYS."""
    arrays = read_npz(path, str(path))
    files.record(path)
    if missing := sorted({"x", "y"} - arrays.keys()):
        raise BadInput(f"{path} has no {' and no '.join(missing)}; it has {', '.join(arrays) or 'nothing'}")
    suffixes = ("", "_test") if "x_test" in arrays else ("",)
    for key in arrays:
        if key not in KEYS or (key.endswith("_test") and key.removesuffix("_test") not in arrays):
            raise BadInput(f"{path}: what is {key}? Known are {', '.join(KEYS)}")
        if key.endswith("_test") and len(suffixes) == 1:
            raise BadInput(f"{path} has {key}, but no x_test")
    splits = [_check_split(path, arrays, suffix) for suffix in suffixes]
    if len(splits) == 2 and splits[0].y.dtype.kind != splits[1].y.dtype.kind:
        raise BadInput(f"{path}: y and y_test must both be integers, or both words")
    if len(splits) == 2 and splits[0].x.shape[3:] != splits[1].x.shape[3:]:
        raise BadInput(f"{path}: x and x_test must have equally many channels")
    train = splits[0]
    test = splits[1] if len(splits) == 2 else ArraySamples(train.x[:0], train.y[:0])
    class_names = _class_names(path, arrays)
    if "writer" not in arrays:
        return RawDataset(train, test, class_names)
    writers = np.concatenate([arrays[f"writer{suffix}"].astype(str) for suffix in suffixes])
    writer_names, writer_ids = np.unique(writers, return_inverse=True)
    return RawDataset(
        train, test, class_names, writer_ids=writer_ids, writer_names=tuple(map(str, writer_names))
    )


KEYS = ("x", "y", "names", "writer", "x_test", "y_test", "writer_test")


def _class_names(path: Path, arrays: dict[str, np.ndarray]) -> list[str] | None:
    """Returns the names of the labels 0, 1, … if the file has them."""
    if "names" not in arrays:
        return None
    names = arrays["names"]
    if names.ndim != 1 or names.dtype.kind != "U":
        raise BadInput(f"{path}: names must be one word for each of the labels 0, 1, …")
    if arrays["y"].dtype.kind == "U":
        raise BadInput(f"{path}: y has words already, names are those of whole numbers")
    return [str(name) for name in names]


def _check_split(path: Path, arrays: dict[str, np.ndarray], suffix: str) -> ArraySamples:
    """Returns the images and labels of one split; raises BadInput if they, or its writers, do not fit."""
    x = arrays[f"x{suffix}"]
    if x.dtype == np.uint8 and x.ndim == 4 and x.shape[-1] not in (1, 3) and x.shape[1] in (1, 3):
        x = x.transpose(0, 2, 3, 1)
    shape = x.shape if x.ndim == 4 else (*x.shape, 1)
    if x.dtype != np.uint8 or len(shape) != 4 or shape[3] not in (1, 3) or 0 in shape[1:]:
        raise BadInput(
            f"{path}: x{suffix} is {x.dtype} {'×'.join(map(str, x.shape))}; it must be uint8 images, "
            "N × H × W or N × H × W × 1 or 3"
        )
    for key, what in ((f"y{suffix}", "label"), (f"writer{suffix}", "writer")):
        values = arrays.get(key)
        if values is None and (what == "label" or "writer" in arrays):
            raise BadInput(f"{path} has no {key}")
        if values is not None and (values.shape != (len(x),) or values.dtype.kind not in "iubU"):
            raise BadInput(f"{path}: {key} must be one integer or word for each of the {len(x)} images")
    return ArraySamples(x.reshape(shape), arrays[f"y{suffix}"])


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
