"""A user's own data from Python: arrays, tensors, or a torch Dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hpcfl.data.sources.arrays import Layout, array_dataset, samples_of
from hpcfl.data.sources.raw_dataset import RawDataset, RawSamples
from hpcfl.errors import BadInput

WHAT = "hpcfl.prepare"


class DatasetSamples:
    """The samples of a torch Dataset, one by one; images as tensors are [C, H, W], as torch has them."""

    def __init__(self, dataset: Any, layout: Layout | None):
        self.dataset, self.layout = dataset, layout

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, i: int) -> tuple[Any, Any]:
        item = self.dataset[i]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise BadInput(f"{WHAT}: sample {i} of the dataset must be a pair (x, y)")
        x, y = item
        if hasattr(y, "item"):
            y = y.item()
        if _is_picture(x):
            return x, y
        layout = self.layout
        if layout is None and np.ndim(x) == 3 and hasattr(x, "detach"):
            layout = "nchw"
        array = _array(f"sample {i}", x)[None]
        return samples_of(array, f"{WHAT}: sample {i}", layout if array.ndim == 4 else None)[0], y


def _array(name: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except Exception as error:  # rows of different lengths, a tensor on a GPU, …
        raise BadInput(f"{WHAT}: {name} is not an array ({error})") from None
    is_text = array.dtype == object and all(isinstance(each, str) for each in array.flat)  # pandas has such
    return array.astype(str) if is_text else array


def _is_picture(x: Any) -> bool:
    """Returns whether a sample is a PIL image."""
    return hasattr(x, "mode") and hasattr(x, "convert")


def python_dataset(
    x: Any, y: Any, writer: Any, test: Any, names: Sequence[str] | None, layout: Layout | None
) -> RawDataset:
    """Returns the dataset of arrays x and y, or, where y is None, of the torch Dataset x.

    `test` is the test part: a torch Dataset, or (x, y), or (x, y, writer) if there are writers.
    """
    if layout not in (None, "nhwc", "nchw"):
        raise BadInput(f"{WHAT}: layout = {layout!r}: must be 'nhwc' or 'nchw'")
    if y is not None:
        given = {"x": x, "y": y, "writer": writer, "names": names if names is None else list(names)}
        if test is not None:
            if not isinstance(test, tuple | list) or len(test) != (2 if writer is None else 3):
                raise BadInput(f"{WHAT}: test must be (x, y), or (x, y, writer) if there are writers")
            given |= dict(zip(("x_test", "y_test", "writer_test"), test, strict=False))
        arrays = {name: _array(name, value) for name, value in given.items() if value is not None}
        return array_dataset(WHAT, arrays, layout)
    for part in (x, test):
        if part is not None and not (hasattr(part, "__getitem__") and hasattr(part, "__len__")):
            raise BadInput(
                f"{WHAT}: give arrays x and y, or a torch Dataset with a length, not {type(part).__name__}"
            )
    train: RawSamples = DatasetSamples(x, layout)
    last: RawSamples = DatasetSamples(() if test is None else test, layout)
    class_names = list(map(str, names)) if names is not None else None
    if writer is None:
        return RawDataset(train, last, class_names)
    writers = np.asarray(writer)
    if writers.shape != (len(train) + len(last),) or writers.dtype.kind not in "iubU":
        raise BadInput(f"{WHAT}: writer must be one integer or word for each of the {len(train)} samples")
    writer_names, writer_ids = np.unique(writers.astype(str), return_inverse=True)
    return RawDataset(
        train, last, class_names, writer_ids=writer_ids, writer_names=tuple(map(str, writer_names))
    )
