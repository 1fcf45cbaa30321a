"""SVHN, Flowers-102 and Tiny-ImageNet."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from hpcfl.data.sources.fetch import PublishedFile, SourceFiles
from hpcfl.data.sources.raw_dataset import ImageFiles, RawDataset, load_image, open_source
from hpcfl.errors import BadInput
from hpcfl.utils.torchvision_loader import load_torchvision

TINY = PublishedFile(
    "tiny-imagenet-200.zip",
    ("http://cs231n.stanford.edu/tiny-imagenet-200.zip",),
    "90528d7ca1a48142e341f4ef8d21d0de",
)


def svhn(where: SourceFiles) -> RawDataset:
    """Opens SVHN's train and test parts (not its easier `extra` part)."""
    kind = load_torchvision().datasets.SVHN
    parts = []
    for split in ("train", "test"):
        url, name, md5 = kind.split_list[split]
        file = PublishedFile(name, (url,), md5)
        where.link(where.get(file), name)
        parts.append(open_source(name, file.advice, partial(kind, where.scratch, split=split)))
    return RawDataset(parts[0], parts[1], [str(digit) for digit in range(10)])


def flowers(where: SourceFiles) -> RawDataset:
    """Opens Flowers-102: train and validation parts train, the test part tests."""
    kind = load_torchvision().datasets.Flowers102
    below = "flowers-102"
    files = {
        role: PublishedFile(name, (kind._download_url_prefix + name,), md5)
        for role, (name, md5) in kind._file_dict.items()
    }
    for role in ("label", "setid"):
        where.link(where.get(files[role], below), f"{below}/{files[role].name}")
    if not where.find(files["image"].name, below) and (photos := where.extracted("jpg", below)):
        where.link(photos, f"{below}/jpg")
    else:
        where.unpack(where.get(files["image"], below))
        (where.scratch / "jpg").rename(where.scratch / below / "jpg")
    train, val, test = open_source(
        str(where.directories[0]),
        files["image"].advice,
        lambda: tuple(
            kind(where.scratch, split=split, loader=load_image) for split in ("train", "val", "test")
        ),
    )
    from torch.utils.data import ConcatDataset

    both: Any = ConcatDataset([train, val])
    return RawDataset(both, test, kind.classes, gray=False)


def tiny(where: SourceFiles) -> RawDataset:
    """Opens Tiny-ImageNet: its train part and its labelled validation part (the test part has no labels)."""
    reader = load_torchvision().datasets.folder
    name = TINY.name.removesuffix(".zip")
    if not where.find(TINY.name) and (folder := where.extracted(name)):
        top = folder
    else:
        top = where.unpack(where.get(TINY)) / name

    def read() -> tuple[list[tuple[str, int]], list[tuple[str, int]], list[str]]:
        ids = sorted((top / "wnids.txt").read_text().split())
        number = {wnid: k for k, wnid in enumerate(ids)}
        words = dict(line.split("\t", 1) for line in (top / "words.txt").read_text().splitlines())
        train = reader.make_dataset(str(top / "train"), number, extensions=reader.IMG_EXTENSIONS)
        lines = (top / "val" / "val_annotations.txt").read_text().splitlines()
        rows = sorted(line.split("\t")[:2] for line in lines)
        val = [(str(top / "val" / "images" / image), number[wnid]) for image, wnid in rows]
        return train, val, [words.get(wnid, wnid).split(",")[0] for wnid in ids]

    train, val, names = open_source(str(top), TINY.advice, read)
    for path, _ in val:
        if not Path(path).exists():
            raise BadInput(f"{path} is missing; {TINY.advice} again")
    return RawDataset(ImageFiles(train), ImageFiles(val), names, gray=False)
