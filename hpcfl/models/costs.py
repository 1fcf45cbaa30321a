"""Parameters, FLOPs and memory of an architecture, counted on the `meta` device and cached on disk."""

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
from hpcfl.models.registry import ARCHITECTURES, is_user_defined, split_name
from hpcfl.utils.files import write_atomically
from hpcfl.utils.user_code import describe_error


@dataclass(frozen=True)
class Cost:
    """The costs of one architecture."""

    parameters: int
    buffers: int
    """Bytes of buffers, such as batch-norm statistics."""
    flops: int
    """FLOPs of a forward pass of one sample; a multiply-add counts as two."""
    activations: int
    """Bytes that autograd saves for the backward pass of a training batch."""
    inference: int
    """Bytes of the input and output of the largest layer, for an inference batch."""

    @property
    def state(self) -> int:
        """Bytes of parameters and buffers."""
        return 4 * self.parameters + self.buffers


def cost(
    network: Network, shape: tuple[int, ...], batch: int, inference: int, dtype: torch.dtype = torch.float32
) -> Cost:
    """Returns the cost of a network on the `meta` device; `dtype` is that of its input."""
    from torch.utils.flop_counter import FlopCounterMode  # imports torch's compiler, which takes a second

    network.eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(torch.empty(1, *shape, dtype=dtype, device="meta"))
    return Cost(
        sum(p.numel() for p in network.parameters()),
        sum(b.numel() * b.element_size() for b in network.buffers()),
        counter.get_total_flops(),
        _activations(network, torch.empty(max(2, batch), *shape, dtype=dtype, device="meta")),
        _largest_layer(network, torch.empty(1, *shape, dtype=dtype, device="meta")) * inference,
    )


def linear_flops(network: nn.Module) -> int:
    """Returns the FLOPs of a forward pass of one vector through a network of linear layers."""
    return sum(2 * weight.numel() for weight in network.parameters() if weight.dim() == 2)


def _activations(network: nn.Module, x_B: Tensor) -> int:
    """Returns the bytes of all tensors that autograd saves, each storage once, without parameters."""
    parameters = {_storage(p) for p in network.parameters()}
    saved: dict[int, Tensor] = {}

    def save(tensor: Tensor) -> Tensor:
        if _storage(tensor) not in parameters:
            saved[_storage(tensor)] = tensor
        return tensor

    network.train()
    with saved_tensors_hooks(save, lambda tensor: tensor):
        cross_entropy(network(x_B), torch.zeros(len(x_B), dtype=torch.int64, device="meta"))
    return sum(tensor.untyped_storage().nbytes() for tensor in saved.values())


def _largest_layer(network: nn.Module, x_1: Tensor) -> int:
    """Returns the largest bytes of a layer's input and output together, per sample."""
    largest = 0

    def measure(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        nonlocal largest
        tensors = [t for t in (*inputs, output) if isinstance(t, Tensor)]
        largest = max(largest, sum(t.numel() * t.element_size() for t in tensors))

    layers = [module for module in network.modules() if not list(module.children())]
    hooks = [module.register_forward_hook(measure) for module in layers]
    network.eval()
    with torch.no_grad():
        network(x_1)
    for hook in hooks:
        hook.remove()
    return largest


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def costs(
    names: Iterable[str],
    shape: tuple[int, ...],
    classes: int,
    features: int,
    batch: int,
    inference: int,
    input_type: str = "float32",
) -> dict[str, Cost]:
    """Returns the cost of each architecture, from the cache on disk if possible."""
    dims, dtype = (shape, classes, features), getattr(torch, input_type)
    return {name: _cached_cost(name, dims, (batch, inference), dtype) for name in names}


def _cached_cost(
    name: str, dims: tuple[tuple[int, ...], int, int], batches: tuple[int, int], dtype: torch.dtype
) -> Cost:
    """Returns the cost of an architecture; `dims` are sample shape, K and D."""
    shape, _, features = dims
    path = _cache_path(name, dims, batches)
    if path is not None:
        try:
            return Cost(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            pass  # not counted yet
    network = build_on_meta(name, *dims)
    try:
        _check(network, name, torch.empty(2, *shape, dtype=dtype, device="meta"), features)
        counted = cost(network, shape, *batches, dtype)
    except BadInput:
        raise
    except Exception as error:
        first_line = (str(error) or type(error).__name__).splitlines()[0]
        reason = describe_error(error) if is_user_defined(name) else first_line
        raise BadInput(f"models: {name} cannot take samples of shape {shape} ({reason})") from None
    if path is not None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(asdict(counted)).encode())
        except OSError:
            pass  # without a writable cache every call counts again, about a second
    return counted


def _check(network: Network, name: str, x_2: Tensor, features: int) -> None:
    """Raises BadInput unless parameters are float32 and features have the shape [B, D]."""
    for key, parameter in network.named_parameters():
        if isinstance(parameter, nn.UninitializedParameter):
            raise BadInput(f"models: {name}: {key} has no shape yet; give its layer all sizes")
        if parameter.dtype != torch.float32:
            raise BadInput(f"models: {name}: {key} is {parameter.dtype}, not float32")
    features_BD = network.extractor(x_2)
    got = tuple(features_BD.shape) if isinstance(features_BD, Tensor) else (2, type(features_BD).__name__)
    if got != (2, features):
        raise BadInput(f"models: {name} gives features of shape {got[1:]}, not {features}")


def _cache_path(name: str, dims: tuple[tuple[int, ...], int, int], batches: tuple[int, int]) -> Path | None:
    """Returns where the cost is cached; None for a user's own code, which may change at any time."""
    if split_name(name)[0] not in ARCHITECTURES:
        return None
    try:
        cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # neither HOME nor an entry of this user: nothing is cached
        return None
    key = hashlib.blake2b(repr((name, dims, batches, _versions())).encode(), digest_size=12)
    return cache_home / "hpcfl" / "costs" / f"{key.hexdigest()}.json"


@cache
def _versions() -> list[str]:
    """Returns what a count depends on: versions of torch and torchvision, and a hash of this package."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    source = hashlib.blake2b(b"".join(path.read_bytes() for path in files), digest_size=8).hexdigest()
    return [version("torch"), version("torchvision"), source]
