"""CIFAR-10 and CIFAR-100: an archive of pickled batches, each with torchvision's checksum."""

from __future__ import annotations

from hpcfl.data.sources.fetch import PublishedFile, SourceFiles
from hpcfl.data.sources.raw_dataset import RawDataset, open_source
from hpcfl.utils.torchvision_loader import load_torchvision


def cifar(where: SourceFiles, name: str) -> RawDataset:
    """Opens CIFAR10 or CIFAR100; torchvision unpickles no batch whose checksum is not the published one."""
    kind = getattr(load_torchvision().datasets, name)
    archive = PublishedFile(kind.filename, (kind.url,), kind.tgz_md5)
    if not where.find(archive.name) and (folder := where.extracted(kind.base_folder)):
        root = folder.parent
    else:
        root = where.unpack(where.get(archive))
    train, test = open_source(
        str(root / kind.base_folder),
        f"{archive.advice} and put it beside that folder, then delete the folder",
        lambda: (kind(root, train=True), kind(root, train=False)),
    )
    return RawDataset(train, test, train.classes)
