"""Tiny files in the layouts that sources publish, and torchvision's checksums set to theirs."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hpcfl.data.dataset import Dataset
from hpcfl.data.prepared_file import open_prepared, verify_images
from hpcfl.data.sources import photos
from hpcfl.data.sources.fetch import PublishedFile
from hpcfl.utils.torchvision_loader import load_torchvision


def images(number: int, side: int = 32, channels: int = 3, seed: int = 0) -> np.ndarray:
    """Returns images [N, H, W, C] (no C if there is one channel), all different."""
    shape = (number, side, side, channels) if channels > 1 else (number, side, side)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


def jpeg(path: Path, image: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path, quality=95)


def cifar10(top: Path, patch: pytest.MonkeyPatch) -> tuple[np.ndarray, np.ndarray]:
    """Five train batches of 2 and a test batch of 4 in their archive; returns images and labels in order."""
    kind = load_torchvision().datasets.CIFAR10
    x, y = images(14), np.arange(14) % 10
    folder = top / kind.base_folder
    folder.mkdir(parents=True)
    cuts = [slice(2 * b, 2 * b + 2) for b in range(5)] + [slice(10, 14)]
    listed = []
    for (name, _), cut in zip(kind.train_list + kind.test_list, cuts, strict=True):
        rows = x[cut].transpose(0, 3, 1, 2).reshape(-1, 3072)
        (folder / name).write_bytes(pickle.dumps({"data": rows, "labels": y[cut].tolist()}))
        listed.append([name, md5(folder / name)])
    meta = folder / kind.meta["filename"]
    meta.write_bytes(pickle.dumps({"label_names": [f"class {k}" for k in range(10)]}))
    patch.setattr(kind, "train_list", listed[:5])
    patch.setattr(kind, "test_list", listed[5:])
    patch.setattr(kind, "meta", kind.meta | {"md5": md5(meta)})
    with tarfile.open(top / kind.filename, "w:gz") as tar:
        tar.add(folder, kind.base_folder)
    patch.setattr(kind, "tgz_md5", md5(top / kind.filename))
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    return x, y


def idx(array: np.ndarray) -> bytes:
    """Returns an array of bytes in MNIST's format."""
    return struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


def mnist(top: Path, patch: pytest.MonkeyPatch, name: str = "FashionMNIST") -> tuple[np.ndarray, np.ndarray]:
    """Twelve train and eight test images, compressed."""
    top.mkdir(parents=True, exist_ok=True)
    x, y = images(20, 28, 1), (np.arange(20) % 10).astype(np.uint8)
    parts = [x[:12], y[:12], x[12:], y[12:]]
    kind = getattr(load_torchvision().datasets, name)
    listed = []
    for (file, _), part in zip(kind.resources, parts, strict=True):
        (top / file).write_bytes(gzip.compress(idx(part)))
        listed.append((file, md5(top / file)))
    patch.setattr(kind, "resources", listed)
    return x, y


def emnist(top: Path, patch: pytest.MonkeyPatch) -> tuple[np.ndarray, np.ndarray]:
    """Split `letters`, labels 1 … 26; returns upright images."""
    top.mkdir(parents=True, exist_ok=True)
    x, y = images(60, 28, 1), (1 + np.arange(60) % 26).astype(np.uint8)
    stored = x.transpose(0, 2, 1)
    parts = {"train-images-idx3": stored[:40], "train-labels-idx1": y[:40]}
    parts |= {"test-images-idx3": stored[40:], "test-labels-idx1": y[40:]}
    with zipfile.ZipFile(top / "gzip.zip", "w") as packed:
        for part, array in parts.items():
            packed.writestr(
                f"gzip/emnist-letters-{part}-ubyte.gz", gzip.compress(idx(np.ascontiguousarray(array)))
            )
    patch.setattr(load_torchvision().datasets.EMNIST, "md5", md5(top / "gzip.zip"))
    return x, y


