"""What a source gives: samples in order, and who they are."""

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
    """As torchvision's datasets: `samples[i]` is an image (PIL's, or a uint8 array) and its label."""

    def __len__(self) -> int: ...

    def __getitem__(self, i: int, /) -> tuple[Any, Any]: ...


@dataclass(frozen=True)
class RawDataset:
    """A source, opened."""

    train: RawSamples
    test: RawSamples
    names: Sequence[str] | None
    """Of the labels 0, 1, …; without, labels are their own names."""
    gray: bool | None = None
    """One channel or three; without, as the first image has it."""
    writer: np.ndarray | None = None
    writers: tuple[str, ...] = ()


@dataclass(frozen=True)
class ArraySamples:
    """Samples that are in memory."""

    x: np.ndarray
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int) -> tuple[np.ndarray, Any]:
        return self.x[i], self.y[i]


@dataclass(frozen=True)
class ImageFiles:
    """Image files and their labels."""

    files: Sequence[tuple[str, int]]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> tuple[Image, int]:
        path, label = self.files[i]
        return load_image(path), label


def load_image(path: str | Path) -> Image:
    """Returns an image, decoded; one that cannot be is named."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            image.load()
            return image
    except Exception as error:  # PIL raises OSError, SyntaxError, ValueError and more on damaged files
        raise BadInput(f"{path} cannot be read as an image ({error}); replace it or take it out") from None


def open_source(what: str, advice: str, open_it: Callable[[], Any]) -> Any:
    """Returns a dataset of torchvision; its refusal of missing or damaged files becomes a clear sentence."""
    try:
        return open_it()
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"{what} cannot be read ({error_text(error)}); {advice}") from None


def error_text(error: Exception) -> str:
    """Returns torchvision's words without its advice to download, which is not this program's."""
    return " ".join(str(error).split(". You can use")[0].split()) or type(error).__name__
