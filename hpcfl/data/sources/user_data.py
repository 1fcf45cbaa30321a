"""A user's own data: an .npz, an image folder, or any of torchvision's datasets."""

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


def npz_file(where: SourceFiles, path: Path) -> RawDataset:
    """Opens an .npz with `x` (uint8) and `y`, and perhaps others of KEYS."""
    where.given(path)
    found = read_npz(path, str(path))
    if missing := sorted({"x", "y"} - found.keys()):
        raise BadInput(f"{path} has no {' and no '.join(missing)}; it has {', '.join(found) or 'nothing'}")
    ends = ("", "_test") if "x_test" in found else ("",)
    for key in found:
        if key not in KEYS or (key.endswith("_test") and key.removesuffix("_test") not in found):
            raise BadInput(f"{path}: what is {key}? Known are {', '.join(KEYS)}")
        if key.endswith("_test") and len(ends) == 1:
            raise BadInput(f"{path} has {key}, but no x_test")
    parts = [_part(path, found, end) for end in ends]
    if len(parts) == 2 and parts[0].y.dtype.kind != parts[1].y.dtype.kind:
        raise BadInput(f"{path}: y and y_test must both be integers, or both words")
    if len(parts) == 2 and parts[0].x.shape[3:] != parts[1].x.shape[3:]:
        raise BadInput(f"{path}: x and x_test must have equally many channels")
    train, test = parts[0], parts[-1] if len(parts) == 2 else ArraySamples(parts[0].x[:0], parts[0].y[:0])
    names = _class_names(path, found)
    if "writer" not in found:
        return RawDataset(train, test, names)
    every = np.concatenate([found[f"writer{end}"].astype(str) for end in ends])
    writers, number = np.unique(every, return_inverse=True)
    return RawDataset(train, test, names, writer=number, writers=tuple(map(str, writers)))


KEYS = ("x", "y", "names", "writer", "x_test", "y_test", "writer_test")


def _class_names(path: Path, found: dict[str, np.ndarray]) -> list[str] | None:
    """Returns what the labels 0, 1, … are called, if the file says so."""
    if "names" not in found:
        return None
    names = found["names"]
    if names.ndim != 1 or names.dtype.kind != "U":
        raise BadInput(f"{path}: names must be one word for each of the labels 0, 1, …")
    if found["y"].dtype.kind == "U":
        raise BadInput(f"{path}: y has words already, names are those of whole numbers")
    return [str(name) for name in names]


def _part(path: Path, found: dict[str, np.ndarray], end: str) -> ArraySamples:
    """Returns one part's images and labels, checked; its writers too if there are any."""
    x = found[f"x{end}"]
    if x.dtype == np.uint8 and x.ndim == 4 and x.shape[-1] not in (1, 3) and x.shape[1] in (1, 3):
        x = x.transpose(0, 2, 3, 1)
    shape = x.shape if x.ndim == 4 else (*x.shape, 1)
    if x.dtype != np.uint8 or len(shape) != 4 or shape[3] not in (1, 3) or 0 in shape[1:]:
        raise BadInput(
            f"{path}: x{end} is {x.dtype} {'×'.join(map(str, x.shape))}; it must be uint8 images, "
            "N × H × W or N × H × W × 1 or 3"
        )
    for key, what in ((f"y{end}", "label"), (f"writer{end}", "writer")):
        values = found.get(key)
        if values is None and (what == "label" or "writer" in found):
            raise BadInput(f"{path} has no {key}")
        if values is not None and (values.shape != (len(x),) or values.dtype.kind not in "iubU"):
            raise BadInput(f"{path}: {key} must be one integer or word for each of the {len(x)} images")
    return ArraySamples(x.reshape(shape), found[f"y{end}"])


def image_folder(where: SourceFiles, top: Path) -> RawDataset:
    """Opens an image folder: a directory per class, or such directories below `train` and `test` or `val`."""
    where.used.append(str(top.resolve()))
    train, test = _parts_of(top)
    names = [path.name for path in _directories(train[0])]
    if not names:
        raise BadInput(f"{train[0]} has no directories: an image folder has one per class, with its images")
    number = {name: k for k, name in enumerate(names)}
    files = [[pair for part in parts for pair in _files(part, number)] for parts in (train, test)]
    gray = _all_gray([path for part in files for path, _ in part])
    return RawDataset(ImageFiles(files[0]), ImageFiles(files[1]), names, gray=gray)


