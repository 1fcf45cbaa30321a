"""FedMPS: contrast with prototypes on two levels, and soft labels of a classifier on the server."""

from __future__ import annotations

from collections import defaultdict
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool1d, cross_entropy, kl_div, normalize

from hpcfl.models.registry import find_architecture
from hpcfl.utils.seeds import generator, key
from tests.reference.federation import Federation, Replica

LEVELS = ("high", "low")


def contrast(z: Tensor, anchor: Tensor, y: Tensor) -> Tensor:
    """The supervised contrastive loss at temperature 0.5 of features and prototypes, anchor by anchor."""
    rows, label, total = [*z, *anchor], [*y.tolist()] * 2, torch.zeros(())
    for a in range(len(rows)):
        others = [b for b in range(len(rows)) if b != a]
        log_sum = torch.stack([rows[a] @ rows[b] / 0.5 for b in others]).logsumexp(0)
        positives = [rows[a] @ rows[b] / 0.5 - log_sum for b in others if label[b] == label[a]]
        total = total - torch.stack(positives).mean()
    return 0.5 / 0.07 * total / len(rows)


class FedMps(Replica):
    """CE + α·high + β·low + γ·soft; `low_features` is the width of the lower level."""

    def __init__(
        self,
        clients: Federation,
        *,
        low_features: int,
        high=1.0,
        low=0.2,
        soft=5.0,
        server_lr=0.001,
        own_classes=False,
    ):
        super().__init__(clients)
        self.width, self.lr, self.own_classes = low_features, server_lr, own_classes
        self.weight = {"high": high, "low": low, "soft": soft}
        self.server = deepcopy(clients.networks[0].head)
        self.known: dict[str, dict[int, Tensor]] = {"high": {}, "low": {}, "soft": {}}
        self.batch: dict[str, Tensor] = {}
        """The levels of the batch that is trained on."""
        self.seen: list[tuple[dict[str, Tensor], Tensor]] = []
        for i, network in enumerate(clients.networks):
            layer = find_architecture(clients.plan.clients[i].architecture).low_level
            network.extractor.get_submodule(layer).register_forward_hook(self.keep)

    def keep(self, module: Any, inputs: Any, output: Tensor) -> None:
        self.batch["low"] = adaptive_avg_pool1d(output.flatten(1)[:, None], self.width)[:, 0]

    def loss(self, logits: Tensor, z: Tensor, y: Tensor) -> Tensor:
        """A label without a prototype is compared with the feature itself; one without soft label adds 0."""
        level = {name: normalize({**self.batch, "high": z}[name]) for name in LEVELS}
        self.seen.append(({name: value.detach() for name, value in level.items()}, y))
        total = torch.zeros(())
        for name in LEVELS if self.known["high"] else ():
            pairs = zip(level[name], y.tolist(), strict=True)
            anchor = torch.stack([self.known[name].get(j, row.detach()) for row, j in pairs])
            total = total + self.weight[name] * contrast(level[name], anchor, y)
        for row, j in zip(logits, y.tolist(), strict=True):
            if j in self.known["soft"]:
                target = (self.known["soft"][j] / 5).softmax(0)
                kl = kl_div((row / 5).log_softmax(0), target, reduction="sum")
                total = total + self.weight["soft"] * kl / len(y)
        return total

    def run_round(self, t: int) -> None:
        """Prototypes are class means of the last epoch; classes that are absent keep what they had."""
        self.losses = {}
        new: dict[str, dict[int, list[Tensor]]] = {name: defaultdict(list) for name in self.known}
        for i in self.clients.participants(t):
            self.seen = []
            self.losses[i] = self.clients.train(t, i, self.loss)
            last = self.seen[-len(self.seen) // self.clients.settings.epochs :]
            y = torch.cat([y for _, y in last])
            for name in LEVELS:
                z = torch.cat([level[name] for level, _ in last])
                for j in sorted(set(y.tolist())):
                    new[name][j].append(z[y == j].mean(0))
        for j, row in self.classify(t, new["high"]):
            new["soft"][j].append(row)
        for name, rows in new.items():
            self.known[name] |= {j: torch.stack(each).mean(0) for j, each in rows.items()}

    def classify(self, t: int, prototypes: dict[int, list[Tensor]]) -> list[tuple[int, Tensor]]:
        """Six epochs of a new Adam, four prototypes at a time, in the order of clients and classes."""
        by_client = self.order(prototypes)
        z, y = torch.stack([row for _, row in by_client]), torch.tensor([j for j, _ in by_client])
        optimiser = torch.optim.Adam(self.server.train().parameters(), self.lr)
        torch.manual_seed(key(self.clients.seed, "classifier", t))  # dropout
        for epoch in range(6):
            order = generator(self.clients.seed, "server shuffle", t, epoch).permutation(len(y))
            for which in torch.from_numpy(order).split(4):
                optimiser.zero_grad()
                cross_entropy(self.server(z[which]), y[which]).backward()
                optimiser.step()
        with torch.no_grad():
            return [*zip(y.tolist(), self.server.eval()(z), strict=True)]

    def order(self, prototypes: dict[int, list[Tensor]]) -> list[tuple[int, Tensor]]:
        """Returns the uploads by client, then by class."""
        rest, found = {j: [*rows] for j, rows in prototypes.items()}, []
        for i in self.losses:
            for j in sorted(rest):
                if self.clients.count(i, j):
                    found.append((j, rest[j].pop(0)))
        return found

    def results(self) -> dict[str, Any]:
        def nearest(i: int, z: Tensor) -> Tensor:
            classes = [
                j for j in sorted(self.known["high"]) if self.clients.count(i, j) or not self.own_classes
            ]
            centre = torch.stack([self.known["high"][j] for j in classes])
            return torch.tensor(classes)[torch.cdist(normalize(z), centre).argmin(1)]

        return super().results() | {"/client/accuracy_global": self.accuracy(nearest)}

    def sent(self) -> list[Tensor]:
        found = []
        for name, rows in self.known.items() if self.known["high"] else ():
            width = {"high": self.clients.features, "low": self.width, "soft": self.clients.classes}[name]
            value = torch.zeros(self.clients.classes, width)
            for j, row in rows.items():
                value[j] = row
            found += [value, torch.tensor([j in rows for j in range(len(value))])]
        return found
