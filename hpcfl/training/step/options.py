"""How networks compute a training step: fixed by configuration and device type, never by timing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from hpcfl.config.schema import RuntimeConfig
from hpcfl.config.train import TrainConfig
from hpcfl.models.registry import is_user_defined
from hpcfl.training.step.layers import convolution, linear
from hpcfl.training.step.optimizer import SMALL, Optimizer, OptimizerInBackward
from hpcfl.utils.accelerator import has_graphs


@dataclass(frozen=True)
class StepOptions:
    """The choices, besides threads and batch sizes, that may change the last bits of results."""

    direct: bool = True
    """Parameters are updated during the backward pass."""
    products: bool = True
    """Linear layers and small convolutions are matrix products that update their own weights."""
    channels_last: bool = True
    """Images and convolution weights are stored in torch's channels-last format."""
    bfloat16: bool = False
    """Networks compute in bfloat16 (torch's autocast); parameters, losses and prototypes are float32."""
    graphs: bool = False
    """CUDA graphs: the step of a full batch is captured once per client and round and replayed."""

    def __str__(self) -> str:
        chosen = [name.replace("_", " ") for name, value in vars(self).items() if value]
        return " + ".join(chosen) or "plain"

    @property
    def memory_format(self) -> torch.memory_format:
        return torch.channels_last if self.channels_last else torch.contiguous_format

    def autocast(self, device: str) -> AbstractContextManager[object]:
        """Returns the context for forward passes: torch's autocast, or none."""
        return torch.autocast(device, torch.bfloat16) if self.bfloat16 else nullcontext()

    def optimizer(self, network: nn.Module, settings: TrainConfig) -> Optimizer:
        """Returns the optimiser; with `products` it also replaces the forward method of suitable layers."""
        if not self.direct:
            return Optimizer(network, settings)
        optimizer = OptimizerInBackward(network, settings)
        for layer in network.modules() if self.products else ():
            if not isinstance(getattr(layer, "weight", None), nn.Parameter):
                continue  # a weight that is computed, for example by a parametrisation
            if type(layer) is nn.Linear and layer.weight.numel() > SMALL:
                layer.forward = partial(linear, layer, optimizer)  # type: ignore[method-assign]
            elif type(layer) is nn.Conv2d:
                layer.forward = partial(convolution, layer, optimizer)  # type: ignore[method-assign]
        return optimizer


def step_options(
    runtime: RuntimeConfig, device: str, *architectures: str, clip_norm: float = 0.0
) -> StepOptions:
    """Returns the options of networks that are trained together on a type of device.

    A user's own network is trained plainly unless runtime.step = 'direct': it may depend on the memory format
    (`view` after a convolution) or use the weights of a layer directly. Gradients can be clipped only if none
    was applied before the norm of all is known.
    """
    bfloat16, own_code = runtime.precision == "bfloat16", any(map(is_user_defined, architectures))
    safe = device == "cpu" and not bfloat16 and not own_code and not clip_norm
    direct = runtime.step == "direct" or (runtime.step == "auto" and safe)
    channels_last = direct or (bfloat16 and not own_code)
    return StepOptions(direct, direct, channels_last, bfloat16, runtime.graphs and has_graphs(device))


def all_step_options(
    runtime: RuntimeConfig, device: str, networks: Mapping[str, Sequence[str]], clip_norm: float = 0.0
) -> dict[str, StepOptions]:
    """Returns the options by a client's architecture, given those of all networks that it trains."""
    return {
        name: step_options(runtime, device, *together, clip_norm=clip_norm)
        for name, together in networks.items()
    }


def describe_options(options: Mapping[str, StepOptions]) -> str:
    """Returns the options as text: once if all architectures have the same, else by architecture."""
    distinct = {str(value) for value in options.values()}
    if len(distinct) == 1:
        return distinct.pop()
    return ", ".join(f"{name}: {value}" for name, value in options.items())
