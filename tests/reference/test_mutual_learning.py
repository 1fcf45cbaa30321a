"""FML and FedKD against replicas: the auxiliary network that the server sends, losses, accuracies."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax, mse_loss, softmax
from torch.nn.utils import clip_grad_norm_

from hpcfl.engine.worker import Worker
from hpcfl.models.network import build_network
from hpcfl.utils.seeds import generator, key
from tests.helpers.cases import prepare_images
from tests.helpers.runs import train_log
from tests.reference.federation import Federation

ROUNDS, CLIP = 3, 2.0
SETTINGS = [
    *("data.name=tiny", "data.root=.", "federation.clients=6", f"federation.rounds={ROUNDS}"),
    *("federation.participation=0.5", "partition.name=pathological", "partition.classes_per_client=2"),
    *("models.list=['cnn_femnist', 'resnet4', 'cnn']", "models.features=64"),  # dropout, batch-norm, neither
    *("train.batch_size=5", "train.epochs=2"),
]


@pytest.fixture
def sent(monkeypatch) -> list[dict[str, Tensor]]:
    """What the server sends, by broadcast."""
    found: list[dict[str, Tensor]] = []
    original = Worker.receive

    def receive(self, download):
        found.append({name: value.clone() for name, value in download.items()})
        original(self, download)

    monkeypatch.setattr(Worker, "receive", receive)
    return found


class TwoNetworks(Federation):
    """A federation whose clients train an auxiliary network, too."""

    def __init__(self, settings: list[str], auxiliary: str, published: bool, clip: float):
        super().__init__(settings)
        torch.manual_seed(key(self.seed, "start auxiliary", 0))
        self.server = build_network(auxiliary, (3, 16, 16), self.classes, self.features)
        self.published, self.clip = published, clip
        bound = self.features**-0.5
        self.maps = [
            torch.from_numpy(
                generator(self.seed, "start block map", 1, i).uniform(-bound, bound, (self.features,) * 2)
            ).float()
            for i in range(self.clients)
        ]

    def divergence(self, student: Tensor, teacher: Tensor) -> Tensor:
        """Σ_k q log(q/p), averaged over the batch, and in published code over classes."""
        if not self.published:
            teacher = teacher.detach()
        each = softmax(teacher, 1) * (log_softmax(teacher, 1) - log_softmax(student, 1))
        return each.mean() if self.published else each.sum(1).mean()

    def fml(self, own, other, i) -> tuple[Tensor, Tensor]:
        (_, p), (_, q), y = own, other, self.labels
        return (
            0.3 * cross_entropy(p, y) + 0.7 * self.divergence(p, q),
            0.6 * cross_entropy(q, y) + 0.4 * self.divergence(q, p),
        )

    def fedkd(self, own, other, i) -> tuple[Tensor, Tensor]:
        (z, p), (z_g, q), y = own, other, self.labels
        ce, ce_g, mapped = cross_entropy(p, y), cross_entropy(q, y), z_g @ self.map.T
        s = ce + ce_g
        mse = mse_g = mse_loss(z, mapped)
        if not self.published:
            s, mse, mse_g = s.detach(), mse_loss(z, mapped.detach()), mse_loss(mapped, z.detach())
        return ce + (self.divergence(p, q) + mse) / s, ce_g + (self.divergence(q, p) + mse_g) / s

    def train_both(self, t: int, i: int, losses: Any) -> tuple[float, Any]:
        """Trains client i and a copy of the server's network; returns its mean loss and the copy."""
        (x, y), network, auxiliary = self.train_data[i], self.networks[i], deepcopy(self.server)
        self.map = self.maps[i].requires_grad_()
        groups = [list(network.parameters()), list(auxiliary.parameters()), [self.map]]
        optimisers = [torch.optim.SGD(group, self.lr) for group in groups]
        torch.manual_seed(key(self.seed, "train", i, t))
        network.train()
        auxiliary.train()
        total = 0.0
        for epoch in range(self.epochs):
            order = torch.from_numpy(generator(self.seed, "shuffle", i, t, epoch).permutation(len(y)))
            batches = list(order.split(self.batch))
            if len(batches[-1]) == 1 and (network.has_batch_norm or auxiliary.has_batch_norm):
                batches[-2:] = [torch.cat(batches[-2:])]
            for which in batches:
                self.labels = y[which]
                outputs = []
                for each in (network, auxiliary):
                    z = each.extractor(x[which])
                    outputs.append((z, each.head(z)))
                own, other = losses(*outputs, i)
                for optimiser in optimisers:
                    optimiser.zero_grad()
                own.backward(retain_graph=True)
                other.backward()
                for group, optimiser in zip(groups, optimisers, strict=True):
                    if self.clip:
                        clip_grad_norm_(group, self.clip)
                    optimiser.step()
                total += own.item() * len(which)
        self.maps[i] = self.map.detach()
        return total / (self.epochs * len(y)), auxiliary

    @torch.no_grad()
    def aggregate(self, networks: list[Any], compress: Any) -> None:
        """Sets the server's network to the mean, each network and the mean compressed."""
        for name, parameter in self.server.named_parameters():
            values = [compress(network.get_parameter(name).double()) for network in networks]
            parameter.copy_(compress(torch.stack(values).mean(0)))


