"""A user's own arrays: images, or any other samples, with labels; from an .npz file or from Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from hpcfl.data.npz import read_npz
from hpcfl.data.sources.fetch import SourceFiles
from hpcfl.data.sources.raw_dataset import ArraySamples, RawDataset
from hpcfl.errors import BadInput

Layout = Literal["nhwc", "nchw"]
KEYS = ("x", "y", "names", "writer", "x_test", "y_test", "writer_test")
INT32 = np.iinfo(np.int32)


def npz_file(files: SourceFiles, path: Path, layout: Layout | None = None) -> RawDataset:
    """Opens an .npz file with `x` and `y`, and optionally other arrays of KEYS."""
    arrays = read_npz(path, str(path))
    files.record(path)
    return array_dataset(str(path), arrays, layout)


def array_dataset(what: str, arrays: Mapping[str, np.ndarray], layout: Layout | None = None) -> RawDataset:
    """Returns the dataset of arrays named by KEYS; `what` names their origin in errors."""
    if missing := sorted({"x", "y"} - arrays.keys()):
        raise BadInput(f"{what} has no {' and no '.join(missing)}; it has {', '.join(arrays) or 'nothing'}")
    suffixes = ("", "_test") if "x_test" in arrays else ("",)
    for key in arrays:
        if key not in KEYS or (key.endswith("_test") and key.removesuffix("_test") not in arrays):
            raise BadInput(f"{what}: what is {key}? Known are {', '.join(KEYS)}")
        if key.endswith("_test") and len(suffixes) == 1:
            raise BadInput(f"{what} has {key}, but no x_test")
    splits = [_check_split(what, arrays, suffix, layout) for suffix in suffixes]
    train = splits[0]
    test = splits[1] if len(splits) == 2 else ArraySamples(train.x[:0], train.y[:0])
    if train.y.dtype.kind != test.y.dtype.kind:
        raise BadInput(f"{what}: y and y_test must both be integers, or both words")
    if train.x.dtype != test.x.dtype:
        raise BadInput(f"{what}: x is {train.x.dtype}, x_test {test.x.dtype}; they must have one type")
    if train.x.dtype == np.uint8 and train.x.shape[3:] != test.x.shape[3:]:
        raise BadInput(f"{what}: x and x_test must have equally many channels")
    class_names = _class_names(what, arrays)
    if "writer" not in arrays:
        return RawDataset(train, test, class_names)
    writers = np.concatenate([arrays[f"writer{suffix}"].astype(str) for suffix in suffixes])
    writer_names, writer_ids = np.unique(writers, return_inverse=True)
    return RawDataset(
        train, test, class_names, writer_ids=writer_ids, writer_names=tuple(map(str, writer_names))
    )


def _class_names(what: str, arrays: Mapping[str, np.ndarray]) -> list[str] | None:
    """Returns the names of the labels 0, 1, … if there are any."""
    if "names" not in arrays:
        return None
    names = arrays["names"]
    if names.ndim != 1 or names.dtype.kind != "U":
        raise BadInput(f"{what}: names must be one word for each of the labels 0, 1, …")
    if arrays["y"].dtype.kind == "U":
        raise BadInput(f"{what}: y has words already, names are those of whole numbers")
    return [str(name) for name in names]


def _check_split(
    what: str, arrays: Mapping[str, np.ndarray], suffix: str, layout: Layout | None
) -> ArraySamples:
    """Returns the samples and labels of one split; raises BadInput if they, or its writers, do not fit."""
    x = arrays[f"x{suffix}"]
    for key, meaning in ((f"y{suffix}", "label"), (f"writer{suffix}", "writer")):
        values = arrays.get(key)
        if values is None and (meaning == "label" or "writer" in arrays):
            raise BadInput(f"{what} has no {key}")
        if values is not None and (values.shape != x.shape[:1] or values.dtype.kind not in "iubU"):
            raise BadInput(
                f"{what}: {key} must be one integer or word for each of the {len(x) if x.ndim else 0} samples"
            )
    return ArraySamples(samples_of(x, f"{what}: x{suffix}", layout), arrays[f"y{suffix}"])


def samples_of(x: np.ndarray, name: str, layout: Layout | None = None) -> np.ndarray:
    """Returns samples as a prepared file has them: uint8 images [N, H, W, C], else float32 or int32 [N, …].

    Of four axes, those of images are N, H, W, C, and those of other samples as networks take them,
    N, C, H, W, unless `layout` says otherwise.
    """
    if layout is not None and x.ndim != 4:
        raise BadInput(f"layout {layout}: {_text(x, name)}; only arrays of four axes have a layout")
    if x.ndim < 2 or 0 in x.shape[1:] or x.dtype.kind not in "fiub":
        raise BadInput(f"{_text(x, name)}; it must be numbers, one sample after the other: N × …")
    if x.dtype == np.uint8:
        return _images(x, name, layout)
    if layout == "nhwc":
        x = x.transpose(0, 3, 1, 2)
    if x.dtype.kind in "iu":
        if x.size and not (x.min() >= INT32.min and x.max() <= INT32.max):
            raise BadInput(f"{_text(x, name)}; whole numbers must fit into 32 bits")
        return x.astype(np.int32, copy=False)
    with np.errstate(over="ignore"):
        values = x.astype(np.float32, copy=False)
    finite = np.isfinite(values.reshape(len(values), -1)).all(1)
    if not finite.all():
        which = f": sample {int(finite.argmin())}" if len(values) > 1 else ""
        raise BadInput(f"{name}{which} has values that are not finite in float32")
    return values


def _images(x: np.ndarray, name: str, layout: Layout | None) -> np.ndarray:
    """Returns uint8 images as [N, H, W, C]; channels first is recognised where it is clear."""
    if layout == "nchw" or (
        layout is None and x.ndim == 4 and x.shape[-1] not in (1, 3) and x.shape[1] in (1, 3)
    ):
        x = x.transpose(0, 2, 3, 1)
    shape = x.shape if x.ndim == 4 else (*x.shape, 1)
    if len(shape) != 4 or shape[3] not in (1, 3):
        raise BadInput(
            f"{_text(x, name)}; it must be images, N × H × W or N × H × W × 1 or 3 "
            "(N × 1 or 3 × H × W with layout nchw), or other data as float32 or int32"
        )
    return x.reshape(shape)


def _text(x: np.ndarray, name: str) -> str:
    return f"{name} is {x.dtype} {'×'.join(map(str, x.shape)) or 'without axes'}"
