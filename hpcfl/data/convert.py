"""Converts a raw dataset to a prepared file: samples of one shape and type, and integer labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hpcfl.data.prepared_file import PreparedFileWriter, image_bytes
from hpcfl.data.sources.fetch import ProgressCallback
from hpcfl.data.sources.raw_dataset import RawDataset, RawSamples
from hpcfl.data.sources.user_data import GRAY
from hpcfl.errors import BadInput
from hpcfl.utils.hdf5_create import create_hdf5
from hpcfl.utils.hdf5_file import append_trailer
from hpcfl.utils.torchvision_loader import load_torchvision
from hpcfl.utils.user_code import describe_error

if TYPE_CHECKING:
    from PIL.Image import Image

Resize = Literal["crop", "squash"]
BATCH = 256
"""Samples per write."""


def convert(
    raw: RawDataset,
    size: int | None,
    path: Path,
    report_progress: ProgressCallback,
    provenance: Mapping[str, Any],
    resize: Resize = "crop",
) -> str:
    """Writes a raw dataset to a prepared file and returns the checksum of its content.

    With `size`, images are resized to `size` × `size`, as `resize` says.
    """
    num_train, count = len(raw.train), len(raw.train) + len(raw.test)
    if num_train == 0:
        raise BadInput("the source has no samples to train on")
    _check_names((*map(str, raw.class_names or ()), *raw.writer_names))
    samples = chain(_iterate("train", raw.train), _iterate("test", raw.test))
    image, label = next(samples)
    to_array = _choose_conversion(image, raw.gray, size, resize)
    batch, labels = [to_array(image)], [label]
    with create_hdf5(path) as file:
        writer = PreparedFileWriter(file, count, num_train, batch[0])
        for image, label in samples:
            if len(batch) == BATCH:
                writer.add(np.stack(batch))
                batch.clear()
                report_progress("writing samples", len(labels), count)
            batch.append(to_array(image))
            labels.append(label)
            if batch[-1].shape != writer.x.shape[1:]:
                raise BadInput(
                    f"{'images of mixed sizes' if writer.format == 1 else 'samples of mixed shapes'}: "
                    f"the first is {_format_shape(writer.x.shape[1:])}, "
                    f"number {len(labels)} is {_format_shape(batch[-1].shape)}; "
                    + ("give --size for a common side" if writer.format == 1 else "all must be alike")
                )
        writer.add(np.stack(batch))
        y, class_names = _encode_labels(labels, raw.class_names)
        checksum = writer.complete(y, class_names, raw.writer_ids, raw.writer_names, provenance)
        start, stop = image_bytes(writer.x)
    append_trailer(path, start, stop)
    return checksum


def _iterate(split: str, samples: RawSamples) -> Iterator[tuple[Any, Any]]:
    """Yields each sample with its label; names the one that cannot be read."""
    for i in range(len(samples)):
        try:
            yield samples[i]
        except BadInput:
            raise
        except Exception as error:
            reason = describe_error(error)  # a torch Dataset is a user's own code
            raise BadInput(f"sample {i} of the {split} part cannot be read ({reason})") from None


def _choose_conversion(
    first: Any, gray: bool | None, size: int | None, resize: Resize
) -> Callable[[Any], np.ndarray]:
    """Returns the function that makes an array of a sample, chosen by the first one."""
    if not isinstance(first, np.ndarray) or first.dtype == np.uint8:
        is_gray = _is_gray(first) if gray is None else gray
        return lambda image: _to_array(image, size, is_gray, resize)
    if size is not None:
        raise BadInput(f"--size {size}: only for images; the source has samples of {first.dtype}")
    return lambda sample: _same_type(sample, first.dtype)


def _same_type(sample: Any, dtype: np.dtype) -> np.ndarray:
    if not isinstance(sample, np.ndarray) or sample.dtype != dtype:
        raise BadInput(f"the source mixes samples of {dtype} and {getattr(sample, 'dtype', 'other kinds')}")
    return sample


def _is_gray(image: Any) -> bool:
    if isinstance(image, np.ndarray):
        return image.ndim == 2 or image.shape[2] == 1
    return getattr(image, "mode", None) in GRAY


def _to_array(image: Any, size: int | None, gray: bool, resize: Resize) -> np.ndarray:
    """Returns an image as uint8 [H, W, C].

    crop: the shorter side is resized to `size`, the longer one cropped; squash: each side is resized.
    """
    from PIL import Image

    side = None if size is None else (size, size)
    if isinstance(image, np.ndarray) and side in (None, image.shape[:2]):
        return image.reshape(*image.shape[:2], -1)
    if isinstance(image, np.ndarray):
        image = Image.fromarray(image[:, :, 0] if gray and image.ndim == 3 else image)
    if not isinstance(image, Image.Image):
        raise BadInput(f"the source gives {type(image).__name__}, not images")
    image = _to_8_bits(image, gray)
    if side not in (None, (image.height, image.width)):
        transform = load_torchvision().transforms.functional
        if resize == "squash":
            image = transform.resize(image, [size, size])
        else:
            image = transform.center_crop(transform.resize(image, size), size)
    return np.asarray(image).reshape(image.height, image.width, -1)


def _to_8_bits(image: Image, gray: bool) -> Image:
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        raise BadInput(
            f"the source has images of more than 8 bits per channel ({image.mode}): convert them first"
        )
    if gray and image.mode not in GRAY:
        raise BadInput(
            f"the source mixes gray images and images in colour ({image.mode}): convert them first"
        )
    mode = "L" if gray else "RGB"
    return image if image.mode == mode else image.convert(mode)


def _encode_labels(labels: Sequence[Any], names: Sequence[str] | None) -> tuple[np.ndarray, tuple[str, ...]]:
    """Returns the labels as 0 … K − 1, and the names of the K classes that occur."""
    try:
        values = np.asarray(labels)
    except ValueError:
        values = np.empty((0, 0))
    if values.shape != (len(labels),) or values.dtype.kind not in "iubUS":
        raise BadInput(f"labels must be one integer or word per sample, not {labels[0]!r}")
    used, y = np.unique(values, return_inverse=True)
    if names is None:
        class_names = tuple(used.astype(str).tolist())
        _check_names(class_names)
        return y, class_names
    if used.dtype.kind not in "iu" or used[0] < 0 or used[-1] >= len(names):
        raise BadInput(f"labels run from {used[0]} to {used[-1]}, but there are {len(names)} classes")
    return y, tuple(str(names[int(k)]) for k in used)


def _check_names(names: Sequence[str]) -> None:
    """Raises BadInput for a name that HDF5 cannot store: a directory's name, for one, may be any bytes."""
    for name in names:
        try:
            is_text = name.encode().decode() == name and "\0" not in name
        except UnicodeError:
            is_text = False
        if not is_text:
            raise BadInput(
                f"{name!a} cannot be the name of a class or writer: it must be UTF-8 text without zero bytes"
            )


def _format_shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))
