"""FedORGP: trainable global prototypes with orthogonality regularisation, Eq. (3)-(5)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from hpcfl.methods.declarations import declares
from hpcfl.methods.parts import REFINEMENTS
from hpcfl.methods.refine.trainable import NONE, Scratch, TrainablePrototypes

EPS = 1e-6
"""Shorter vectors are divided by this instead of their length."""


def orthogonality(
    upload_BD: Tensor,
    own_BK: Tensor,
    proto_KD: Tensor,
    pull: float,
    push: float,
    scratch: Scratch = NONE,
) -> tuple[Tensor, Tensor]:
    """Returns λ_s (1 − s) + γ d, Eq. (5), of a batch of uploads, and its gradient by the prototypes.

    s is the mean cosine to the prototype of the own class (3), d the mean absolute cosine to the others (4).
    """
    others = max(1, len(proto_KD) - 1)
    norm_K1 = proto_KD.norm(dim=1, keepdim=True).clamp_min_(EPS)
    upload_BD, unit_KD = normalize(upload_BD, eps=EPS), torch.div(proto_KD, norm_K1, out=scratch[0])
    cosine_BK = upload_BD @ unit_KD.T
    # ∂L/∂cos, times B
    slope_BK = (cosine_BK.sign() * (push / others)).where(own_BK == 0, -pull)
    loss = pull + (slope_BK * cosine_BK).sum() / len(upload_BD)
    gradient_KD = torch.mm(slope_BK.T, upload_BD, out=scratch[1]).div_(len(upload_BD))
    radial_K1 = torch.mul(gradient_KD, unit_KD, out=scratch[2]).sum(1, keepdim=True)
    return loss, gradient_KD.addcmul_(radial_K1, unit_KD, value=-1).div_(norm_K1)


@declares(REFINEMENTS["orthogonal"])
class Orthogonal(TrainablePrototypes):
    """Trainable prototypes with FedORGP's loss."""

    def loss(
        self, upload_BD: Tensor, own_BK: Tensor, proto_KD: Tensor, scratch: Scratch
    ) -> tuple[Tensor, Tensor]:
        options = self.context.options
        return orthogonality(upload_BD, own_BK, proto_KD, options["pull"], options["push"], scratch)
