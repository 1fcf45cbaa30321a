"""FedTGP: trainable global prototypes with a contrastive loss and an adaptive margin, Eq. (5)-(10)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from hpcfl.methods.aggregate import Upload, mean
from hpcfl.methods.declarations import declares
from hpcfl.methods.parts import REFINEMENTS
from hpcfl.methods.prototypes import Prototypes, margin_K
from hpcfl.methods.refine.trainable import NONE, Scratch, TrainablePrototypes
from hpcfl.methods.sphere import EPS, distances


def contrastive(
    upload_BD: Tensor, own_BK: Tensor, proto_KD: Tensor, delta: float, scratch: Scratch = NONE
) -> tuple[Tensor, Tensor]:
    """Returns Eq. (10) and its gradient by the prototypes, all in float64.

    It is the cross-entropy with the logits −(ϕ(P_i^c, P̂^c') + δ·[c' = c]), ϕ Euclidean. With δ = 0 it is the
    standard contrastive loss (6), with a constant δ Eq. (7). Eq. (5) sums over the uploads; published code,
    and this, takes the mean. Two equal vectors have no gradient.
    """
    square_BK = upload_BD.square().sum(1, keepdim=True) + torch.square(proto_KD, out=scratch[0]).sum(1)
    distance_BK = square_BK.addmm_(upload_BD, proto_KD.T, alpha=-2).clamp_min_(EPS).sqrt_()
    log_BK = torch.log_softmax(-(distance_BK + delta * own_BK), 1)
    loss = -(log_BK * own_BK).sum() / len(upload_BD)
    # ∂L/∂ϕ ÷ ϕ, since ∂ϕ/∂P̂ = (P̂ − P)/ϕ
    slope_BK = (own_BK - log_BK.exp_()).div_(distance_BK).div_(len(upload_BD))
    gradient_KD = torch.mul(slope_BK.sum(0)[:, None], proto_KD, out=scratch[0])
    return loss, gradient_KD.addmm_(slope_BK.T, upload_BD, alpha=-1)


def separation(uploads: Sequence[Upload], margin: str) -> float:
    """Returns the maximum in Eq. (9) over the plain means Q of the uploads; NaN for fewer than two classes.

    `max-pair` is the maximum over all pairs, as printed; `max-min` that over each class's distance to its
    nearest other class, as in published code.
    """
    centre = mean(uploads)
    if margin == "max-pair":
        first_P, second_P = torch.triu_indices(
            *2 * (len(centre.present_K),), 1, device=centre.value_KD.device
        )
        known = centre.present_K[first_P] & centre.present_K[second_P]
        found = distances(centre.value_KD.double()).where(known, -math.inf)
    else:
        found = margin_K(centre)
        found = found.where(~found.isnan(), -math.inf)
    largest = found.max().item() if len(found) else -math.inf
    return largest if largest > -math.inf else math.nan


@declares(REFINEMENTS["tgp"])
class Tgp(TrainablePrototypes):
    """Trainable prototypes with FedTGP's loss and δ(t) = min(separation, τ).

    A round with fewer than two classes keeps the last δ, which starts at 0.
    """

    @property
    def delta(self) -> float:
        return 0.0 if math.isnan(self.stats.delta) else float(self.stats.delta)

    def loss(
        self, upload_BD: Tensor, own_BK: Tensor, proto_KD: Tensor, scratch: Scratch
    ) -> tuple[Tensor, Tensor]:
        return contrastive(upload_BD, own_BK, proto_KD, self.delta, scratch)

    def __call__(self, t: int, last: Prototypes, new: Prototypes, uploads: Sequence[Upload]) -> Prototypes:
        options = self.context.options
        if options["margin"] in ("fixed", "none"):
            self.stats.delta = options["tau"] if options["margin"] == "fixed" else 0.0
        elif not math.isnan(distance := separation(uploads, options["margin"])):
            self.stats.delta = min(distance, options["tau"])
        return super().__call__(t, last, new, uploads)

    def state(self) -> dict[str, Tensor]:
        return super().state() | {"delta": torch.tensor(self.stats.delta, dtype=torch.float64)}

    def load(self, state: Mapping[str, Tensor]) -> None:
        super().load(state)
        self.stats.delta = float(state["delta"])
