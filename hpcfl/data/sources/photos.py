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


def svhn(files: SourceFiles) -> RawDataset:
    """Opens SVHN's train and test splits (not its easier split `extra`)."""
    dataset_class = load_torchvision().datasets.SVHN
    splits = []
    for split in ("train", "test"):
        url, name, md5 = dataset_class.split_list[split]
        file = PublishedFile(name, (url,), md5)
        files.link(files.get(file), name)
        splits.append(open_source(name, file.advice, partial(dataset_class, files.scratch, split=split)))
    return RawDataset(splits[0], splits[1], [str(digit) for digit in range(10)])


def flowers(files: SourceFiles) -> RawDataset:
    """Opens Flowers-102; its validation split is added to the train samples."""
    dataset_class = load_torchvision().datasets.Flowers102
    subfolder = "flowers-102"
    published = {
        role: PublishedFile(name, (dataset_class._download_url_prefix + name,), md5)
        for role, (name, md5) in dataset_class._file_dict.items()
    }
    for role in ("label", "setid"):
        files.link(files.get(published[role], subfolder), f"{subfolder}/{published[role].name}")
    images = published["image"]
    if not files.find(images.name, subfolder) and (folder := files.find_unpacked("jpg", subfolder)):
        files.link(folder, f"{subfolder}/jpg")
    else:
        files.unpack(files.get(images, subfolder))
        (files.scratch / "jpg").rename(files.scratch / subfolder / "jpg")
    train, val, test = open_source(
        str(files.directories[0]),
        images.advice,
        lambda: tuple(
            dataset_class(files.scratch, split=split, loader=load_image) for split in ("train", "val", "test")
        ),
    )
    from torch.utils.data import ConcatDataset

    train_and_val: Any = ConcatDataset([train, val])
    return RawDataset(train_and_val, test, dataset_class.classes, gray=False)


def tiny(files: SourceFiles) -> RawDataset:
    """Opens Tiny-ImageNet; its validation split is the test split, because the test split has no labels."""
    folder_module = load_torchvision().datasets.folder
    name = TINY.name.removesuffix(".zip")
    if not files.find(TINY.name) and (folder := files.find_unpacked(name)):
        top = folder
    else:
        top = files.unpack(files.get(TINY)) / name

    def read() -> tuple[list[tuple[str, int]], list[tuple[str, int]], list[str]]:
        ids = sorted((top / "wnids.txt").read_text().split())
        label = {wnid: k for k, wnid in enumerate(ids)}
        words = dict(line.split("\t", 1) for line in (top / "words.txt").read_text().splitlines())
        train = folder_module.make_dataset(str(top / "train"), label, extensions=folder_module.IMG_EXTENSIONS)
        lines = (top / "val" / "val_annotations.txt").read_text().splitlines()
        rows = sorted(line.split("\t")[:2] for line in lines)
        val = [(str(top / "val" / "images" / image), label[wnid]) for image, wnid in rows]
        return train, val, [words.get(wnid, wnid).split(",")[0] for wnid in ids]

    train, val, names = open_source(str(top), TINY.advice, read)
    for path, _ in val:
        if not Path(path).exists():
            raise BadInput(f"{path} is missing; {TINY.advice} again")
    return RawDataset(ImageFiles(train), ImageFiles(val), names, gray=False)
