"""MNIST, Fashion-MNIST and EMNIST: four compressed files of images and labels; EMNIST has them in one zip."""

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


def fashion(files: SourceFiles) -> RawDataset:
    """Opens Fashion-MNIST, also from Debian's package, whose own checksums are then accepted."""
    if DEBIAN.is_dir():
        files.system = DEBIAN
        if DEBIAN_SUMS.exists():
            sums = (line.split() for line in DEBIAN_SUMS.read_text().splitlines())
            files.system_md5 = {Path(path).name: md5 for md5, path in sums}
    return mnist(files, "FashionMNIST")


def mnist(files: SourceFiles, name: str) -> RawDataset:
    """Opens MNIST or FashionMNIST."""
    dataset_class = getattr(load_torchvision().datasets, name)
    subfolders = (f"{name}/raw", "raw")
    for packed, md5 in dataset_class.resources:
        file = PublishedFile(packed, tuple(mirror + packed for mirror in dataset_class.mirrors), md5)
        plain = packed.removesuffix(".gz")
        if not files.find(packed, *subfolders) and (path := files.find_unpacked(plain, *subfolders)):
            files.link(path, f"{name}/raw/{plain}")
            continue
        path = files.get(file, *subfolders)
        with open(path, "rb") as stream:
            files.gunzip(stream, path, f"{name}/raw/{plain}")
    train, test = _open_splits(
        files, name, f"fetch the four files of {dataset_class.mirrors[0]} and give their folder"
    )
    return RawDataset(train, test, train.classes)


def emnist(files: SourceFiles, split: str) -> RawDataset:
    """Opens one of EMNIST's splits; its images are stored transposed, so they are transposed back."""
    from PIL import Image

    dataset_class = load_torchvision().datasets.EMNIST
    archive = PublishedFile("gzip.zip", (dataset_class.url,), dataset_class.md5)
    names = [f"emnist-{split}-{name}-ubyte" for name in EMNIST_FILES]
    subfolders = ("EMNIST/raw", "raw")
    unpacked = {name: path for name in names if (path := files.find(name, *subfolders))}
    if len(unpacked) == len(names):
        for name, path in unpacked.items():
            files.record(path)
            files.link(path, f"EMNIST/raw/{name}")
    else:
        _unzip(files, files.get(archive, *subfolders), names)
    train, test = _open_splits(
        files,
        "EMNIST",
        archive.advice,
        split=split,
        transform=lambda image: image.transpose(Image.Transpose.TRANSPOSE),
    )
    return RawDataset(train, test, train.classes)


EMNIST_FILES = ("train-images-idx3", "train-labels-idx1", "test-images-idx3", "test-labels-idx1")


def _unzip(files: SourceFiles, archive: Path, names: list[str]) -> None:
    """Unpacks these files of EMNIST's archive to the scratch directory."""
    try:
        with zipfile.ZipFile(archive) as packed:
            for name in names:
                with packed.open(f"gzip/{name}.gz") as stream:
                    files.gunzip(stream, archive, f"EMNIST/raw/{name}")
    except (zipfile.BadZipFile, KeyError) as error:
        raise BadInput(f"{archive} cannot be unpacked ({error}); fetch it again") from None


def _open_splits(files: SourceFiles, name: str, advice: str, **options: Any) -> tuple[Any, Any]:
    """Opens torchvision's train and test dataset in the scratch directory."""
    dataset_class = getattr(load_torchvision().datasets, name)
    return open_source(
        f"{files.used[-1].split(' (')[0]} or a file beside it",
        advice,
        lambda: tuple(dataset_class(files.scratch, train=train, **options) for train in (True, False)),
    )
