"""MNIST and its relatives: four compressed files of images and labels; EMNIST packs them into one zip."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from hpcfl.data.sources.fetch import PublishedFile, SourceFiles
from hpcfl.data.sources.raw_dataset import RawDataset, open_source
from hpcfl.errors import BadInput
from hpcfl.utils.torchvision_loader import load_torchvision

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
DEBIAN_SUMS = Path("/var/lib/dpkg/info/dataset-fashion-mnist.md5sums")


def fashion(where: SourceFiles) -> RawDataset:
    """Opens Fashion-MNIST; the files of Debian's package are found, and verified by its own checksums."""
    if DEBIAN.is_dir():
        where.system = DEBIAN
        if DEBIAN_SUMS.exists():
            sums = (line.split() for line in DEBIAN_SUMS.read_text().splitlines())
            where.system_md5 = {Path(path).name: md5 for md5, path in sums}
    return mnist(where, "FashionMNIST")


def mnist(where: SourceFiles, name: str) -> RawDataset:
    """Opens MNIST or FashionMNIST."""
    kind = getattr(load_torchvision().datasets, name)
    below = (f"{name}/raw", "raw")
    for packed, md5 in kind.resources:
        file = PublishedFile(packed, tuple(mirror + packed for mirror in kind.mirrors), md5)
        plain = packed.removesuffix(".gz")
        if not where.find(packed, *below) and (path := where.extracted(plain, *below)):
            where.link(path, f"{name}/raw/{plain}")
            continue
        path = where.get(file, *below)
        with open(path, "rb") as stream:
            where.gunzip(stream, path, f"{name}/raw/{plain}")
    train, test = _both(where, name, f"fetch the four files of {kind.mirrors[0]} and give their folder")
    return RawDataset(train, test, train.classes)


def emnist(where: SourceFiles, split: str) -> RawDataset:
    """Opens one of EMNIST's splits, its characters upright; they are stored transposed."""
    from PIL import Image

    kind = load_torchvision().datasets.EMNIST
    archive = PublishedFile("gzip.zip", (kind.url,), kind.md5)
    parts = [f"emnist-{split}-{part}-ubyte" for part in PARTS]
    folders = ("EMNIST/raw", "raw")
    plain = {part: path for part in parts if (path := where.find(part, *folders))}
    if len(plain) == len(parts):
        for part, path in plain.items():
            where.given(path)
            where.link(path, f"EMNIST/raw/{part}")
    else:
        _unzip(where, where.get(archive, *folders), parts)
    train, test = _both(
        where,
        "EMNIST",
        archive.advice,
        split=split,
        transform=lambda image: image.transpose(Image.Transpose.TRANSPOSE),
    )
    return RawDataset(train, test, train.classes)


PARTS = ("train-images-idx3", "train-labels-idx1", "test-images-idx3", "test-labels-idx1")


def _unzip(where: SourceFiles, archive: Path, parts: list[str]) -> None:
    try:
        with zipfile.ZipFile(archive) as packed:
            for part in parts:
                with packed.open(f"gzip/{part}.gz") as stream:
                    where.gunzip(stream, archive, f"EMNIST/raw/{part}")
    except (zipfile.BadZipFile, KeyError) as error:
        raise BadInput(f"{archive} cannot be unpacked ({error}); fetch it again") from None


def _both(where: SourceFiles, name: str, advice: str, **more: Any) -> tuple[Any, Any]:
    kind = getattr(load_torchvision().datasets, name)
    return open_source(
        f"{where.used[-1].split(' (')[0]} or a file beside it",
        advice,
        lambda: tuple(kind(where.scratch, train=train, **more) for train in (True, False)),
    )
