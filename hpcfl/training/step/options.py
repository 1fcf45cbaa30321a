"""Which way a run's networks compute: fixed by the configuration and the kind of device, never timed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from hpcfl.config.schema import RuntimeConfig, TrainConfig
from hpcfl.models.registry import is_user_defined
from hpcfl.training.step.layers import convolution, linear
from hpcfl.training.step.sgd import SMALL, Sgd, SgdInBackward


@dataclass(frozen=True)
class StepOptions:
    """Every choice that may change last bits, but for threads and batch sizes."""

    direct: bool = True
    """Parameters move in the backward pass."""
    products: bool = True
    """Linear layers and small convolutions are matrix products that move their weights themselves."""
    channels_last: bool = True
    """Images and their kernels lie in memory pixel by pixel, all channels of a pixel together."""
    bfloat16: bool = False
    """Networks compute in 16 bits (torch's autocast); parameters, losses and prototypes have 32."""
    graphs: bool = False
    """Full batches are recorded once per client and round and replayed: CUDA graphs."""

    def __str__(self) -> str:
        chosen = [name.replace("_", " ") for name, value in vars(self).items() if value]
        return " + ".join(chosen) or "plain"

    @property
    def memory_format(self) -> torch.memory_format:
        return torch.channels_last if self.channels_last else torch.contiguous_format

    def arithmetic(self, device: str) -> AbstractContextManager[object]:
        """Returns the context in which networks compute."""
        return torch.autocast(device, torch.bfloat16) if self.bfloat16 else nullcontext()

    def sgd(self, network: nn.Module, settings: TrainConfig) -> Sgd:
        """Returns how the network's parameters move; some of its layers may then move theirs themselves."""
        if not self.direct:
            return Sgd(network, settings)
        sgd = SgdInBackward(network, settings)
        for layer in network.modules() if self.products else ():
            if not isinstance(getattr(layer, "weight", None), nn.Parameter):
                continue  # it is computed from others
            if type(layer) is nn.Linear and layer.weight.numel() > SMALL:
                layer.forward = partial(linear, layer, sgd)  # type: ignore[method-assign]
            elif type(layer) is nn.Conv2d:
                layer.forward = partial(convolution, layer, sgd)  # type: ignore[method-assign]
        return sgd


def step_options(runtime: RuntimeConfig, device: str, architecture: str) -> StepOptions:
    """Returns how a network computes on a kind of device, cpu or cuda.

    A user's own network is left alone unless he says that it may be changed: it may look at its tensors'
    memory (`view` after a convolution), or use a layer's weights by itself.
    """
    bfloat16 = runtime.precision == "bfloat16"
    fits = device == "cpu" and not bfloat16 and not is_user_defined(architecture)
    direct = runtime.step == "direct" or (runtime.step == "auto" and fits)
    channels_last = direct or (bfloat16 and not is_user_defined(architecture))
    return StepOptions(direct, direct, channels_last, bfloat16, runtime.graphs and device == "cuda")


def all_step_options(
    runtime: RuntimeConfig, device: str, architectures: Iterable[str]
) -> dict[str, StepOptions]:
    """Returns how each network of a run computes."""
    return {name: step_options(runtime, device, name) for name in architectures}


def describe_options(ways: Mapping[str, StepOptions]) -> str:
    """Returns how networks compute: once, if all do so alike."""
    alike = {str(way) for way in ways.values()}
    return alike.pop() if len(alike) == 1 else ", ".join(f"{name}: {way}" for name, way in ways.items())
