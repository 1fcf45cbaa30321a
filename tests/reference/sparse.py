"""Sparse prototypes: CPS, PPA and CPKD with FedProto and FedTGP. Equations as in that paper."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.reference.federation import Federation
from tests.reference.fedproto import FedProto, Prototypes
from tests.reference.fedtgp import FedTgp


class Sparse(FedProto):
    """FedProto with all three parts; the masks m_j, [K, d], are given."""

    def __init__(
        self,
        clients: Federation,
        *,
        mask: Tensor,
        sparsity: float = 0.1,
        masked: str = "never",
        class_weights: str = "proportional",
        **options: Any,
    ):
        super().__init__(clients, **options)
        check_masks(mask, sparsity)
        self.mask, self.masked, self.balanced = mask, masked == "loss", class_weights == "per-class"
        self.last: dict[int, Prototypes] = {}
        self.n = sum(map(clients.count, clients.ids))

    def loss(self, t: int, i: int, logits: Tensor, z: Tensor, y: Tensor) -> Tensor | float:
        """λ Ω_i as a mean over samples; `per-class` is (12) as printed, a sum over the classes of a batch."""
        return super().loss(t, i, logits, z, y) * (len(y.unique()) if self.balanced else 1)

    def term(self, i: int, z: Tensor, j: int) -> Tensor:
        """CPKD: β_ij = n_ij / max_k n_ik, (12). `masked` masks features, too, as in Sect. 4.3."""
        beta = self.clients.count(i, j) / max(self.clients.count(i, k) for k in range(self.clients.classes))
        return beta * super().term(i, z * self.mask[j] if self.masked else z, j)

    def upload(self, i: int) -> Prototypes:
        """CPS: n_ij m_j ⊙ c_ij, (7) and line 11 of Algorithm 1."""
        return {j: self.clients.count(i, j) * self.mask[j] * c for j, c in self.local[i].items()}

    def factor(self, clients: int) -> float:
        """K/n of (11), for a sum over some of the M clients."""
        return self.clients.classes / self.n * len(self.clients.ids) / clients

    def server(self, t: int, uploads: dict[int, Prototypes]) -> Prototypes:
        """PPA: c_j = K/n Σ n_ij c_ij, (11), over the last upload of each client, unless it has diverged."""
        self.last = {i: c_i for i, c_i in (self.last | uploads).items() if i not in self.diverged}
        new: Prototypes = {}
        for c_i in self.last.values():
            new |= {j: new.get(j, 0) + self.factor(len(self.last)) * c_ij for j, c_ij in c_i.items()}
        return self.c | new


class SparseTgp(Sparse, FedTgp):
    """FedTGP with all three parts."""

    def __init__(self, clients: Federation, *, distance: str = "euclid", **options: Any):
        super().__init__(clients, distance=distance, **options)

    def trained(self) -> Tensor:
        return self.mask * super().trained()

    def server(self, t: int, uploads: dict[int, Prototypes]) -> Prototypes:
        """App. C: uploads times K/n |N_j|, with the participants' N_j and factor."""
        owners = [sum(j in c_i for c_i in uploads.values()) for j in range(self.clients.classes)]
        scale = self.factor(len(uploads))
        scaled = {i: {j: scale * owners[j] * c for j, c in c_i.items()} for i, c_i in uploads.items()}
        return FedTgp.server(self, t, scaled)


def blocks(mask: Tensor) -> Tensor:
    """Returns which of the B = min(K, d) blocks of dimensions each class uses, [K, B]."""
    return torch.stack([part.any(1) for part in mask.tensor_split(min(mask.shape), dim=1)], dim=1)


def read_masks(global_TKD: np.ndarray) -> Tensor:
    """Returns the masks of a run: the blocks in which a class's global prototype is ever not zero."""
    used = torch.from_numpy((global_TKD != 0).any(0))
    sizes = [part.shape[1] for part in used.tensor_split(min(used.shape), dim=1)]
    return blocks(used).repeat_interleave(torch.tensor(sizes), dim=1)


def check_masks(mask: Tensor, sparsity: float) -> None:
    """Checks that each class has s·B/d blocks, and that no masks have a larger least Hamming distance."""
    used = blocks(mask).int().tolist()
    number = len(used[0])
    size = max(round(sparsity * number), 1)
    assert {sum(word) for word in used} == {size}
    words = [[int(b in chosen) for b in range(number)] for chosen in combinations(range(number), size)]
    assert least_distance(used) == max(map(least_distance, combinations(words, len(used))))


def least_distance(words: Iterable[list[int]]) -> int:
    return min(sum(a != b for a, b in zip(*pair, strict=True)) for pair in combinations(words, 2))
