"""FedORGP: trainable global prototypes by orthogonality regularisation, Eq. (3)-(5)."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import normalize, one_hot

from hpcfl.methods.refine.trainable import TrainablePrototypes


def orthogonality(sent_BD: Tensor, y_B: Tensor, proto_KD: Tensor, pull: float, push: float) -> Tensor:
    """Returns λ_s (1 − s) + γ d, Eq. (5): s the mean cosine to the own class's prototype (3), d the mean
    absolute cosine to the K − 1 others (4).
    """
    cosine_BK = normalize(sent_BD, eps=1e-6) @ normalize(proto_KD, eps=1e-6).T
    own_BK = one_hot(y_B, len(proto_KD)).bool()
    intra = cosine_BK[own_BK].mean()
    inter = cosine_BK.masked_fill(own_BK, 0).abs().sum() / (len(y_B) * (len(proto_KD) - 1))
    return pull * (1 - intra) + push * inter


class Orthogonal(TrainablePrototypes):
    def loss(self, sent_BD: Tensor, y_B: Tensor, proto_KD: Tensor) -> Tensor:
        return orthogonality(
            sent_BD, y_B, proto_KD, self.context.options["pull"], self.context.options["push"]
        )