def svhn(top: Path, patch: pytest.MonkeyPatch) -> tuple[np.ndarray, np.ndarray]:
    """Ten train and five test images; digit 0 is stored as 10."""
    from scipy.io import savemat

    top.mkdir(parents=True, exist_ok=True)
    kind = load_torchvision().datasets.SVHN
    x, y = images(15), np.arange(15) % 10
    listed = dict(kind.split_list)
    for split, cut in (("train", slice(0, 10)), ("test", slice(10, 15))):
        url, name, _ = kind.split_list[split]
        stored = np.where(y[cut] == 0, 10, y[cut])[:, None].astype(np.uint8)
        savemat(top / name, {"X": x[cut].transpose(1, 2, 3, 0), "y": stored})
        listed[split] = [url, name, md5(top / name)]
    patch.setattr(kind, "split_list", listed)
    return x, y


def flowers102(top: Path, patch: pytest.MonkeyPatch) -> None:
    """Six photographs of different sizes: numbers 1, 2 train, 3 validates, 4 to 6 test."""
    from scipy.io import savemat

    kind = load_torchvision().datasets.Flowers102
    top.mkdir(parents=True, exist_ok=True)
    with tarfile.open(top / "102flowers.tgz", "w:gz") as tar:
        for number in range(1, 7):
            photo = io.BytesIO()
            Image.fromarray(images(1, 70 + number)[0][:, : 60 + number]).save(photo, "JPEG")
            member = tarfile.TarInfo(f"jpg/image_{number:05d}.jpg")
            member.size = photo.tell()
            photo.seek(0)
            tar.addfile(member, photo)
    savemat(top / "imagelabels.mat", {"labels": [[1, 2, 1, 2, 1, 2]]})
    savemat(top / "setid.mat", {"trnid": [[1, 2]], "valid": [[3, 3]], "tstid": [[4, 5, 6]]})
    patch.setattr(
        kind, "_file_dict", {role: (name, md5(top / name)) for role, (name, _) in kind._file_dict.items()}
    )


def tinyimagenet(top: Path, patch: pytest.MonkeyPatch) -> None:
    """Two classes of three train images and two validation images."""
    folder = top / "tiny-imagenet-200"
    for k, wnid in enumerate(("n02", "n01")):
        for number, image in enumerate(images(3, 64, seed=k)):
            jpeg(folder / "train" / wnid / "images" / f"{wnid}_{number}.JPEG", image)
    for number, image in enumerate(images(2, 64, seed=9)):
        jpeg(folder / "val" / "images" / f"val_{number}.JPEG", image)
    (folder / "val" / "val_annotations.txt").write_text("val_1.JPEG\tn02\t0\t0\nval_0.JPEG\tn01\t0\t0\n")
    (folder / "wnids.txt").write_text("n02\nn01\n")
    (folder / "words.txt").write_text("n01\tgoldfish, Carassius\nn02\ttoad\nn03\tnewt\n")
    with zipfile.ZipFile(top / photos.TINY.name, "w") as packed:
        for path in sorted(folder.rglob("*")):
            packed.write(path, path.relative_to(top))
    patch.setattr(
        photos, "TINY", PublishedFile(photos.TINY.name, photos.TINY.urls, md5(top / photos.TINY.name))
    )


def femnist(top: Path) -> None:
    """LEAF's files: two writers, two train samples each, one test sample each."""
    for part, number, seed in (("train", 2, 0), ("test", 1, 1)):
        (top / part).mkdir(parents=True)
        data = {
            writer: {
                "x": (images(number, 28, 1, seed + k) / 255).reshape(number, -1).round(4).tolist(),
                "y": [k, 61][:number],
            }
            for k, writer in enumerate(("f0001_41", "f0000_14"))
        }
        text = json.dumps({"users": list(data), "num_samples": [number] * 2, "user_data": data})
        (top / part / "all_data_0.json").write_text(text)


def opened(name: str) -> Dataset:
    """Returns a dataset that was prepared in `root`, verified."""
    data = open_prepared(Path("root") / f"{name}.h5")
    verify_images(data)
    return data
