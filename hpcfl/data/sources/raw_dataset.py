"""Raw datasets: the images and labels of a source before conversion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hpcfl.errors import BadInput

if TYPE_CHECKING:
    from PIL.Image import Image


class RawSamples(Protocol):
    """Samples in torchvision's form: `samples[i]` is an image (PIL image or uint8 array) and its label."""

    def __len__(self) -> int: ...

    def __getitem__(self, i: int, /) -> tuple[Any, Any]: ...


@dataclass(frozen=True)
class RawDataset:
    """An opened source: its train and test samples and what is known about them."""

    train: RawSamples
    test: RawSamples
    class_names: Sequence[str] | None
    """Names of the labels 0, 1, …; None: the labels themselves are the names."""
    gray: bool | None = None
    """One channel (True) or three (False); None: as the first image."""
    writer_ids: np.ndarray | None = None
    """Writer of each sample, first of the train, then of the test samples; None: unknown."""
    writer_names: tuple[str, ...] = ()
    split: Sequence[tuple[np.ndarray, ...]] | None = None
    """By client: the indices of its train and test samples, train samples of all first; None: no split."""


@dataclass(frozen=True)
class ArraySamples:
    """Samples in memory."""

    x: np.ndarray
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> tuple[np.ndarray, Any]:
        return self.x[i], self.y[i]


@dataclass(frozen=True)
class ImageFiles:
    """Samples in image files."""

    files: Sequence[tuple[str, int]]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> tuple[Image, int]:
        path, label = self.files[i]
        return load_image(path), label


def load_image(path: str | Path) -> Image:
    """Returns a decoded image; raises BadInput with the file's name if it cannot be read."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            image.load()
            return image
    except Exception as error:  # PIL raises OSError, SyntaxError, ValueError and more on damaged files
        raise BadInput(f"{path} cannot be read as an image ({error}); replace it or take it out") from None


def open_source(what: str, advice: str, open_it: Callable[[], Any]) -> Any:
    """Returns what `open_it` returns; turns its errors about missing or damaged files into BadInput."""
    try:
        return open_it()
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"{what} cannot be read ({error_text(error)}); {advice}") from None


def error_text(error: Exception) -> str:
    """Returns torchvision's error message without its advice to use `download=True`."""
    return " ".join(str(error).split(". You can use")[0].split()) or type(error).__name__
