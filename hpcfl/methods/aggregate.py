"""From the uploads of a round to global prototypes. Sums run in client order, in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hpcfl.methods.context import MethodContext
from hpcfl.methods.prototypes import Prototypes


@dataclass(frozen=True)
class Upload:
    """What one client sent: its prototypes and, where the aggregation asks for them, its sample counts."""

    prototypes: Prototypes
    count_K: Tensor
    client: int


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
    return _weighted(uploads, [upload.count_K.double() for upload in uploads], _owners_K(uploads))


def _owners_K(uploads: Sequence[Upload]) -> Tensor:
    """Returns |N_j|, at least 1."""
    return torch.stack([upload.prototypes.present_K for upload in uploads]).sum(0).clamp_min(1)


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


class Aggregate:
    """An aggregation without memory: a function of the round's uploads."""

    def __init__(self, rule: Callable[[Sequence[Upload]], Prototypes]):
        self.rule = rule

    def __call__(self, uploads: Sequence[Upload]) -> Prototypes:
        return self.rule(uploads)

    def training_uploads(self, uploads: Sequence[Upload]) -> Sequence[Upload]:
        """Returns what a server that trains its prototypes learns from."""
        return uploads

    def state(self) -> dict[str, Tensor]:
        """Returns what the next round needs: tensors by name."""
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continues from a state."""


class Ppa(Aggregate):
    """Privacy-preserving aggregation: clients send n_ij c_ij, the server knows only K and n, Eq. (10), (11).

    With partial participation (open in the paper) it keeps each client's last upload and takes Eq. (11) over
    the clients seen so far, times M / seen: a class of one owner keeps its length.
    """

    def __init__(self, context: MethodContext):
        super().__init__(self._sum)
        self.context = context
        self.last: dict[int, Prototypes] = {}

    def _sum(self, uploads: Sequence[Upload]) -> Prototypes:
        """Returns M/seen · K/n Σ n_ij c_ij."""
        self.last |= {upload.client: upload.prototypes for upload in uploads}
        kept = [self.last[client] for client in sorted(self.last)]
        sum_KD = torch.zeros_like(kept[0].value_KD, dtype=torch.float64)
        for prototypes in kept:
            sum_KD += prototypes.value_KD.double()
        present_K = torch.stack([prototypes.present_K for prototypes in kept]).any(0)
        return Prototypes((self._factor(len(kept)) * sum_KD).float(), present_K)

    def training_uploads(self, uploads: Sequence[Upload]) -> Sequence[Upload]:
        """Returns the uploads times K·|N_j|·M/(n·uploads): on average as long as prototypes (App. C)."""
        scale_K1 = (self._factor(len(uploads)) * _owners_K(uploads).double())[:, None]

        def scaled(prototypes: Prototypes) -> Prototypes:
            return Prototypes((scale_K1 * prototypes.value_KD.double()).float(), prototypes.present_K)

        return [replace(upload, prototypes=scaled(upload.prototypes)) for upload in uploads]

    def _factor(self, of: int) -> float:
        """Returns K/n, times M over the number of clients that are added up."""
        return self.context.classes / self.context.samples * self.context.clients / of

    def state(self) -> dict[str, Tensor]:
        """Returns whose uploads are kept, [seen]; their classes, [seen, K]; and their rows."""
        seen, classes, features = sorted(self.last), self.context.classes, self.context.features
        present_SK = torch.zeros(len(seen), classes, dtype=torch.bool)
        rows = [torch.zeros(0, features)]
        for place, client in enumerate(seen):
            kept = self.last[client]
            present_SK[place] = kept.present_K
            rows.append(kept.value_KD[kept.present_K].cpu())
        return {"seen": torch.tensor(seen, dtype=torch.int64), "present": present_SK, "rows": torch.cat(rows)}

    def load(self, state: Mapping[str, Tensor]) -> None:
        at = 0
        self.last = {}
        for client, present_K in zip(state["seen"].tolist(), state["present"], strict=True):
            rows = int(present_K.sum())
            value_KD = torch.zeros(self.context.classes, self.context.features)
            value_KD[present_K] = state["rows"][at : at + rows]
            self.last[client] = Prototypes(value_KD, present_K.clone()).to(self.context.device)
            at += rows


AGGREGATES: dict[str, Callable[[MethodContext], Aggregate]] = {
    "mean": lambda context: Aggregate(mean),
    "weighted": lambda context: Aggregate(weighted),
    "weighted-literal": lambda context: Aggregate(weighted_literal),
    "ppa": Ppa,
}
