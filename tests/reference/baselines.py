"""LG-FedAvg, FedGH and FedDistill, as HtFLlib runs them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from hpcfl.utils.seeds import generator
from tests.reference.federation import Federation, Replica


class SharedHead(Replica):
    """All clients train and predict from the server's head, which starts as client 0's."""

    def __init__(self, clients: Federation):
        super().__init__(clients)
        self.head = deepcopy(clients.networks[0].head).eval()  # without dropout

    def train(self, t: int) -> None:
        self.losses = {}
        for i in self.clients.participants(t):
            copy(self.head, self.clients.networks[i].head)
            self.losses[i] = self.clients.train(t, i)

    def predict(self, i: int, z: Tensor) -> Tensor:
        return self.head(z).argmax(1)

    def results(self) -> dict[str, Any]:
        """Clients are scored with their trained heads, too."""
        trained = super().results()
        return trained | {
            "/client/accuracy_trained": trained["/client/accuracy_head"],
            "/client/accuracy_head": self.accuracy(self.predict),
        }

    def sent(self) -> list[Tensor]:
        return [parameter.detach() for parameter in self.head.parameters()]


@torch.no_grad()
def copy(source: nn.Module, to: nn.Module) -> None:
    for value, parameter in zip(source.parameters(), to.parameters(), strict=True):
        parameter.copy_(value)


class LgFedAvg(SharedHead):
    """The mean of the participants' heads, weighted by their samples."""

    @torch.no_grad()
    def average(self) -> None:
        n = sum(self.clients.count(i) for i in self.losses)
        trained = [(self.clients.count(i) / n, self.clients.networks[i].head) for i in self.losses]
        for p, parameter in enumerate(self.head.parameters()):
            parameter.copy_(sum(share * [*head.parameters()][p] for share, head in trained))

    def run_round(self, t: int) -> None:
        self.train(t)
        self.average()


class FedGh(SharedHead):
    """The server trains its head on the participants' prototypes: one epoch of a new SGD."""

    def run_round(self, t: int) -> None:
        self.train(t)
        z, y = [], []
        for i in self.losses:
            x, label = self.clients.train_data[i]
            for j in label.unique():
                z.append(self.clients.extract(i, x)[label == j].mean(0))
                y.append(j)
        optimiser, self.loss = torch.optim.SGD(self.head.parameters(), 0.01), 0.0
        order = generator(self.clients.seed, "server shuffle", t, 0).permutation(len(y))
        for which in torch.from_numpy(order).split(self.clients.settings.batch_size):
            loss = cross_entropy(self.head(torch.stack(z)[which]), torch.stack(y)[which])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            self.loss += loss.item() * len(which) / len(y)

    def results(self) -> dict[str, Any]:
        return super().results() | {"/refine/loss": self.loss}


TERMS = {
    "mse": mse_loss,  # mean over K
    "softmax": lambda logits, mean: cross_entropy(logits, mean.softmax(0)),
    "logits": cross_entropy,
}
"""Of one sample's logits to the mean logits of its label."""


class FedDistill(Replica):
    """CE + γ·term; clients upload the class means of their logits in training, and get the means of these."""

    def __init__(self, clients: Federation, *, weight: float = 1.0, term: str = "mse"):
        super().__init__(clients)
        self.weight, self.term = weight, TERMS[term]
        self.means: dict[int, Tensor] = {}
        self.seen: list[tuple[Tensor, Tensor]] = []

    def loss(self, logits: Tensor, z: Tensor, y: Tensor) -> Tensor | float:
        """A label without mean logits adds 0, but counts in the mean."""
        self.seen.append((logits.detach(), y))
        pairs = zip(logits, y.tolist(), strict=True)
        return (
            self.weight * sum(self.term(row, self.means[j]) for row, j in pairs if j in self.means) / len(y)
        )

    def run_round(self, t: int) -> None:
        """Mean logits of classes that are absent from a round are forgotten."""
        self.losses = {}
        uploads: list[tuple[int, Tensor]] = []
        for i in self.clients.participants(t):
            self.seen = []
            self.losses[i] = self.clients.train(t, i, self.loss)
            logits, y = (torch.cat(parts) for parts in zip(*self.seen, strict=True))
            uploads += [(j, logits[y == j].mean(0)) for j in set(y.tolist())]
        classes = sorted({j for j, _ in uploads})
        self.means = {j: torch.stack([mean for k, mean in uploads if k == j]).mean(0) for j in classes}

    def sent(self) -> list[Tensor]:
        if not self.means:
            return []
        value = torch.zeros(self.clients.classes, self.clients.classes)
        for j, mean in self.means.items():
            value[j] = mean
        return [value, torch.tensor([j in self.means for j in range(len(value))])]
