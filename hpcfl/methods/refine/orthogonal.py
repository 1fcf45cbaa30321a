"""FedORGP: trainable global prototypes with orthogonality regularisation, Eq. (3)-(5)."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import normalize, one_hot

from hpcfl.methods.declarations import declares
from hpcfl.methods.parts import REFINEMENTS
from hpcfl.methods.refine.trainable import TrainablePrototypes


def orthogonality(upload_BD: Tensor, y_B: Tensor, proto_KD: Tensor, pull: float, push: float) -> Tensor:
    """Returns λ_s (1 − s) + γ d, Eq. (5), of a batch of uploaded prototypes.

    s is the mean cosine to the prototype of the own class (3), d the mean absolute cosine to the others (4).
    """
    cosine_BK = normalize(upload_BD, eps=1e-6) @ normalize(proto_KD, eps=1e-6).T
    own_BK = one_hot(y_B, len(proto_KD)).bool()
    intra = cosine_BK[own_BK].mean()
    inter = cosine_BK.masked_fill(own_BK, 0).abs().sum() / (len(y_B) * (len(proto_KD) - 1))
    return pull * (1 - intra) + push * inter


@declares(REFINEMENTS["orthogonal"])
class Orthogonal(TrainablePrototypes):
    """Trainable prototypes with FedORGP's loss."""

    def loss(self, upload_BD: Tensor, y_B: Tensor, proto_KD: Tensor) -> Tensor:
        options = self.context.options
        return orthogonality(upload_BD, y_B, proto_KD, options["pull"], options["push"])
