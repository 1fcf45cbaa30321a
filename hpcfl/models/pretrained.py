"""A pretrained start: torchvision's weights from the local cache, or a file; no code in it is ever run."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hpcfl.errors import BadInput
from hpcfl.models.network import build_on_meta
from hpcfl.models.registry import split_name
from hpcfl.utils.torchvision_loader import load_torchvision

Weights = dict[str, Tensor]
NAMES = {"shufflenet_v2": "shufflenet_v2_x1_0"}
"""What torchvision calls a network, where hpcfl calls it otherwise."""
CLASSIFIER = ("fc.", "classifier.", "aux1.", "aux2.", "head.")
"""Parts of a file that are not taken over: a client's head always starts anew."""
OLD_DENSENET = re.compile(r"(denselayer\d+\.(?:norm|relu|conv))\.([12]\.)")


def read_pretrained(
    wanted: Mapping[str, str],
    architectures: Iterable[str],
    shape: tuple[int, ...],
    classes: int,
    features: int,
) -> dict[str, Weights]:
    """Returns by extractor the parameters and buffers to start from, checked against the networks."""
    used = {split_name(architecture)[0]: architecture for architecture in architectures}
    found = {}
    for name, what in wanted.items():
        if name not in used:
            raise BadInput(
                f"models.pretrained.{name}: no client has this architecture; they have {', '.join(used)}"
            )
        want = build_on_meta(used[name], shape, classes, features).extractor.state_dict()
        where = f"models.pretrained.{name} = {what!r}"
        found[name] = _fitting(_read(where, _path(where, name, what)), want, where)
    return found


def _path(where: str, name: str, what: str) -> Path:
    """Returns the file that is meant: itself, or where torch keeps torchvision's weights of this name."""
    if Path(what).suffix or Path(what).exists():
        return Path(what)
    models = load_torchvision().models
    try:
        weights = models.get_model_weights(NAMES.get(name, name))[what]
    except (ValueError, KeyError):
        raise BadInput(
            f"{where}: neither a file nor the name of weights that torchvision has for it"
        ) from None
    path = Path(torch.hub.get_dir()) / "checkpoints" / weights.url.rpartition("/")[2]
    if not path.exists():
        raise BadInput(f"{where}: not in the cache; fetch {weights.url} and put it into {path.parent}")
    digest = path.stem.rpartition("-")[2]  # torchvision names a file by the first digits of its SHA-256
    with open(path, "rb") as file:
        if not hashlib.file_digest(file, "sha256").hexdigest().startswith(digest):
            raise BadInput(f"{where}: {path} is damaged; fetch {weights.url} again")
    return path


def _read(where: str, path: Path) -> Weights:
    """Returns the named tensors of a file: a state, or a checkpoint that holds one."""
    try:
        with open(path, "rb"):
            pass
        loaded = _loaded(path)
    except OSError as error:
        raise BadInput(f"{where}: cannot read {path}: {error.strerror or error}") from None
    except (
        Exception
    ):  # torch raises RuntimeError, UnpicklingError, EOFError and more on what it does not know
        raise BadInput(f"{where}: {path} is no file of plain tensors that torch.save wrote") from None
    for key in ("state_dict", "model"):
        if isinstance(loaded, Mapping) and isinstance(loaded.get(key), Mapping):
            loaded = loaded[key]
    if not isinstance(loaded, Mapping) or not all(
        isinstance(key, str) and isinstance(value, Tensor) for key, value in loaded.items()
    ):
        raise BadInput(f"{where}: {path} holds no named tensors")
    return dict(loaded)


def _loaded(path: Path) -> Any:
    """Reads without running code; files of the older format cannot be mapped."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except RuntimeError:
        return torch.load(path, map_location="cpu", weights_only=True)


def _fitting(loaded: Weights, want: Weights, where: str) -> Weights:
    """Returns what the extractor needs; names may be torchvision's or those of a whole hpcfl network.

    Old files lack batch-norm's counters, which then start at 0, and name DenseNet's layers with a dot more.
    """
    named = {key.removeprefix("extractor.").removeprefix("net."): value for key, value in loaded.items()}
    named = {OLD_DENSENET.sub(r"\1\2", key): value for key, value in named.items()}
    need = {key.removeprefix("net."): key for key in want}
    for key in need:
        if key.endswith("num_batches_tracked"):
            named.setdefault(key, torch.tensor(0))
    if missing := [key for key in need if key not in named]:
        raise BadInput(f"{where}: {missing[0]} is missing there{_more(missing)}")
    if extra := [key for key in named if key not in need and not key.startswith(CLASSIFIER)]:
        raise BadInput(f"{where}: {extra[0]} there belongs to another network{_more(extra)}")
    for key, full in need.items():
        got, wanted = named[key], want[full]
        if got.shape != wanted.shape:
            raise BadInput(f"{where}: {key} has shape {tuple(got.shape)} there, {tuple(wanted.shape)} here")
        if got.is_sparse or got.is_meta or got.is_complex() or not got.isfinite().all():
            raise BadInput(f"{where}: {key} is not a plain array of finite real numbers there")
    return {full: named[key] for key, full in need.items()}


def _more(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""
