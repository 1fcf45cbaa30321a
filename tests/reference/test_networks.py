"""FedAvg, FedUV and FedNH against replicas: what the server sends, losses, accuracies."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hpcfl.engine.worker import Worker
from hpcfl.log.reader import Run
from tests.helpers.cases import prepare_images
from tests.helpers.runs import train_log
from tests.reference.federation import Federation

ROUNDS = 3
SETTINGS = [
    *("data.name=tiny", "data.root=.", "federation.clients=6", f"federation.rounds={ROUNDS}"),
    *("federation.participation=2", "partition.name=pathological", "partition.classes_per_client=2"),
    *("models.list=['resnet4']", "models.features=64", "train.batch_size=5", "train.epochs=2"),
]
State = dict[str, Tensor]


@pytest.fixture
def sent(monkeypatch) -> list[State]:
    """What the server sends, by broadcast."""
    found: list[State] = []
    original = Worker.receive

    def receive(self, download):
        found.append({name: value.clone() for name, value in download.items()})
        original(self, download)

    monkeypatch.setattr(Worker, "receive", receive)
    return found


@pytest.fixture
def both(hpcfl, tmp_path):
    """Returns `both(*settings)`: the log of a run, and the federation before its first round."""

    def start(*settings: str) -> tuple[Run, Federation]:
        prepare_images(tmp_path)
        return train_log(hpcfl, *SETTINGS, *settings), Federation([*SETTINGS, *settings])

    return start


def assert_close(found, expected) -> None:
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-5)


def travels(network: nn.Module, buffers: bool) -> State:
    """Returns a copy of what is averaged of a network: not batch-norm's number of batches."""
    names = {name for name, _ in network.named_parameters()}
    return {
        name: value.clone()
        for name, value in network.state_dict().items()
        if name in names or (buffers and value.is_floating_point())
    }


def load(network: nn.Module, state: State) -> None:
    network.load_state_dict(network.state_dict() | state)


def run_averaging(clients: Federation, log: Run, sent: list[State], buffers, weighted, alike, loss=None):
    """Replays the rounds; the accuracies before and after a download, and the download, must be the log's."""
    state = travels(clients.networks[0], buffers) if alike else {}
    for t in range(ROUNDS):
        assert sent[t].keys() == state.keys()
        losses, states = {}, {}
        for i in clients.participants(t):
            load(clients.networks[i], state)
            losses[i] = clients.train(t, i, loss)
            states[i] = travels(clients.networks[i], buffers)
        count = {i: clients.samples(i) if weighted else 1 for i in states}
        total = sum(count.values())
        state = {
            name: torch.stack([count[k] / total * states[k][name] for k in states]).sum(0)
            for name in states[i]
        }
        assert_close(log["/round/loss"][t], clients.round_loss(losses))
        assert_close(log["/client/accuracy_trained"][t], clients.accuracy())
        assert sent[t + 1].keys() == state.keys()
        for name, value in state.items():
            assert_close(sent[t + 1][name], value)
        after = deepcopy(clients)
        for network in after.networks:
            load(network, state)
        assert_close(log["/client/accuracy_head"][t], after.accuracy())


@pytest.mark.parametrize("published", [False, True])
def test_fedavg(both, sent, published):
    """By samples and without buffers; or as in FedSAP's code, from different weights."""
    fedsap = ["method.weighted=false", "method.buffers=true", "method.first_download=false"]
    log, clients = both("method.name=fedavg", *(fedsap if published else []))
    run_averaging(clients, log, sent, published, not published, not published)


def test_feduv(both, sent):
    log, clients = both("method.name=feduv", "method.variance=0.7", "method.uniformity=0.3")

    def terms(logits: Tensor, y: Tensor) -> Tensor:
        p, pairs = logits.softmax(1), []
        for a in range(len(y)):
            for b in range(a):
                pairs.append((clients.z[a] - clients.z[b]).square().sum())
        spread = (p - p.mean(0)).square().sum(0) / (len(y) - 1)
        variance = torch.relu(clients.classes**-0.5 - spread.sqrt()).mean()
        median = sorted(pairs, key=lambda pair: pair.item())[(len(pairs) - 1) // 2]
        uniformity = torch.stack([torch.exp(-pair / median) for pair in pairs]).mean()
        return 0.7 * variance + 0.3 * uniformity

    run_averaging(clients, log, sent, buffers=True, weighted=True, alike=True, loss=terms)


class Cosines(nn.Module):
    """The head of FedNH."""

    def __init__(self, w: Tensor):
        super().__init__()
        self.w, self.s = w, nn.Parameter(torch.tensor(1.0))

    def forward(self, z: Tensor) -> Tensor:
        return torch.stack([self.s * (row / row.norm() * self.w).sum(1) for row in z])


def test_fednh(both, sent):
    log, clients = both("method.name=fednh", "method.scale=3.0", "method.clip_norm=0.5")
    clients.clip, w, s = 0.5, sent[0]["head.weight"], 3.0
    body = travels(clients.networks[0].extractor, True)
    for network in clients.networks:
        network.head = Cosines(network.head.weight)  # its own, until it trains
    for t in range(ROUNDS):
        losses, bodies, scales = {}, [], []
        sums = torch.zeros_like(w)
        for i in clients.participants(t):
            network = clients.networks[i]
            load(network.extractor, body)
            network.head.w, network.head.s.data = w, torch.tensor(s)
            losses[i] = clients.train(t, i)
            bodies.append(travels(network.extractor, True))
            scales.append(network.head.s.item())
            (x, y), network = clients.train_data[i], network.eval()
            with torch.no_grad():
                z = network.extractor(x)
            for k in set(y.tolist()):
                unit = torch.stack([row / row.norm() for row in z[y == k]]).mean(0)
                sums[k] += (y == k).sum() * unit / unit.norm()
        assert_close(log["/round/loss"][t], clients.round_loss(losses))
        assert_close(log["/client/accuracy_trained"][t], clients.accuracy())
        body = {name: torch.stack([each[name] for each in bodies]).mean(0) for name in bodies[0]}
        s, new = float(np.mean(scales)), w.clone()
        for k in range(clients.classes):
            if sums[k].any():
                new[k] = 0.9 * w[k] + 0.1 * sums[k] / sums[k].norm()
                new[k] /= new[k].norm()
        assert not sums.any(1).all(), "a class is absent"
        w = new
        assert_close(sent[t + 1]["head.weight"], w)
        assert_close([sent[t + 1]["head.scale"], log["/round/scale"][t]], [s, s])
        for name, value in body.items():
            assert_close(sent[t + 1][f"extractor.{name}"], value)
        after = deepcopy(clients)
        for network in after.networks:
            load(network.extractor, body)
            network.head.w, network.head.s.data = w, torch.tensor(s)
        assert_close(log["/client/accuracy_head"][t], after.accuracy())
