"""The lower of two levels of a network's features: the output of an inner layer, flattened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from hpcfl.errors import BadInput
from hpcfl.models.network import Network, build_on_meta
from hpcfl.models.registry import find_architecture, split_name


def low_level_layer(network: Network, architecture: str) -> nn.Module:
    """Returns the layer of a network's extractor that its registry entry names."""
    name = find_architecture(split_name(architecture)[0]).low_level
    try:
        if name:
            return network.extractor.get_submodule(name)
        reason = "it names none"
    except AttributeError:
        reason = f"there is no layer {name!r}"
    raise BadInput(f"models: {architecture} has no lower level of features ({reason}): see docs/models.md")


@contextmanager
def low_level_outputs(layer: nn.Module) -> Iterator[Callable[[], Tensor]]:
    """Within it, the function that it gives returns the layer's output for the last batch, flattened."""
    last: list[Tensor] = []

    def keep(module: nn.Module, arguments: object, output: Tensor) -> None:
        last[:] = [output]

    hook = layer.register_forward_hook(keep)
    try:
        yield lambda: last[0].flatten(1)
    finally:
        hook.remove()
        last.clear()


def low_level_width(
    architecture: str, shape: tuple[int, ...], classes: int, features: int, input_type: str = "float32"
) -> int:
    """Returns the number of features of an architecture's lower level."""
    network = build_on_meta(architecture, shape, classes, features).eval()
    with low_level_outputs(low_level_layer(network, architecture)) as output, torch.no_grad():
        network.extractor(torch.empty(1, *shape, dtype=getattr(torch, input_type), device="meta"))
        return output().shape[1]
