"""FedORGP: FedTGP with prototypes that become orthogonal; only directions count. Equations as there."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn.functional import cosine_similarity, one_hot

from tests.reference.federation import Federation
from tests.reference.fedtgp import Trainable


class FedOrgp(Trainable):
    """FedTGP's trainable prototypes with the loss L_OR; the client's L_R in (8) is 1 − cos."""

    def __init__(
        self,
        clients: Federation,
        *,
        pull: float = 1.0,
        push: float = 10.0,
        server_epochs: int = 1,
        **options: Any,
    ):
        super().__init__(clients, distance="cosine", server_epochs=server_epochs, **options)
        self.pull, self.push = pull, push

    def server_loss(self, p: Tensor, y: Tensor) -> Tensor:
        """L_OR = λ_s (1 − s) + γ d, (5)."""
        cosine = cosine_similarity(p[:, None], self.trained(), dim=2, eps=1e-6)
        own = one_hot(y, self.clients.classes).bool()
        s = cosine[own].sum() / len(p)  # (3)
        d = cosine[~own].abs().sum() / len(p) / (self.clients.classes - 1)  # (4)
        return self.pull * (1 - s) + self.push * d
