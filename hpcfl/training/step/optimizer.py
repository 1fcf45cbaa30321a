"""Optimisers: parameters are updated after the backward pass, or during it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from hpcfl.config.train import TrainConfig
from hpcfl.errors import Fatal
from hpcfl.training.step.update_rules import Parts, update_rule

WEIGHTS_USED_DIRECTLY = (
    "a network uses the weights of a layer by themselves: train it with runtime.step = 'plain'"
)
SMALL = 8192
"""Parameters with at most so many elements gain nothing from a custom layer; they are updated together."""


class Optimizer:
    """Updates all parameters of a network after the backward pass."""

    def __init__(self, network: nn.Module, settings: TrainConfig):
        self.parameters: list[Tensor] = [p for p in network.parameters() if p.requires_grad]
        self.clip_norm, self.rule = settings.clip_norm, update_rule(settings)

    def reset(self) -> None:
        """Forgets the last round: momentum, moments."""
        self.rule.reset()

    def step(self, loss: Tensor) -> None:
        """Computes the gradients of the loss, clips them, updates the parameters and drops the gradients."""
        update_together(loss, [self])

    def update(self) -> None:
        """Updates what has a gradient after the backward pass."""
        parameters = [p for p in self.parameters if p.grad is not None]
        gradients = [p.grad for p in parameters if p.grad is not None]
        if not parameters:
            return
        with torch.no_grad():
            if self.clip_norm:
                clip(gradients, self.clip_norm)
            self.rule.update(parameters, gradients)
        for parameter in parameters:
            parameter.grad = None


def clip(gradients: list[Tensor], norm: float) -> None:
    """Scales gradients whose norm is larger down to it, as torch.nn.utils.clip_grad_norm_ does."""
    found = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    if found.device.type == "cpu" and found + 1e-6 <= norm:
        return  # the factor would be 1; a GPU does not wait to know that
    torch._foreach_mul_(gradients, torch.clamp(norm / (found + 1e-6), max=1.0))


class OptimizerInBackward(Optimizer):
    """Updates each large parameter as soon as its gradient is known, and drops the gradient.

    A layer whose gradient is a matrix product may update its weight by `update_by_product`, which never
    stores the gradient. That is correct only for weights used once in a step: `uses` counts them.
    """

    def __init__(self, network: nn.Module, settings: TrainConfig):
        super().__init__(network, settings)
        self.uses: Counter[Tensor] = Counter()
        self.updated: set[Tensor] = set()
        for parameter in self.parameters:
            if parameter.numel() > SMALL:
                parameter.register_post_accumulate_grad_hook(self._update_one)

    def reset(self) -> None:
        super().reset()
        self._clear_counts()

    def _clear_counts(self) -> None:
        self.uses.clear()
        self.updated.clear()

    def count_use(self, weight: Tensor) -> None:
        """Counts a use of a weight in a forward pass with gradients."""
        self.uses[weight] += torch.is_grad_enabled()

    def update(self) -> None:
        if any(parameter.grad is not None for parameter in self.updated):
            raise Fatal(WEIGHTS_USED_DIRECTLY)
        super().update()
        self._clear_counts()

    @torch.no_grad()
    def _update_one(self, parameter: Tensor) -> None:
        """Updates a parameter once its gradient is accumulated: a hook of autograd."""
        if parameter.grad is None or parameter in self.updated:
            return
        self.rule.update([parameter], [parameter.grad])
        parameter.grad = None

    def updates_by_product(self, weight: Tensor) -> bool:
        """Returns whether a layer may update its weight in its backward pass."""
        return self.rule.takes_products and self.uses[weight] == 1

    def update_by_product(self, parameter: Tensor, parts: Parts, g_RO: Tensor) -> None:
        """Updates a parameter by its gradient gᵀx, without storing the gradient."""
        self.updated.add(parameter)
        self.rule.update_by_product(parameter, parts, g_RO)


def update_together(loss: Tensor, optimizers: Sequence[Optimizer]) -> None:
    """Computes the gradients of a loss in one backward pass, and lets every optimiser update its network."""
    try:
        loss.backward()
    except RuntimeError as error:
        direct = any(isinstance(each, OptimizerInBackward) for each in optimizers)
        if direct and "inplace operation" in str(error):
            raise Fatal(WEIGHTS_USED_DIRECTLY) from None
        raise
    for optimizer in optimizers:
        optimizer.update()