def _parts_of(top: Path) -> tuple[list[Path], list[Path]]:
    """Returns the folders of the train and of the test part; beside a test part, validation data trains."""
    inside = {path.name: path for path in _directories(top)}
    if "train" not in inside:
        return [top], []
    if strange := sorted(inside.keys() - {"train", *TEST_FOLDERS}):
        raise BadInput(
            f"{top} has train and {strange[0]}: either parts (train, val, test) or classes, not both"
        )
    later = [inside[name] for name in TEST_FOLDERS if name in inside]
    return [inside["train"], *later[1:]], later[:1]


def _directories(top: Path) -> list[Path]:
    found = (path for path in top.iterdir() if path.is_dir())
    return sorted(path for path in found if not path.name.startswith(".") and path.suffix != ".part")


def _files(top: Path, number: dict[str, int]) -> Iterator[tuple[str, int]]:
    endings = load_torchvision().datasets.folder.IMG_EXTENSIONS
    for directory in _directories(top):
        if directory.name not in number:
            raise BadInput(f"{directory} is a class that the train part does not have")
        inside = (
            Path(where, name) for where, _, names in os.walk(directory, onerror=_fail) for name in names
        )
        found = sorted(p for p in inside if p.suffix.lower() in endings and not p.name.startswith("."))
        if not found:
            raise BadInput(f"{directory} has no images ({', '.join(endings)}); fill it or take it out")
        for path in found:
            yield str(path), number[directory.name]


def _fail(error: OSError) -> None:
    raise error


def _all_gray(paths: list[str]) -> bool:
    """Says whether all images are gray, by their headers."""
    from PIL import Image

    for path in paths:
        try:
            with Image.open(path) as image:
                if image.mode not in GRAY:
                    return False
        except Exception:
            load_image(path)  # says what is wrong with it
    return True


def torchvision_class(where: SourceFiles, words: str) -> RawDataset:
    """Opens `torchvision:CLASS` or `torchvision:CLASS:DIRECTORY`; without a directory it may download."""
    name, _, directory = words.removeprefix(PREFIX).partition(":")
    datasets = load_torchvision().datasets
    known = [n for n in datasets.__all__ if inspect.isclass(getattr(datasets, n))]
    if name not in known:
        raise BadInput(f"--source {words}: torchvision has no dataset {name}{nearest(name, known)}")
    kind = getattr(datasets, name)
    takes = inspect.signature(kind).parameters
    root = Path(directory) if directory else where.keep / name
    if "root" not in takes or name == "EMNIST":
        raise BadInput(
            f"--source {words}: cannot be read this way"
            + (", see emnist-byclass" if name == "EMNIST" else "")
        )
    fixed: dict[str, Any] = {"root": root}
    if "download" in takes:
        fixed["download"] = not directory
    where.used.append(f"{words} (torchvision {load_torchvision().__version__})")
    where.show(f"opening {name}", 0, None)
    if not directory:
        root.mkdir(parents=True, exist_ok=True)
    parts = _parts(words, kind, takes, fixed)
    return RawDataset(parts[0], parts[1], getattr(parts[0], "classes", None))


def _parts(words: str, kind: Any, takes: Any, fixed: dict[str, Any]) -> list[Any]:
    """Returns train and test part, however the class calls them."""
    choices: list[list[dict[str, Any]]]
    if "train" in takes:
        choices = [[{"train": True}], [{"train": False}]]
    elif "split" in takes:
        choices = [[{"split": n} for n in ("trainval", "train")], [{"split": n} for n in TEST_FOLDERS]]
    else:
        choices = [[{}], []]
    parts: list[Any] = []
    for options in choices:
        problem: Exception | None = None
        for option in options:
            try:
                parts.append(kind(**fixed, **option))
                break
            except ValueError as error:  # a name of a split that this class does not have
                problem = error
            except Exception as error:
                raise _unusable(words, fixed["root"], error) from None
        else:
            if problem:
                raise _unusable(words, fixed["root"], problem)
            parts.append(ArraySamples(np.zeros((0, 1, 1), np.uint8), np.zeros(0, np.int64)))
    return parts


def _unusable(words: str, root: Path, error: Exception) -> BadInput:
    return BadInput(f"--source {words}: torchvision cannot open it in {root} ({error_text(error)})")
