"""LG-FedAvg, FedGH and FedDistill against replicas: what the server sends, losses, accuracies."""

from __future__ import annotations

from collections import defaultdict
from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from hpcfl.engine.worker import Worker
from hpcfl.log.reader import Run
from hpcfl.utils.seeds import generator
from tests.helpers.cases import prepare_images
from tests.helpers.runs import train_log
from tests.reference.federation import Federation

ROUNDS = 3
SETTINGS = [
    *("data.name=tiny", "data.root=.", "federation.clients=6", f"federation.rounds={ROUNDS}"),
    *("federation.participation=0.5", "partition.name=pathological", "partition.classes_per_client=2"),
    *("models.list=['cnn_femnist', 'resnet4', 'cnn']", "models.features=64"),  # dropout, batch-norm, neither
    *("train.batch_size=5", "train.epochs=2"),
]


@pytest.fixture
def sent(monkeypatch) -> list[list[np.ndarray]]:
    """What the server sends, by broadcast: heads, or logits and the classes that have them."""
    found: list[list[np.ndarray]] = []
    original = Worker.receive

    def receive(self, download):
        values = [
            part
            for value in download.values()
            for part in ([value] if isinstance(value, Tensor) else [value.value_KD, value.present_K])
        ]
        found.append([value.detach().numpy().copy() for value in values])
        original(self, download)

    monkeypatch.setattr(Worker, "receive", receive)
    return found


@pytest.fixture
def both(hpcfl, tmp_path):
    """Returns `both(*settings)`: the log of a run, and the federation before its first round."""

    def start(*settings: str) -> tuple[Run, Federation]:
        prepare_images(tmp_path)
        log = train_log(hpcfl, *SETTINGS, *settings)
        owned = log["/clients/class_counts"] > 0
        assert not all(owned[who].any(0).all() for who in log["/round/participants"]), "a class is absent"
        return log, Federation([*SETTINGS, *settings])

    return start


def assert_close(found, expected) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


def assert_close_heads(found: list[np.ndarray], expected: list[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other)


def test_lg_fedavg(both, sent):
    log, clients = both("method.name=lg-fedavg")
    head = clients.get_head(0)
    for t in range(ROUNDS):
        losses, heads = {}, {}
        for i in clients.participants(t):
            clients.set_head(i, head)
            losses[i] = clients.train(t, i)
            heads[i] = clients.get_head(i)
        total = sum(map(clients.samples, heads))
        head = [sum(clients.samples(i) / total * heads[i][p] for i in heads) for p in range(2)]
        assert_close(log["/round/loss"][t], clients.round_loss(losses))
        assert_close(log["/client/accuracy_trained"][t], clients.accuracy())
        assert_close(log["/client/accuracy_head"][t], clients.accuracy(head))
        assert_close_heads(sent[t + 1], head)
    assert_close_heads(sent[0], Federation(SETTINGS).get_head(0))


def test_fedgh(both, sent):
    log, clients = both("method.name=fedgh")
    server = deepcopy(clients.networks[0].head).eval()  # without dropout
    for t in range(ROUNDS):
        head = [parameter.detach().clone() for parameter in server.parameters()]
        assert_close_heads(sent[t], head)
        losses, uploads = {}, []
        for i in clients.participants(t):
            clients.set_head(i, head)
            losses[i] = clients.train(t, i)
            uploads += [*clients.prototypes(i).items()]
        y, z = torch.tensor([label for label, _ in uploads]), torch.stack([mean for _, mean in uploads])
        optimiser, loss = torch.optim.SGD(server.parameters(), 0.01), 0.0
        order = torch.from_numpy(generator(clients.seed, "server shuffle", t, 0).permutation(len(y)))
        batches = order.split(clients.batch)
        for which in batches:
            optimiser.zero_grad()
            value = cross_entropy(server(z[which]), y[which])
            value.backward()
            optimiser.step()
            loss += value.item() * len(which) / len(y)
        assert log["/refine/iterations"][t] == len(batches) == 2
        assert_close(log["/refine/loss"][t], loss)
        assert_close(log["/round/loss"][t], clients.round_loss(losses))
        assert_close(log["/client/accuracy_trained"][t], clients.accuracy())
        assert_close(log["/client/accuracy_head"][t], clients.accuracy(list(server.parameters())))
    assert_close_heads(sent[ROUNDS], [parameter.detach() for parameter in server.parameters()])


TERMS = {
    "mse": mse_loss,
    "softmax": lambda logits, target: cross_entropy(logits, target.softmax(0)),
    "logits": cross_entropy,
}
"""Of one sample: mean over K."""


@pytest.mark.parametrize("term", TERMS)
def test_feddistill(both, sent, term):
    log, clients = both("method.name=feddistill", f"method.term={term}", "method.weight=0.1")
    means: dict[int, Tensor] = {}

    def distill(logits: Tensor, y: Tensor) -> Tensor:
        labelled = zip(logits, y.tolist(), strict=True)
        known = [TERMS[term](row, means[label]) for row, label in labelled if label in means]
        return 0.1 * sum(known, torch.zeros(())) / len(y)

    for t in range(ROUNDS):
        losses, uploads = {}, defaultdict(list)
        for i in clients.participants(t):
            seen: list[tuple[Tensor, Tensor]] = []
            losses[i] = clients.train(t, i, distill, lambda *batch, seen=seen: seen.append(batch))
            logits, y = (torch.cat(parts) for parts in zip(*seen, strict=True))
            for label in set(y.tolist()):
                uploads[label].append(logits[y == label].mean(0))
        means = {label: torch.stack(rows).mean(0) for label, rows in uploads.items()}
        assert_close(log["/round/loss"][t], clients.round_loss(losses))
        assert_close(log["/client/accuracy_head"][t], clients.accuracy())
        value, present = sent[t + 1]
        assert np.flatnonzero(present).tolist() == sorted(means)
        for label, row in means.items():
            assert_close(value[label], row)
    assert sent[0] == []
