"""What an architecture costs, whoever trains it: counted on the `meta` device, kept on disk."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import cross_entropy

from hpcfl.errors import BadInput
from hpcfl.models.network import Network, build_on_meta
from hpcfl.models.registry import ARCHITECTURES, split_name
from hpcfl.utils.files import part_file


@dataclass(frozen=True)
class Cost:
    parameters: int
    buffers: int
    """Bytes of what is neither a parameter nor trained: batch-norm's statistics."""
    flops: int
    """Of a forward pass over one sample; a multiplication and an addition are two."""
    activations: int
    """Bytes that a training step keeps for its backward pass, at the batch size."""
    inference: int
    """Bytes of the largest layer's input and output at the inference batch."""

    @property
    def state(self) -> int:
        """Bytes of a client's network."""
        return 4 * self.parameters + self.buffers


def cost(network: Network, shape: tuple[int, ...], batch: int, inference: int) -> Cost:
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
        _largest_layer(network, shape) * inference,
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


def _largest_layer(network: nn.Module, shape: tuple[int, ...]) -> int:
    """Returns the most bytes that a layer's input and output take, per sample."""
    most = 0

    def see(module: nn.Module, given: tuple[Any, ...], out: Any) -> None:
        nonlocal most
        tensors = [t for t in (*given, out) if isinstance(t, Tensor)]
        most = max(most, sum(t.numel() * t.element_size() for t in tensors))

    layers = [module for module in network.modules() if not list(module.children())]
    hooks = [module.register_forward_hook(see) for module in layers]
    network.eval()
    with torch.no_grad():
        network(torch.empty(1, *shape, device="meta"))
    for hook in hooks:
        hook.remove()
    return most


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def costs(
    names: Iterable[str], shape: tuple[int, ...], classes: int, features: int, batch: int, inference: int
) -> dict[str, Cost]:
    """Returns the cost of each architecture, from disk where it was counted before."""
    return {name: _known(name, (shape, classes, features), (batch, inference)) for name in names}


def _known(name: str, known: tuple[tuple[int, ...], int, int], batches: tuple[int, int]) -> Cost:
    own = split_name(name)[0] not in ARCHITECTURES  # a user's file may change at any time
    shape, _, features = known
    key = hashlib.blake2b(repr((name, known, batches, _versions())).encode(), digest_size=12)
    path = _cache() / f"{key.hexdigest()}.json"
    if not own:
        try:
            return Cost(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            pass  # not counted yet
    network = build_on_meta(name, *known)
    try:
        _check(network, name, shape, features)
        counted = cost(network, shape, *batches)
    except BadInput:
        raise
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise BadInput(f"models: {name} cannot take samples of shape {shape} ({reason})") from None
    if not own:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with part_file(path) as part:
                part.write_text(json.dumps(asdict(counted)))
                part.replace(path)
        except OSError:
            pass  # a home that cannot be written to costs a second each time
    return counted


def _check(network: Network, name: str, shape: tuple[int, ...], features: int) -> None:
    """Raises BadInput if a network is not one that clients can train."""
    for key, parameter in network.named_parameters():
        if isinstance(parameter, nn.UninitializedParameter):
            raise BadInput(f"models: {name}: {key} has no shape yet; give its layer all sizes")
        if parameter.dtype != torch.float32:
            raise BadInput(f"models: {name}: {key} is {parameter.dtype}, not float32")
    features_BD = network.extractor(torch.empty(2, *shape, device="meta"))
    got = tuple(features_BD.shape) if isinstance(features_BD, Tensor) else (2, type(features_BD).__name__)
    if got != (2, features):
        raise BadInput(f"models: {name} gives features of shape {got[1:]}, not {features}")


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hpcfl" / "costs"


@cache
def _versions() -> list[str]:
    """What a count depends on: torch, torchvision, and the files that build networks."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    source = hashlib.blake2b(b"".join(path.read_bytes() for path in files), digest_size=8).hexdigest()
    return [version("torch"), version("torchvision"), source]