def truncated(energy: float, published: bool) -> Any:
    """Returns a function that keeps the largest singular values of a matrix, or of every kernel."""

    def compress(value: Tensor) -> Tensor:
        if value.dim() < 2:
            return value
        u, s, v = np.linalg.svd(value.numpy(), full_matrices=False)
        squares = np.square(s).reshape(-1, s.shape[-1]).sum(0)
        reached = [
            rank for rank in range(1, len(squares) + 1) if squares[:rank].sum() > energy * squares.sum()
        ]
        rank = min(reached)
        if published and rank == len(squares):
            rank = 0
        rows, columns = value.shape[-2:]
        if not published and rank * (rows + columns) >= rows * columns:
            return value
        return torch.from_numpy((u[..., :rank] * s[..., None, :rank]) @ v[..., :rank, :])

    return compress


def assert_close(found, expected) -> None:
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


def restored(payload: dict[str, Tensor], name: str) -> Tensor:
    if name in payload:
        return payload[name]
    left, right = payload[f"{name}.left"], payload[f"{name}.right"]
    return left @ (payload[f"{name}.sigma"][..., None] * right if f"{name}.sigma" in payload else right)


@pytest.mark.parametrize("clip", [CLIP, 0.0])
@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("name", ["fml", "fedkd"])
def test_replicas(hpcfl, tmp_path, sent, name, published, clip):
    """Without clipping hpcfl trains by the direct step, the replica as torch does."""
    prepare_images(tmp_path)
    auxiliary = "resnet4" if name == "fml" else "cnn"
    own = {
        "fml": ["method.alpha=0.3", "method.beta=0.6"],
        "fedkd": ["method.energy_start=0.5", "method.energy_end=0.9", "method.energy_rounds=4"],
    }
    settings = [
        *(*SETTINGS, f"method.name={name}", f"method.auxiliary={auxiliary}", *own[name]),
        *(f"method.published={str(published).lower()}", f"method.clip_norm={clip}"),
    ]
    log = train_log(hpcfl, *settings)
    clients = TwoNetworks(settings, auxiliary, published, clip)
    compress = truncated(0.5, published) if name == "fedkd" else lambda value: value
    with torch.no_grad():
        for parameter in clients.server.parameters():
            parameter.copy_(compress(parameter.double()))
    for t in range(ROUNDS):
        for key_, parameter in clients.server.named_parameters():
            assert_close(restored(sent[t], key_), parameter.detach())
        trained = {i: clients.train_both(t, i, getattr(clients, name)) for i in clients.participants(t)}
        if name == "fedkd":
            compress = truncated(0.5 + 0.4 * t / 4, published)
        clients.aggregate([network for _, network in trained.values()], compress)
        losses = {i: loss for i, (loss, _) in trained.items()}
        assert_close(log["/round/loss"][t], clients.round_loss(losses))
        assert_close(log["/client/accuracy_head"][t], clients.accuracy())
    if name == "fedkd":
        assert any(key_.endswith(".left") for key_ in sent[1])
