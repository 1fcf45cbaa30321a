"""A user's own data: an .npz, an image folder, or any of torchvision's datasets."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hpcfl.data.npz import arrays
from hpcfl.data.sources.found import Arrays, Found, Images, load
from hpcfl.data.sources.where import Where
from hpcfl.errors import BadInput, nearest
from hpcfl.vision import torchvision

PREFIX = "torchvision:"
TEST_FOLDERS = ("test", "val", "valid")
GRAY = {"1", "L", "LA"}


def npz(where: Where, path: Path) -> Found:
    """Opens an .npz with `x` (uint8) and `y`, and perhaps `writer`, `x_test`, `y_test`, `writer_test`."""
    where.used.append(str(path))
    found = arrays(path, str(path))
    if missing := sorted({"x", "y"} - found.keys()):
        raise BadInput(f"{path} has no {' and no '.join(missing)}; it has {', '.join(found) or 'nothing'}")
    parts: list[Arrays] = []
    writers: list[np.ndarray] = []
    for end in ("", "_test"):
        if f"x{end}" not in found:
            parts.append(Arrays(parts[0].x[:0], parts[0].y[:0]))
            continue
        x, y = _images(path, f"x{end}", found[f"x{end}"]), found.get(f"y{end}")
        if y is None or y.ndim != 1 or len(x) != len(y) or y.dtype.kind not in "iubUS":
            raise BadInput(f"{path}: y{end} must hold one integer or word for each of the {len(x)} images")
        parts.append(Arrays(x, y))
        if "writer" in found:
            writer = found.get(f"writer{end}")
            if writer is None or writer.shape != y.shape:
                raise BadInput(f"{path}: writer{end} must name the writer of each of the {len(x)} images")
            writers.append(writer.astype(str))
    train, test = parts
    if not writers:
        return Found(train, test, None)
    names, number = np.unique(np.concatenate(writers), return_inverse=True)
    return Found(train, test, None, writer=number, writers=tuple(map(str, names)))


def _images(path: Path, name: str, x: np.ndarray) -> np.ndarray:
    """Returns images as [N, H, W] or [N, H, W, C]; channels that come first are moved."""
    if x.dtype == np.uint8 and x.ndim == 4 and x.shape[-1] not in (1, 3) and x.shape[1] in (1, 3):
        x = x.transpose(0, 2, 3, 1)
    if x.dtype != np.uint8 or x.ndim not in (3, 4) or (x.ndim == 4 and x.shape[-1] not in (1, 3)):
        raise BadInput(
            f"{path}: {name} is {x.dtype} {'×'.join(map(str, x.shape))}; it must be uint8 images, "
            "N × H × W or N × H × W × 1 or 3"
        )
    return x


def folder(where: Where, top: Path) -> Found:
    """Opens an image folder: a directory per class, or such directories below `train` and `test` or `val`."""
    where.used.append(str(top))
    inside = {path.name: path for path in _directories(top)}
    test = [name for name in TEST_FOLDERS if name in inside]
    parts = (
        [inside["train"], inside[test[0]]]
        if "train" in inside and len(test) == len(inside) - 1 == 1
        else [top]
    )
    names = [path.name for path in _directories(parts[0])]
    if not names:
        raise BadInput(f"{parts[0]} has no directories: an image folder has one per class, with its images")
    number = {name: k for k, name in enumerate(names)}
    files = [list(_files(part, number)) for part in parts] + ([] if len(parts) == 2 else [[]])
    gray = _all_gray([path for part in files for path, _ in part])
    return Found(Images(files[0]), Images(files[1]), names, gray=gray)


def _directories(top: Path) -> list[Path]:
    return sorted(path for path in top.iterdir() if path.is_dir() and not path.name.startswith("."))


def _files(top: Path, number: dict[str, int]) -> Iterator[tuple[str, int]]:
    endings = torchvision().datasets.folder.IMG_EXTENSIONS
    for directory in _directories(top):
        if directory.name not in number:
            raise BadInput(f"{directory} is a class that the train part does not have")
        found = sorted(path for path in directory.rglob("*") if path.suffix.lower() in endings)
        if not found:
            raise BadInput(f"{directory} has no images ({', '.join(endings)}); fill it or take it out")
        for path in found:
            yield str(path), number[directory.name]


def _all_gray(paths: list[str]) -> bool:
    """Says whether all images are gray, by their headers."""
    from PIL import Image

    for path in paths:
        try:
            with Image.open(path) as image:
                if image.mode not in GRAY:
                    return False
        except Exception:
            load(path)  # says what is wrong with it
    return True


def vision(where: Where, words: str) -> Found:
    """Opens `torchvision:CLASS` or `torchvision:CLASS:DIRECTORY`; without a directory it may download."""
    name, _, directory = words.removeprefix(PREFIX).partition(":")
    datasets = torchvision().datasets
    known = [n for n in datasets.__all__ if inspect.isclass(getattr(datasets, n))]
    if name not in known:
        raise BadInput(f"--source {words}: torchvision has no dataset {name}{nearest(name, known)}")
    kind = getattr(datasets, name)
    takes = inspect.signature(kind).parameters
    root = Path(directory) if directory else where.keep / name
    fixed: dict[str, Any] = {"root": root}
    if "download" in takes:
        fixed["download"] = not directory
    where.used.append(f"{words} (torchvision {torchvision().__version__})")
    where.show(f"opening {name}", 0, None)
    if not directory:
        root.mkdir(parents=True, exist_ok=True)
    parts = _parts(words, kind, takes, fixed)
    return Found(parts[0], parts[1], getattr(parts[0], "classes", None))


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
            parts.append(Arrays(np.zeros((0, 1, 1), np.uint8), np.zeros(0, np.int64)))
    return parts


def _unusable(words: str, root: Path, error: Exception) -> BadInput:
    reason = " ".join(str(error).split()) or type(error).__name__
    return BadInput(f"--source {words}: torchvision cannot open it in {root} ({reason})")
