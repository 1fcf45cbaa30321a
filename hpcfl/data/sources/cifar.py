"""CIFAR-10 and CIFAR-100: an archive of pickled batches, whose checksums torchvision knows."""

from __future__ import annotations

from hpcfl.data.sources.fetch import PublishedFile, SourceFiles
from hpcfl.data.sources.raw_dataset import RawDataset, open_source
from hpcfl.utils.torchvision_loader import load_torchvision


def cifar(files: SourceFiles, name: str) -> RawDataset:
    """Opens CIFAR10 or CIFAR100; torchvision verifies the checksum of a batch before unpickling it."""
    dataset_class = getattr(load_torchvision().datasets, name)
    archive = PublishedFile(dataset_class.filename, (dataset_class.url,), dataset_class.tgz_md5)
    if not files.find(archive.name) and (folder := files.find_unpacked(dataset_class.base_folder)):
        root = folder.parent
    else:
        root = files.unpack(files.get(archive))
    train, test = open_source(
        str(root / dataset_class.base_folder),
        f"{archive.advice} and put it beside that folder, then delete the folder",
        lambda: (dataset_class(root, train=True), dataset_class(root, train=False)),
    )
    return RawDataset(train, test, train.classes)
