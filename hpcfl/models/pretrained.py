"""Pretrained weights: torchvision's from the local cache, or a file, read without running code in it."""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hpcfl.errors import BadInput
from hpcfl.models.network import build_on_meta
from hpcfl.models.registry import base_name, split_name
from hpcfl.utils.hdf5_file import open_regular
from hpcfl.utils.torchvision_loader import load_torchvision

Weights = dict[str, Tensor]
TORCHVISION_NAMES = {"shufflenet_v2": "shufflenet_v2_x1_0"}
"""torchvision's names of architectures that have another name in hpcfl."""
CLASSIFIER = ("fc.", "classifier.", "aux1.", "aux2.", "head.")
"""Prefixes that are not loaded: a client's head is always initialised randomly."""
PLAIN_TYPES = {
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
}
"""Types of tensors that are loaded; not complex, quantised or float8."""
OLD_DENSENET = re.compile(r"(denselayer\d+\.(?:norm|relu|conv))\.([12]\.)")


def read_pretrained(
    wanted: Mapping[str, str],
    architectures: Iterable[str],
    shape: tuple[int, ...],
    classes: int,
    features: int,
    directory: Path = Path(),
) -> dict[str, Weights]:
    """Returns the initial parameters and buffers by extractor, checked against the networks.

    Relative paths begin in `directory`.
    """
    used: dict[str, dict[str, str]] = {}
    for architecture in architectures:
        extractor = split_name(architecture)[0]
        used.setdefault(base_name(extractor), {})[extractor] = architecture
    weights = {}
    for name, source in wanted.items():
        if name not in used:
            raise BadInput(
                f"models.pretrained.{name}: no client has this architecture; they have {', '.join(used)}"
            )
        setting = f"models.pretrained.{name} = {source!r}"
        loaded = _read(setting, _path(setting, name, source, directory))
        for extractor, architecture in used[name].items():
            expected = build_on_meta(architecture, shape, classes, features).extractor.state_dict()
            weights[extractor] = _match(loaded, expected, setting)
    return weights


def _path(setting: str, name: str, source: str, directory: Path) -> Path:
    """Returns the file: `source` itself, or torchvision's weights of that name in torch's cache."""
    if Path(source).suffix or (directory / source).exists():
        return directory / source
    models = load_torchvision().models
    try:
        weights = models.get_model_weights(TORCHVISION_NAMES.get(name, name))[source]
    except (ValueError, KeyError):
        raise BadInput(
            f"{setting}: neither a file nor the name of weights that torchvision has for it"
        ) from None
    path = Path(torch.hub.get_dir()) / "checkpoints" / weights.url.rpartition("/")[2]
    if not path.exists():
        raise BadInput(f"{setting}: not in the cache; fetch {weights.url} and put it into {path.parent}")
    digest = path.stem.rpartition("-")[2]  # the file name ends in the first digits of its SHA-256
    try:
        with open(open_regular(path), "rb") as file:
            is_whole = hashlib.file_digest(file, "sha256").hexdigest().startswith(digest)
    except OSError as error:
        raise BadInput(f"{setting}: cannot read {path}: {error.strerror}") from None
    if not is_whole:
        raise BadInput(f"{setting}: {path} is damaged; fetch {weights.url} again")
    return path


def _read(setting: str, path: Path) -> Weights:
    """Returns the named tensors of a file: a state_dict, or a checkpoint that contains one."""
    try:
        os.close(open_regular(path))
        loaded = _load(path)
    except OSError as error:
        raise BadInput(f"{setting}: cannot read {path}: {error.strerror or error}") from None
    except Exception:  # torch raises RuntimeError, UnpicklingError, EOFError and others on foreign files
        raise BadInput(f"{setting}: {path} is no file of plain tensors that torch.save wrote") from None
    for key in ("state_dict", "model"):
        if isinstance(loaded, Mapping) and isinstance(loaded.get(key), Mapping):
            loaded = loaded[key]
    if not isinstance(loaded, Mapping) or not all(
        isinstance(key, str) and isinstance(value, Tensor) for key, value in loaded.items()
    ):
        raise BadInput(f"{setting}: {path} holds no named tensors")
    return dict(loaded)


def _load(path: Path) -> Any:
    """Returns the content of a file, loaded without running code; torch's older format cannot be mapped."""
    with warnings.catch_warnings(action="ignore"):  # about kinds of tensors that are refused later
        try:
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except RuntimeError:
            return torch.load(path, map_location="cpu", weights_only=True)


def _match(loaded: Weights, expected: Weights, setting: str) -> Weights:
    """Returns the weights of the extractor; names may be torchvision's or those of an hpcfl network.

    Old files lack the counters of batch-norm, which then start at 0, and have an extra dot in the names of
    DenseNet's layers.
    """
    named = {key.removeprefix("extractor.").removeprefix("net."): value for key, value in loaded.items()}
    named = {OLD_DENSENET.sub(r"\1\2", key): value for key, value in named.items()}
    need = {key.removeprefix("net."): key for key in expected}
    for key in need:
        if key.endswith("num_batches_tracked"):
            named.setdefault(key, torch.tensor(0))
    if missing := [key for key in need if key not in named]:
        raise BadInput(f"{setting}: {missing[0]} is missing there{_more(missing)}")
    if extra := [key for key in named if key not in need and not key.startswith(CLASSIFIER)]:
        raise BadInput(f"{setting}: {extra[0]} there belongs to another network{_more(extra)}")
    for key, full in need.items():
        got, shape, dtype = named[key], tuple(expected[full].shape), expected[full].dtype
        if _is_plain(got) and tuple(got.shape) != shape:
            raise BadInput(f"{setting}: {key} has shape {tuple(got.shape)} there, {shape} here")
        if not _is_plain(got) or not got.isfinite().all():
            raise BadInput(f"{setting}: {key} is not a plain array of finite real numbers there")
        if not got.to(dtype).isfinite().all():
            raise BadInput(f"{setting}: {key} has numbers there that are too large for {dtype}")
    return {full: named[key] for key, full in need.items()}


def _is_plain(tensor: Tensor) -> bool:
    """Returns whether a tensor is a dense array in memory of a type that torch computes with everywhere."""
    dense = tensor.layout is torch.strided and not tensor.is_nested and not tensor.is_meta
    return dense and tensor.dtype in PLAIN_TYPES


def _more(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""
