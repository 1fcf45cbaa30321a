"""One training step of two networks: their losses may depend on both outputs, and both are updated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from hpcfl.training.step.optimizer import Optimizer, update_together
from hpcfl.training.step.step import Batch, BatchOutputs, LossTerms, Step

JointLoss = Callable[[BatchOutputs, BatchOutputs], tuple[Tensor, Mapping[str, Tensor]]]
"""Outputs of both networks → the sum of all losses, and the values to be logged, with `loss` among them."""


class JointStep:
    """The step of a client's network and of a further one, in one backward pass over the sum of their losses.

    Where a loss does not depend on a network, because its outputs are detached, that network gets no gradient
    of it. `optimizers` are those of further parameters.
    """

    def __init__(self, own: Step, other: Step, loss: JointLoss, optimizers: Sequence[Optimizer] = ()):
        self.own, self.other, self.loss = own, other, loss
        self.optimizers = [own.optimizer, other.optimizer, *optimizers]
        self.settings = own.settings
        self.ratios: dict[str, Tensor] | None = None

    @property
    def has_batch_norm(self) -> bool:
        return self.own.has_batch_norm or self.other.has_batch_norm

    def begin(self, local_loss: LossTerms | None, measure_ratios: bool = False) -> None:
        """Starts the local training of a client in a round, with new optimisers."""
        assert local_loss is None, "the joint loss is given with the step"
        self.own.begin(None)
        self.other.begin(None)
        for optimizer in self.optimizers:
            optimizer.reset()

    def end(self) -> None:
        """Drops everything that belongs to the client."""
        self.own.end()
        self.other.end()
        for optimizer in self.optimizers:
            optimizer.reset()

    def __call__(
        self, x_B: Tensor, y_B: Tensor, strong: Batch | None = None
    ) -> tuple[dict[str, Tensor], BatchOutputs]:
        """Updates both networks and returns the values to be logged and the outputs of the client's own."""
        assert strong is None, "strong views have no joint loss"
        own, other = self.own.forward(x_B, y_B), self.other.forward(x_B, y_B)
        loss, terms = self.loss(own, other)
        update_together(loss, self.optimizers)
        return {name: term.detach() for name, term in terms.items()}, own.detach()
