"""FedProto (Tan et al., AAAI 2022), with the equations of ProtoNorm's paper; also the base of other replicas.

c_ij is the prototype of class j at client i, n_ij its number of samples there, c_j the global prototype. A
class without prototype is a missing key.
"""

from __future__ import annotations

from functools import partial
from math import isfinite
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from hpcfl.utils.seeds import generator
from tests.reference.federation import Federation, Replica, Views

Prototypes = dict[int, Tensor]

DISTANCES = {
    "mse": lambda z, c: (z - c).square().mean(),  # as in published code
    "euclid": lambda z, c: (z - c).norm(),  # ρ in (5)
    "sq": lambda z, c: (z - c).square().sum(),
    "cosine": lambda z, c: 1 - cosine_similarity(z, c, dim=0, eps=1e-6),  # FedORGP (8)
}
"""Of a sample's features to the global prototype of its label."""
WEIGHTS = {"mse": 10.0, "euclid": 0.1, "cosine": 100.0}
"""λ of each distance."""
AGGREGATES = {
    "mean": lambda c, n: c.mean(0),  # (7), and published code
    "weighted": lambda c, n: n @ c / n.sum(),
    "weighted-literal": lambda c, n: n @ c / n.sum() / len(n),  # (3) as printed
}
"""Of the prototypes c_ij and counts n_ij of the clients N_j that have class j."""


class FedProto(Replica):
    """Clients align their features to the global prototypes; the server averages the clients' means."""

    def __init__(
        self,
        clients: Federation,
        *,
        distance: str = "mse",
        weight: float | None = None,
        scale: float = 1.0,
        aggregate: str = "mean",
        class_weights: str = "equal",
        initial: str = "none",
        prototypes: str = "eval",
        forget: bool = False,
        own_classes: bool = False,
    ):
        super().__init__(clients)
        self.distance, self.aggregate = DISTANCES[distance], AGGREGATES[aggregate]
        self.weight = WEIGHTS[distance] if weight is None else weight
        self.by_angle, self.scale = distance == "cosine", scale
        self.balanced, self.starts_random = class_weights == "balanced", initial == "random"
        self.source, self.forget, self.own_classes = prototypes, forget, own_classes
        self.c: Prototypes = {}
        self.local: dict[int, Prototypes] = {}
        self.logged: dict[str, Any] = {}

    def run_round(self, t: int) -> None:
        """Algorithm 2 of ProtoNorm, whose steps other papers change; in published code c starts empty."""
        if t == 0 and self.starts_random:
            self.c = self.random()
        self.losses, uploads = {}, {}
        for i in sorted({*self.clients.participants(t)} - self.diverged):
            before = (
                self.prototypes(t, i) if self.source == "before" else None
            )  # as in FedTGP's published code
            self.losses[i] = self.train(t, i)
            self.local[i] = before or self.prototypes(t, i)
            uploads[i] = self.upload(i)
            if not isfinite(self.losses[i] + sum(c.sum().item() for c in uploads[i].values())):
                self.diverged.add(i)
                del uploads[i]
        self.c = {j: c_j.float() for j, c_j in self.server(t, uploads).items()}

    # --- a client

    def train(self, t: int, i: int) -> float:
        self.seen: list[tuple[Tensor, Tensor]] = []
        return self.clients.train(t, i, partial(self.loss, t, i), self.views(t, i))

    def views(self, t: int, i: int) -> Views | None:
        return None

    def loss(self, t: int, i: int, logits: Tensor, z: Tensor, y: Tensor) -> Tensor | float:
        """λ R_i of a batch, (4); a label without prototype adds 0, but counts in the mean.

        R_i is the mean over samples, as in published code; `balanced` is (5) as printed, over class means.
        """
        self.seen.append((z.detach(), y))
        if self.balanced:
            z, y = torch.stack([z[y == j].mean(0) for j in y.unique()]), y.unique()
        terms = [self.term(i, z_b, j) for z_b, j in zip(z, y.tolist(), strict=True) if j in self.c]
        return self.weight_in(t) * sum(terms) / len(y)

    def weight_in(self, t: int) -> float:
        return self.weight

    def term(self, i: int, z: Tensor, j: int) -> Tensor:
        return self.distance(z, self.target(j))

    def target(self, j: int) -> Tensor:
        return self.scale * self.c[j]

    def prototypes(self, t: int, i: int) -> Prototypes:
        """c_ij = 1/n_ij Σ f_i(x), (2), after training; FedProto's own code: while it trains."""
        x, y = self.clients.train_data[i]
        z = self.clients.extract(i, x)
        if self.source == "running":
            z, y = (torch.cat(parts) for parts in zip(*self.seen, strict=True))
        return {j: z[y == j].mean(0) for j in sorted(set(y.tolist()))}

    def upload(self, i: int) -> Prototypes:
        return self.local[i]

    # --- the server

    def random(self) -> Prototypes:
        """Returns the first prototypes of the papers' algorithm boxes: here, directions of length 1."""
        rng = {j: generator(self.clients.seed, "direction", j) for j in range(self.clients.classes)}
        normal = {j: torch.from_numpy(rng[j].standard_normal(self.clients.features)) for j in rng}
        return {j: (c / c.norm()).float() for j, c in normal.items()}

    def server(self, t: int, uploads: dict[int, Prototypes]) -> Prototypes:
        """Returns c_j, aggregated in float64; classes that nobody uploads keep their last one."""
        new = {}
        for j in {j for c_i in uploads.values() for j in c_i}:
            owners = [i for i in uploads if j in uploads[i]]  # N_j
            n = torch.tensor([self.clients.count(i, j) for i in owners]).double()
            new[j] = self.aggregate(torch.stack([uploads[i][j] for i in owners]).double(), n)
        return new if self.forget else self.c | new

    # --- inference

    def nearest(self, z: Tensor, c: Prototypes) -> Tensor | None:
        """Returns argmin_j ‖z − c_j‖, (6), in float64; by angle if the local loss is."""
        if not c:
            return None
        z, c_j = z.double(), torch.stack([*c.values()]).double()
        distance = -cosine_similarity(z[:, None], c_j, dim=2) if self.by_angle else torch.cdist(z, c_j)
        return torch.tensor([*c])[distance.argmin(1)]

    def predict_global(self, i: int, z: Tensor) -> Tensor | None:
        candidates = [j for j in self.c if self.clients.count(i, j) or not self.own_classes]
        return self.nearest(z, {j: self.target(j) for j in candidates})

    def predict_local(self, i: int, z: Tensor) -> Tensor | None:
        return self.nearest(z, self.local.get(i, {}))

    def results(self) -> dict[str, Any]:
        absent = torch.zeros(self.clients.features)
        return super().results() | {
            "/prototypes/global": torch.stack([self.c.get(j, absent) for j in range(self.clients.classes)]),
            "/prototypes/present": [j in self.c for j in range(self.clients.classes)],
            "/client/accuracy_global": self.accuracy(self.predict_global),
            "/client/accuracy_local": self.accuracy(self.predict_local),
            **self.logged,
        }


class Local(FedProto):
    """Clients train alone; nothing is exchanged."""

    def server(self, t: int, uploads: dict[int, Prototypes]) -> Prototypes:
        return {}
