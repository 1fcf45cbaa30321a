"""What an architecture costs, whoever trains it: counted on the `meta` device, kept on disk."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import cross_entropy

from hpcfl.errors import BadInput
from hpcfl.files import aside
from hpcfl.models.network import Network, on_meta
from hpcfl.models.registry import ARCHITECTURES, parts


@dataclass(frozen=True)
class Cost:
    parameters: int
    buffers: int
    """Bytes of what is neither a parameter nor trained: batch-norm's statistics."""
    flops: int
    """Of a forward pass over one sample; a multiplication and an addition are two."""
    activations: int
    """Bytes that a training step keeps for its backward pass, at the batch size."""

    @property
    def state(self) -> int:
        """Bytes of a client's network."""
        return 4 * self.parameters + self.buffers


def cost(network: Network, shape: tuple[int, ...], batch: int) -> Cost:
    """Returns the cost of a network on the `meta` device."""
    from torch.utils.flop_counter import FlopCounterMode  # loads torch's compiler: a second

    network.eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(torch.empty(1, *shape, device="meta"))
    return Cost(
        sum(p.numel() for p in network.parameters()),
        sum(b.numel() * b.element_size() for b in network.buffers()),
        counter.get_total_flops(),
        _activations(network, shape, max(2, batch)),
    )


def _activations(network: nn.Module, shape: tuple[int, ...], batch: int) -> int:
    """Returns the bytes of all tensors that autograd keeps, each storage once, parameters apart."""
    own = {_storage(p) for p in network.parameters()}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        if _storage(tensor) not in own:
            kept[_storage(tensor)] = tensor
        return tensor

    network.train()
    with saved_tensors_hooks(keep, lambda tensor: tensor):
        out = network(torch.empty(batch, *shape, device="meta"))
        cross_entropy(out, torch.zeros(batch, dtype=torch.int64, device="meta"))
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def costs(
    names: Iterable[str], shape: tuple[int, ...], classes: int, features: int, batch: int
) -> dict[str, Cost]:
    """Returns the cost of each architecture, from disk where it was counted before."""
    return {name: _known(name, shape, classes, features, batch) for name in names}


def _known(name: str, shape: tuple[int, ...], classes: int, features: int, batch: int) -> Cost:
    own = parts(name)[0] not in ARCHITECTURES  # a user's file may change at any time
    key = hashlib.blake2b(repr((name, shape, classes, features, batch, _versions())).encode(), digest_size=12)
    path = _cache() / f"{key.hexdigest()}.json"
    if not own:
        try:
            return Cost(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            pass  # not counted yet
    network = on_meta(name, shape, classes, features)
    try:
        _check_width(network, name, shape, features)
        counted = cost(network, shape, batch)
    except (RuntimeError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise BadInput(f"models: {name} cannot take samples of shape {shape} ({reason})") from None
    if not own:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with aside(path) as part:
                part.write_text(json.dumps(asdict(counted)))
                part.replace(path)
        except OSError:
            pass  # a home that cannot be written to costs a second each time
    return counted


def _check_width(network: Network, name: str, shape: tuple[int, ...], features: int) -> None:
    got = tuple(network.extractor(torch.empty(2, *shape, device="meta")).shape)
    if got != (2, features):
        raise BadInput(f"models: {name} gives features of shape {got[1:]}, not {features}")


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hpcfl" / "costs"


def _versions() -> list[str]:
    """What a count depends on: torch, torchvision, and the files that build networks."""
    from importlib.metadata import version

    files = sorted(Path(__file__).parent.glob("*.py"))
    source = hashlib.blake2b(b"".join(path.read_bytes() for path in files), digest_size=8).hexdigest()
    return [version("torch"), version("torchvision"), source]
