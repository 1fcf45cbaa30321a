"""Aggregation: global prototypes from the uploads of a round, summed in client order in float64."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from hpcfl.config.section import Section
from hpcfl.methods.context import MethodContext
from hpcfl.methods.declarations import NoOptions, declares
from hpcfl.methods.parts import AGGREGATES
from hpcfl.methods.prototypes import Prototypes


@dataclass(frozen=True)
class Upload:
    """One client's local prototypes and, if the aggregation needs them, its samples per class."""

    prototypes: Prototypes
    count_K: Tensor
    client: int
    host_present_K: Tensor | None = None
    """Its present classes on the host, where they came from."""

    @property
    def class_R(self) -> Tensor:
        """Its present classes, as numbers on the host."""
        present_K = self.prototypes.present_K.cpu() if self.host_present_K is None else self.host_present_K
        return present_K.nonzero()[:, 0]


def mean(uploads: Sequence[Upload]) -> Prototypes:
    """Returns 1/|N_j| Σ c_ij over the clients N_j with class j: ProtoNorm Eq. (7)."""
    return _weighted(uploads, [upload.prototypes.present_K.double() for upload in uploads])


def weighted(uploads: Sequence[Upload]) -> Prototypes:
    """Returns Σ n_ij c_ij / Σ n_ij: FedProto's aggregation as it is commonly implemented."""
    return _weighted(uploads, [upload.count_K.double() for upload in uploads])


def weighted_literal(uploads: Sequence[Upload]) -> Prototypes:
    """Returns `weighted` divided by |N_j|, as FedProto's Eq. (6) (ProtoNorm's Eq. 3) is printed.

    This shrinks the prototypes in every round; it exists for comparison only.
    """
    return _weighted(uploads, [upload.count_K.double() for upload in uploads], _num_clients_K(uploads))


def _num_clients_K(uploads: Sequence[Upload]) -> Tensor:
    """Returns |N_j|, the number of clients with each class, at least 1."""
    return torch.stack([upload.prototypes.present_K for upload in uploads]).sum(0).clamp_min(1)


def _weighted(
    uploads: Sequence[Upload], weights_K: Sequence[Tensor], divisor_K: Tensor | None = None
) -> Prototypes:
    """Returns the weighted mean of the uploads per class, divided by `divisor_K` if given."""
    total_K = torch.zeros_like(weights_K[0])
    sum_KD = torch.zeros_like(uploads[0].prototypes.value_KD, dtype=torch.float64)
    for upload, weight_K in zip(uploads, weights_K, strict=True):
        sum_KD += weight_K[:, None] * upload.prototypes.value_KD.double()
        total_K += weight_K
    present_K = total_K > 0
    denominator_K = total_K.where(present_K, 1.0) * (1 if divisor_K is None else divisor_K)
    return Prototypes((sum_KD / denominator_K[:, None]).float(), present_K)


