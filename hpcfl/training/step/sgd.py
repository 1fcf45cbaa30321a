"""SGD with momentum, v ← μv + g, w ← w − ηv: after the backward pass, or during it."""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor, nn

from hpcfl.config.schema import TrainConfig
from hpcfl.errors import Fatal

WEIGHTS_USED_DIRECTLY = (
    "a network uses the weights of a layer by themselves: train it with runtime.step = 'plain'"
)
SMALL = 8192
"""Parameters with at most so many elements gain nothing from a custom layer; they are updated together."""


class Sgd:
    """SGD that updates all parameters after the backward pass.

    torch.optim is not used because it imports torch's compiler: a second of CPU time per rank.
    """

    def __init__(self, network: nn.Module, settings: TrainConfig):
        self.parameters: list[Tensor] = [p for p in network.parameters() if p.requires_grad]
        self.lr, self.momentum = settings.lr, settings.momentum
        self.clip_norm = settings.clip_norm
        self.velocity: dict[Tensor, Tensor] = {}

    def reset(self) -> None:
        """Clears the momentum, as at the start of every round."""
        self.velocity.clear()

    def step(self, loss: Tensor) -> None:
        """Computes the gradients of the loss, clips them, updates the parameters and drops the gradients."""
        loss.backward()
        if self.clip_norm:
            nn.utils.clip_grad_norm_(self.parameters, self.clip_norm)
        self._update_all()

    def _update_all(self) -> None:
        """Updates every parameter that has a gradient."""
        parameters = [p for p in self.parameters if p.grad is not None]
        if not parameters:
            return
        with torch.no_grad():
            update = [p.grad for p in parameters if p.grad is not None]
            if self.momentum:
                velocity = [self._velocity(p) for p in parameters]
                torch._foreach_mul_(velocity, self.momentum)
                torch._foreach_add_(velocity, update)
                update = velocity
            torch._foreach_add_(parameters, update, alpha=-self.lr)
        for parameter in parameters:
            parameter.grad = None

    def _velocity(self, parameter: Tensor) -> Tensor:
        if parameter not in self.velocity:
            self.velocity[parameter] = torch.zeros_like(parameter)
        return self.velocity[parameter]


class SgdInBackward(Sgd):
    """SGD that updates each large parameter as soon as its gradient is known, and drops the gradient.

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

    def step(self, loss: Tensor) -> None:
        try:
            loss.backward()
        except RuntimeError as error:
            raise Fatal(WEIGHTS_USED_DIRECTLY) if "inplace operation" in str(error) else error from None
        if any(parameter.grad is not None for parameter in self.updated):
            raise Fatal(WEIGHTS_USED_DIRECTLY)
        self._update_all()
        self._clear_counts()

    @torch.no_grad()
    def _update_one(self, parameter: Tensor) -> None:
        """Updates a parameter once its gradient is accumulated: a hook of autograd."""
        if parameter.grad is None or parameter in self.updated:
            return
        gradient = parameter.grad
        if self.momentum:
            gradient = self._velocity(parameter).mul_(self.momentum).add_(gradient)
        parameter.add_(gradient, alpha=-self.lr)
        parameter.grad = None

    def update_by_product(self, parameter: Tensor, view_OI: Tensor, g_RO: Tensor, x_RI: Tensor) -> None:
        """Updates a view of a parameter by its gradient gᵀx, added in the matrix product itself (addmm)."""
        self.updated.add(parameter)
        if not self.momentum:
            view_OI.addmm_(g_RO.t(), x_RI, alpha=-self.lr)
            return
        offset = view_OI.storage_offset() - parameter.storage_offset()
        velocity_OI = self._velocity(parameter).as_strided(view_OI.shape, view_OI.stride(), offset)
        velocity_OI.addmm_(g_RO.t(), x_RI, beta=self.momentum)
        view_OI.add_(velocity_OI, alpha=-self.lr)
