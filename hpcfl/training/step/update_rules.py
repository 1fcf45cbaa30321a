"""How a parameter is updated by its gradient g with learning rate η and weight decay λ, as in torch.optim.

torch.optim is not used because it imports torch's compiler: a second of CPU time per rank.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hpcfl.config.train import TrainConfig

Parts = Sequence[tuple[Tensor, Tensor]]
"""Views of a weight, and the inputs that each was multiplied with."""


class UpdateRule(ABC):
    """Updates parameters by their gradients; what it remembers of them starts anew in every round."""

    takes_products = False
    """Whether it can update a weight by the product that makes the gradient."""

    def __init__(self, settings: TrainConfig):
        self.lr, self.weight_decay = settings.lr, settings.weight_decay
        self.state: dict[Tensor, Any] = {}

    def reset(self) -> None:
        """Forgets momentum and moments, as at the start of every round."""
        self.state.clear()

    @abstractmethod
    def update(self, parameters: list[Tensor], gradients: list[Tensor]) -> None:
        """Updates parameters; it may change the gradients, which are dropped."""

    def update_by_product(self, parameter: Tensor, parts: Parts, g_RO: Tensor) -> None:
        """Updates a parameter by its gradient gᵀx, which is never stored."""
        raise NotImplementedError


class SgdRule(UpdateRule):
    """SGD with momentum μ: v ← μv + g + λw, w ← w − ηv."""

    takes_products = True

    def __init__(self, settings: TrainConfig):
        super().__init__(settings)
        self.momentum = settings.momentum

    def update(self, parameters: list[Tensor], gradients: list[Tensor]) -> None:
        if self.weight_decay:
            torch._foreach_add_(gradients, parameters, alpha=self.weight_decay)
        if self.momentum:
            velocity = [self._velocity(p) for p in parameters]
            torch._foreach_mul_(velocity, self.momentum)
            torch._foreach_add_(velocity, gradients)
            gradients = velocity
        torch._foreach_add_(parameters, gradients, alpha=-self.lr)

    def _velocity(self, parameter: Tensor) -> Tensor:
        if parameter not in self.state:
            self.state[parameter] = torch.zeros_like(parameter)
        velocity: Tensor = self.state[parameter]
        return velocity

    def update_by_product(self, parameter: Tensor, parts: Parts, g_RO: Tensor) -> None:
        """Adds the gradient in the matrix product itself (addmm), to the weight or to its velocity.

        Entries outside `parts` have no gradient, but decay too.
        """
        factor = 1 - self.lr * self.weight_decay
        if not self.momentum:
            if self.weight_decay and sum(view_OI.numel() for view_OI, _ in parts) < parameter.numel():
                parameter.mul_(factor)
                factor = 1.0
            for view_OI, x_RI in parts:
                view_OI.addmm_(g_RO.t(), x_RI, beta=factor, alpha=-self.lr)
            return
        velocity, beta = self._velocity(parameter), self.momentum
        if self.weight_decay:
            velocity.mul_(self.momentum).add_(parameter, alpha=self.weight_decay)
            beta = 1.0
        for view_OI, x_RI in parts:
            offset = view_OI.storage_offset() - parameter.storage_offset()
            velocity_OI = velocity.as_strided(view_OI.shape, view_OI.stride(), offset)
            velocity_OI.addmm_(g_RO.t(), x_RI, beta=beta)
            if not self.weight_decay:
                view_OI.add_(velocity_OI, alpha=-self.lr)
        if self.weight_decay:
            parameter.add_(velocity, alpha=-self.lr)


class AdamRule(UpdateRule):
    """Adam with torch's β₁ = 0.9, β₂ = 0.999, ε = 1e-8; AdamW if the decay is `decoupled` from the moments.

    m ← β₁m + (1 − β₁)g, v ← β₂v + (1 − β₂)g², w ← w − η·m̂/(√v̂ + ε) with m̂ = m/(1 − β₁ⁿ), v̂ = v/(1 − β₂ⁿ).
    """

    BETA1, BETA2, EPS = 0.9, 0.999, 1e-8

    def __init__(self, settings: TrainConfig):
        super().__init__(settings)
        self.decoupled = settings.optimizer == "adamw"

    def update(self, parameters: list[Tensor], gradients: list[Tensor]) -> None:
        if self.weight_decay and self.decoupled:
            torch._foreach_mul_(parameters, 1 - self.lr * self.weight_decay)
        elif self.weight_decay:
            torch._foreach_add_(gradients, parameters, alpha=self.weight_decay)
        steps, first, second = zip(*(self._next(p) for p in parameters), strict=True)
        torch._foreach_lerp_(first, gradients, 1 - self.BETA1)
        torch._foreach_mul_(second, self.BETA2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - self.BETA2)
        roots = torch._foreach_sqrt(second)
        torch._foreach_div_(roots, [(1 - self.BETA2**n) ** 0.5 for n in steps])
        torch._foreach_add_(roots, self.EPS)
        torch._foreach_addcdiv_(parameters, first, roots, [-self.lr / (1 - self.BETA1**n) for n in steps])

    def _next(self, parameter: Tensor) -> tuple[int, Tensor, Tensor]:
        """Returns the number of this step of a parameter, and its moments m and v."""
        zero = torch.zeros_like
        n, first, second = self.state.get(parameter) or (0, zero(parameter), zero(parameter))
        self.state[parameter] = n + 1, first, second
        return n + 1, first, second


def update_rule(settings: TrainConfig) -> UpdateRule:
    """Returns the rule that the settings name."""
    return SgdRule(settings) if settings.optimizer == "sgd" else AdamRule(settings)
