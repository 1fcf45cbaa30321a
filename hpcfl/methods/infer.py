"""Which class a feature vector belongs to, and how often that is right."""

from __future__ import annotations

from torch import Tensor, cdist, full, full_like, inf
from torch.nn.functional import normalize

from hpcfl.methods.prototypes import Prototypes


def nearest_N(z_ND: Tensor, prototypes: Prototypes, by_angle: bool = False) -> Tensor:
    """Returns the class of the nearest prototype, ProtoNorm Eq. (6); an absent one is infinitely far.

    `by_angle` compares directions alone. Where no prototype is present the answer is −1, which is no class.
    """
    if not prototypes.present_K.any():
        return full((len(z_ND),), -1, device=z_ND.device)
    if by_angle:
        apart_NK = 1 - normalize(z_ND) @ normalize(prototypes.value_KD).T
    else:
        apart_NK = cdist(z_ND, prototypes.value_KD, compute_mode="donot_use_mm_for_euclid_dist")
    return apart_NK.masked_fill(~prototypes.present_K, inf).argmin(1)


def nearest_masked_N(z_ND: Tensor, prototypes: Prototypes, mask_KD: Tensor, by_angle: bool = False) -> Tensor:
    """Returns `nearest_N` where every class looks at its own dimensions of a sample only."""
    z_ND, mask_KD = z_ND.double(), mask_KD.double()
    value_KD = prototypes.value_KD.double() * mask_KD  # local prototypes have entries everywhere
    own_NK = z_ND.square() @ mask_KD.T  # ‖m_j ⊙ z‖²
    along_NK = z_ND @ value_KD.T
    if by_angle:
        apart_NK = -along_NK / (own_NK.sqrt() * value_KD.norm(dim=1)).clamp_min(1e-12)
    else:
        apart_NK = own_NK - 2 * along_NK + value_KD.square().sum(1)
    nearest = apart_NK.masked_fill(~prototypes.present_K, inf).argmin(1)
    return nearest if prototypes.present_K.any() else full_like(nearest, -1)


def num_correct(predicted_N: Tensor, y_N: Tensor) -> int:
    """Returns the number of correct predictions."""
    return int((predicted_N == y_N).sum())
