"""FedAvg, FedUV and FedNH: whole networks travel."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from hpcfl.models.registry import find_architecture
from hpcfl.utils.seeds import key
from tests.reference.federation import Federation, Replica

State = dict[str, Tensor]


class FedAvg(Replica):
    """The mean of the participants' networks, by samples or not, with or without batch-norm statistics."""

    def __init__(self, clients: Federation, weighted=True, buffers=False, first_download=True):
        super().__init__(clients)
        self.weighted, self.buffers = weighted, buffers
        self.state = self.read(0) if first_download else {}

    def read(self, i: int) -> State:
        """Returns what travels of a client's network: not the number of batches of batch-norm."""
        network = self.clients.networks[i]
        state = {name: value.detach().clone() for name, value in network.named_parameters()}
        if self.buffers:
            floats = [(name, value) for name, value in network.named_buffers() if value.is_floating_point()]
            state |= {name: value.clone() for name, value in floats}
        return state

    def write(self, i: int) -> None:
        """Applies the server's network to a client."""
        network = self.clients.networks[i]
        network.load_state_dict(network.state_dict() | self.state)

    def loss(self, logits: Tensor, z: Tensor, y: Tensor) -> Tensor | float:
        return 0.0

    def run_round(self, t: int) -> None:
        self.losses, states = {}, {}
        for i in self.clients.participants(t):
            self.write(i)
            self.losses[i] = self.clients.train(t, i, self.loss)
            states[i] = self.read(i)
        count = {i: self.clients.count(i) if self.weighted else 1 for i in states}
        n = sum(count.values())
        self.state = {
            name: torch.stack([count[i] / n * states[i][name] for i in states]).sum(0)
            for name in states[min(states)]
        }

    def results(self) -> dict[str, Any]:
        """Clients are evaluated before and after the download."""
        trained, kept = super().results(), self.clients.networks
        self.clients.networks = deepcopy(kept)
        for i in self.clients.ids:
            self.write(i)
        after = super().results()["/client/accuracy_head"]
        self.clients.networks = kept
        return trained | {
            "/client/accuracy_trained": trained["/client/accuracy_head"],
            "/client/accuracy_head": after,
        }

    def sent(self) -> list[Tensor]:
        return list(self.state.values())


class FedUv(FedAvg):
    """Two further terms of the loss, by loops over classes and pairs."""

    def __init__(self, clients: Federation, variance=2.5, uniformity=0.5):
        super().__init__(clients, buffers=True)
        self.mu, self.lam = variance, uniformity

    def loss(self, logits: Tensor, z: Tensor, y: Tensor) -> Tensor | float:
        if len(y) == 1:
            return 0.0
        p, variance = logits.softmax(1), torch.zeros(())
        for k in range(self.clients.classes):
            std = ((p[:, k] - p[:, k].mean()).square().sum() / (len(y) - 1)).sqrt()
            variance = variance + torch.relu(self.clients.classes**-0.5 - std) / self.clients.classes
        pairs = [(z[a] - z[b]).square().sum() for a in range(len(y)) for b in range(a)]
        nonzero = sorted((pair for pair in pairs if pair.item()), key=lambda pair: pair.item())
        median = nonzero[(len(nonzero) - 1) // 2]
        uniformity = torch.stack([torch.exp(-pair / median) for pair in pairs]).mean()
        return self.mu * variance + self.lam * uniformity


class Cosines(nn.Module):
    """A head s·⟨z/‖z‖, w⟩ whose s is trained."""

    def __init__(self, w: Tensor):
        super().__init__()
        self.s = nn.Parameter(torch.tensor(1.0))
        self.register_buffer("w", w)

    def forward(self, z: Tensor) -> Tensor:
        return torch.stack([self.s * (self.w * row / row.norm()).sum(1) for row in z])


class FedNh(FedAvg):
    """Heads are prototypes, which the server moves towards the clients' class means."""

    def __init__(self, clients: Federation, smoothing=0.9, scale=1.0, clip_norm=10.0):
        for i in clients.ids:
            torch.manual_seed(key(clients.seed, "start", i))
            plan = clients.plan
            find_architecture(plan.clients[i].architecture).build(plan.data.shape, clients.features)
            w = torch.empty(clients.classes, clients.features)
            clients.networks[i].head = Cosines(nn.init.orthogonal_(w))  # its own, until it is trained
        super().__init__(clients, weighted=False, buffers=True)
        self.state["head.s"], self.rho, clients.clip = torch.tensor(scale), smoothing, clip_norm

    def run_round(self, t: int) -> None:
        w = self.state["head.w"]
        super().run_round(t)
        for j in range(self.clients.classes):
            total = torch.zeros(self.clients.features)
            for i in self.losses:
                x, y = self.clients.train_data[i]
                if (y == j).any():
                    z = self.clients.extract(i, x[y == j])
                    mean = torch.stack([row / row.norm() for row in z]).mean(0)
                    total += len(z) * mean / mean.norm()
            if total.any():
                new = self.rho * w[j] + (1 - self.rho) * total / total.norm()
                self.state["head.w"][j] = new / new.norm()
            else:
                self.state["head.w"][j] = w[j]

    def results(self) -> dict[str, Any]:
        return super().results() | {"/round/scale": self.state["head.s"].item()}
