"""From the uploads of a round to global prototypes. Sums run in client order, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hpcfl.methods.prototypes import Prototypes


@dataclass(frozen=True)
class Upload:
    """What one client sent: its prototypes and, where the aggregation asks for them, its sample counts."""

    prototypes: Prototypes
    count_K: Tensor


def mean(uploads: Sequence[Upload]) -> Prototypes:
    """Returns 1/|N_j| Σ c_ij over the clients N_j that have class j: ProtoNorm Eq. (7)."""
    return _weighted(uploads, [upload.prototypes.present_K.double() for upload in uploads])


def weighted(uploads: Sequence[Upload]) -> Prototypes:
    """Returns Σ n_ij c_ij / Σ n_ij: FedProto's aggregation as it is commonly implemented."""
    return _weighted(uploads, [upload.count_K.double() for upload in uploads])


def weighted_literal(uploads: Sequence[Upload]) -> Prototypes:
    """Returns `weighted` divided by |N_j| again, as FedProto's Eq. (6) (ProtoNorm's Eq. 3) prints it.

    It shrinks prototypes in every round and is here to be compared with.
    """
    owners_K = torch.stack([upload.prototypes.present_K for upload in uploads]).sum(0).clamp_min(1)
    return _weighted(uploads, [upload.count_K.double() for upload in uploads], owners_K)


def _weighted(
    uploads: Sequence[Upload], weights_K: Sequence[Tensor], divisor_K: Tensor | None = None
) -> Prototypes:
    total_K = torch.zeros_like(weights_K[0])
    sum_KD = torch.zeros_like(uploads[0].prototypes.value_KD, dtype=torch.float64)
    for upload, weight_K in zip(uploads, weights_K, strict=True):
        sum_KD += weight_K[:, None] * upload.prototypes.value_KD.double()
        total_K += weight_K
    present_K = total_K > 0
    below_K = total_K.where(present_K, 1.0) * (1 if divisor_K is None else divisor_K)
    return Prototypes((sum_KD / below_K[:, None]).float(), present_K)


AGGREGATES: dict[str, Callable[[Sequence[Upload]], Prototypes]] = {
    "mean": mean,
    "weighted": weighted,
    "weighted-literal": weighted_literal,
}
