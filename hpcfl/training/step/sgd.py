"""v ← μv + g, w ← w − ηv: while gradients flow back, or all at once after them."""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor, nn

from hpcfl.config.schema import TrainConfig
from hpcfl.errors import Fatal

UNSEEN = "a network uses the weights of a layer by themselves: train it with runtime.step = 'plain'"
SMALL = 8192
"""Weights so few that torch's own layer does as well, and that wait for each other to move together."""


class Sgd:
    """Torch's way: every gradient is kept until all are there.

    torch's own optimisers load its compiler: a second of CPU time per rank.
    """

    def __init__(self, network: nn.Module, settings: TrainConfig):
        self.parameters: list[Tensor] = [p for p in network.parameters() if p.requires_grad]
        self.lr, self.momentum = settings.lr, settings.momentum
        self.velocity: dict[Tensor, Tensor] = {}

    def begin(self) -> None:
        """Starts anew, as in every round."""
        self.velocity.clear()

    def step(self, loss: Tensor) -> None:
        """Moves the parameters along the gradients of the loss, which are then gone."""
        loss.backward()
        self._together()

    def _together(self) -> None:
        moved = [p for p in self.parameters if p.grad is not None]
        if not moved:
            return
        with torch.no_grad():
            change = [p.grad for p in moved if p.grad is not None]
            if self.momentum:
                velocity = [self._velocity(p) for p in moved]
                torch._foreach_mul_(velocity, self.momentum)
                torch._foreach_add_(velocity, change)
                change = velocity
            torch._foreach_add_(moved, change, alpha=-self.lr)
        for parameter in moved:
            parameter.grad = None

    def _velocity(self, parameter: Tensor) -> Tensor:
        if parameter not in self.velocity:
            self.velocity[parameter] = torch.zeros_like(parameter)
        return self.velocity[parameter]


class SgdInBackward(Sgd):
    """Every large parameter moves as soon as its gradient is known, which is then dropped.

    A layer that knows its gradient as a product may move its weights by `along_product`, so that the gradient
    never exists. That is right only for weights that are used once in a step: `uses` counts.
    """

    def __init__(self, network: nn.Module, settings: TrainConfig):
        super().__init__(network, settings)
        self.uses: Counter[Tensor] = Counter()
        self.moved: set[Tensor] = set()
        for parameter in self.parameters:
            if parameter.numel() > SMALL:
                parameter.register_post_accumulate_grad_hook(self._arrived)

    def begin(self) -> None:
        super().begin()
        self._forget()

    def _forget(self) -> None:
        self.uses.clear()
        self.moved.clear()

    def used(self, weight: Tensor) -> None:
        """Counts a use that will have a gradient."""
        self.uses[weight] += torch.is_grad_enabled()

    def step(self, loss: Tensor) -> None:
        try:
            loss.backward()
        except RuntimeError as error:
            raise Fatal(UNSEEN) if "inplace operation" in str(error) else error from None
        if any(parameter.grad is not None for parameter in self.moved):
            raise Fatal(UNSEEN)
        self._together()
        self._forget()

    @torch.no_grad()
    def _arrived(self, parameter: Tensor) -> None:
        if parameter.grad is None or parameter in self.moved:
            return
        gradient = parameter.grad
        if self.momentum:
            gradient = self._velocity(parameter).mul_(self.momentum).add_(gradient)
        parameter.add_(gradient, alpha=-self.lr)
        parameter.grad = None

    def along_product(self, parameter: Tensor, view_OI: Tensor, g_RO: Tensor, x_RI: Tensor) -> None:
        """Moves a part of a parameter along gᵀx, which is added to it by the multiplication itself."""
        self.moved.add(parameter)
        if not self.momentum:
            view_OI.addmm_(g_RO.t(), x_RI, alpha=-self.lr)
            return
        place = view_OI.storage_offset() - parameter.storage_offset()
        velocity_OI = self._velocity(parameter).as_strided(view_OI.shape, view_OI.stride(), place)
        velocity_OI.addmm_(g_RO.t(), x_RI, beta=self.momentum)
        view_OI.add_(velocity_OI, alpha=-self.lr)