class Aggregate:
    """The base of aggregations; what it declares decides what clients upload."""

    paper: ClassVar[str] = "–"
    Options: ClassVar[type[Section]] = NoOptions
    """The keys of [method] that are its options; their values are in `context.options`, by name."""
    needs_counts: ClassVar[bool] = False
    """Whether clients upload their sample counts: `Upload.count_K`."""
    sends_products: ClassVar[bool] = False
    """Whether clients upload n_ij c_ij instead of c_ij."""
    keeps_uploads: ClassVar[bool] = False
    """Whether it goes on with the last upload of clients that are absent."""

    def __init__(self, context: MethodContext):
        self.context = context

    def __call__(self, uploads: Sequence[Upload]) -> Prototypes:
        """Returns the aggregated prototypes of the uploads of a round."""
        raise NotImplementedError

    def drop(self, clients: Collection[int]) -> None:
        """Drops what is kept of these clients, which have diverged and will not upload again."""

    def training_uploads(self, uploads: Sequence[Upload]) -> Sequence[Upload]:
        """Returns the uploads that FedTGP's and FedORGP's server trains on."""
        return uploads

    def state(self) -> dict[str, Tensor]:
        """Returns the tensors to checkpoint, by name."""
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restores a checkpointed state."""


@declares(AGGREGATES["mean"])
class Mean(Aggregate):
    def __call__(self, uploads: Sequence[Upload]) -> Prototypes:
        return mean(uploads)


@declares(AGGREGATES["weighted"])
class Weighted(Aggregate):
    def __call__(self, uploads: Sequence[Upload]) -> Prototypes:
        return weighted(uploads)


@declares(AGGREGATES["weighted-literal"])
class WeightedLiteral(Aggregate):
    def __call__(self, uploads: Sequence[Upload]) -> Prototypes:
        return weighted_literal(uploads)


@declares(AGGREGATES["ppa"])
class Ppa(Aggregate):
    """Privacy-preserving aggregation of the sparse-prototype paper, Eq. (10), (11).

    Clients upload n_ij c_ij; the server knows only K and the total n. The paper leaves partial participation
    open: here each client's last upload is stored and Eq. (11) is multiplied by M / (clients seen so far), so
    that the prototype of a class that one client owns keeps its length. A client that diverged leaves the
    sum and the number of clients seen.
    """

    def __init__(self, context: MethodContext):
        super().__init__(context)
        self.last_uploads: dict[int, Prototypes] = {}

    def __call__(self, uploads: Sequence[Upload]) -> Prototypes:
        """Returns M/seen · K/n Σ n_ij c_ij over the last upload of every client seen so far."""
        self.last_uploads |= {upload.client: upload.prototypes for upload in uploads}
        stored = [self.last_uploads[client] for client in sorted(self.last_uploads)]
        sum_KD = torch.zeros_like(stored[0].value_KD, dtype=torch.float64)
        for prototypes in stored:
            sum_KD += prototypes.value_KD.double()
        present_K = torch.stack([prototypes.present_K for prototypes in stored]).any(0)
        return Prototypes((self._factor(len(stored)) * sum_KD).float(), present_K)

    def drop(self, clients: Collection[int]) -> None:
        for client in clients:
            self.last_uploads.pop(client, None)

    def training_uploads(self, uploads: Sequence[Upload]) -> Sequence[Upload]:
        """Returns the uploads times K·|N_j|·M/(n·uploads): as long as prototypes on average (App. C)."""
        scale_K1 = (self._factor(len(uploads)) * _num_clients_K(uploads).double())[:, None]

        def scaled(prototypes: Prototypes) -> Prototypes:
            return Prototypes((scale_K1 * prototypes.value_KD.double()).float(), prototypes.present_K)

        return [replace(upload, prototypes=scaled(upload.prototypes)) for upload in uploads]

    def _factor(self, num_clients: int) -> float:
        """Returns K/n · M/num_clients, for a sum over `num_clients` clients."""
        return self.context.classes / self.context.samples * self.context.clients / num_clients

    def state(self) -> dict[str, Tensor]:
        """Returns the clients seen so far, [S]; their present classes, [S, K]; their prototype rows."""
        seen, classes, features = sorted(self.last_uploads), self.context.classes, self.context.features
        present_SK = torch.zeros(len(seen), classes, dtype=torch.bool)
        rows = [torch.zeros(0, features)]
        for s, client in enumerate(seen):
            prototypes = self.last_uploads[client]
            present_SK[s] = prototypes.present_K
            rows.append(prototypes.value_KD[prototypes.present_K].cpu())
        return {"seen": torch.tensor(seen, dtype=torch.int64), "present": present_SK, "rows": torch.cat(rows)}

    def load(self, state: Mapping[str, Tensor]) -> None:
        start = 0
        self.last_uploads = {}
        for client, present_K in zip(state["seen"].tolist(), state["present"], strict=True):
            num_rows = int(present_K.sum())
            value_KD = torch.zeros(self.context.classes, self.context.features)
            value_KD[present_K] = state["rows"][start : start + num_rows]
            self.last_uploads[client] = Prototypes(value_KD, present_K.clone()).to(self.context.device)
            start += num_rows
