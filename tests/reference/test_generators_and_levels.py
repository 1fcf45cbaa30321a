"""FedGen and FedMPS against replicas: what the server sends, losses, accuracies."""

from __future__ import annotations

from collections import defaultdict
from copy import deepcopy

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool1d, cross_entropy, kl_div, linear, normalize, one_hot

from hpcfl.utils.seeds import generator, key
from tests.reference.test_baselines import ROUNDS, assert_close, both, sent

__all__ = ["both", "sent"]  # fixtures
NOISE, STEPS = 3, 4


def test_fedgen(both, sent):
    log, clients = both("method.name=fedgen", f"method.noise={NOISE}", f"method.server_steps={STEPS}")
    classes, width, batch, head = clients.classes, clients.features, clients.batch, clients.get_head(0)
    torch.manual_seed(key(clients.seed, "start generator"))
    layers = nn.Linear(NOISE + classes, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, width)
    server = nn.Sequential(*layers).train()
    counts: dict[int, Tensor] = {}

    def make(network: nn.Module, noise: Tensor, y: Tensor) -> Tensor:
        return network(torch.cat([noise, one_hot(y, classes)], 1))

    for t in range(ROUNDS):
        received, pooled, losses, heads = deepcopy(server), sum(counts.values()), {}, {}
        for i in clients.participants(t):
            clients.set_head(i, head)

            def generated(logits: Tensor, y: Tensor, i=i, received=received, pooled=pooled) -> Tensor:
                y = torch.multinomial(pooled.double(), batch, replacement=True)
                z = make(received, torch.rand(batch, NOISE), y).detach()
                return cross_entropy(clients.networks[i].head(z), y)

            losses[i] = clients.train(t, i, generated if t else None)
            heads[i] = clients.get_head(i)
            counts[i] = torch.bincount(clients.train_data[i][1], minlength=classes)
        total = sum(map(clients.samples, heads))
        share = {i: clients.samples(i) / total for i in heads}
        head = [sum(share[i] * heads[i][p] for i in heads) for p in range(2)]
        adam = torch.optim.Adam(server.parameters(), 0.1)
        rng, pooled = generator(clients.seed, "generator", t), sum(counts.values()).numpy()
        labels = torch.from_numpy(rng.choice(classes, (STEPS, batch), p=pooled / pooled.sum()))
        noise = torch.from_numpy(rng.random((STEPS, batch, NOISE), dtype=np.float32))
        for step in range(STEPS):
            z = make(server, noise[step], labels[step])
            logits = sum(share[i] * linear(z, *heads[i]) for i in heads)
            adam.zero_grad()
            cross_entropy(logits, labels[step]).backward()
            adam.step()
        assert_close(log["/round/loss"][t], clients.round_loss(losses))
        assert_close(log["/client/accuracy_trained"][t], clients.accuracy())
        assert_close(log["/client/accuracy_head"][t], clients.accuracy(head))
        *parameters, sent_counts = sent[t + 1]
        assert sent_counts.tolist() == pooled.tolist()
        for found, expected in zip(parameters, [*head, *server.parameters()], strict=True):
            if expected is not layers[0].bias:  # batch-norm removes it, so that its gradient is only rounding
                np.testing.assert_allclose(
                    found, expected.detach(), rtol=0, atol=1e-3
                )  # Adam magnifies rounding


LOW = ("6", "net.4", "5")
"""The lower level of cnn_femnist, resnet4 and cnn, which clients have in turn."""
WIDTH = 20
"""Of cnn_femnist's lower level at 16×16, the narrowest."""


def contrast(z: Tensor, anchor: Tensor, y: Tensor) -> Tensor:
    """The supervised contrastive loss at temperature 0.5, anchor by anchor."""
    rows, labels, total = [*z, *anchor], [*y.tolist()] * 2, torch.zeros(())
    for a in range(len(rows)):
        others = [b for b in range(len(rows)) if b != a]
        log_sum = torch.stack([rows[a] @ rows[b] / 0.5 for b in others]).logsumexp(0)
        positives = [rows[a] @ rows[b] / 0.5 - log_sum for b in others if labels[b] == labels[a]]
        total = total - torch.stack(positives).mean()
    return 0.5 / 0.07 * total / len(rows)


def test_fedmps(both, sent):
    log, clients = both("method.name=fedmps", "method.server_epochs=2", "method.server_lr=0.01")
    level: dict[str, Tensor] = {}
    """Both levels of the last batch; the lower one pooled to the width of the narrowest network."""

    def unit(name: str) -> Tensor:
        z = level[name].flatten(1)
        return normalize(z if name == "high" else adaptive_avg_pool1d(z[:, None], WIDTH)[:, 0])

    for i, network in enumerate(clients.networks):
        for name, layer in (("high", ""), ("low", LOW[i % 3])):
            network.extractor.get_submodule(layer).register_forward_hook(
                lambda _, __, output, name=name: level.update({name: output})
            )
    server = deepcopy(clients.networks[0].head)
    known: dict[str, dict[int, Tensor]] = {"high": {}, "low": {}, "soft": {}}

    def terms(logits: Tensor, y: Tensor) -> Tensor:
        total = torch.zeros(())
        for weight, name in ((1.0, "high"), (0.2, "low")):
            z = unit(name)
            anchors = [known[name].get(label, row.detach()) for row, label in zip(z, y.tolist(), strict=True)]
            total = total + weight * contrast(z, torch.stack(anchors), y)
        for row, label in zip(logits, y.tolist(), strict=True):
            if label in known["soft"]:
                soft = (known["soft"][label] / 5).softmax(0)
                total = total + 5 / len(y) * kl_div((row / 5).log_softmax(0), soft, reduction="sum")
        return total

    for t in range(ROUNDS):
        losses, uploads, inputs = {}, defaultdict(lambda: defaultdict(list)), []
        for i in clients.participants(t):
            seen: list[tuple[Tensor, Tensor, Tensor]] = []
            losses[i] = clients.train(
                t,
                i,
                terms if t else None,
                lambda _, y, seen=seen: seen.append((unit("high").detach(), unit("low").detach(), y)),
            )
            high, low, y = (torch.cat(parts) for parts in zip(*seen[len(seen) // 2 :], strict=True))
            for label in sorted(set(y.tolist())):
                uploads["high"][label].append(high[y == label].mean(0))
                uploads["low"][label].append(low[y == label].mean(0))
                inputs.append((uploads["high"][label][-1], label))
        z, y = torch.stack([row for row, _ in inputs]), torch.tensor([label for _, label in inputs])
        adam = torch.optim.Adam(server.train().parameters(), 0.01)
        torch.manual_seed(key(clients.seed, "classifier", t))  # dropout
        for epoch in range(2):
            order = generator(clients.seed, "server shuffle", t, epoch).permutation(len(y))
            for which in torch.from_numpy(order).split(4):
                adam.zero_grad()
                cross_entropy(server(z[which]), y[which]).backward()
                adam.step()
        with torch.no_grad():
            logits = server.eval()(z)
        for label in set(y.tolist()):
            uploads["soft"][label] = [*logits[y == label]]
        for name, by_label in uploads.items():
            known[name] |= {label: torch.stack(rows).mean(0) for label, rows in by_label.items()}
        assert_close(log["/round/loss"][t], clients.round_loss(losses))
        assert_close(log["/client/accuracy_head"][t], clients.accuracy())
        for part, name in enumerate(("high", "low", "soft")):
            value, present = sent[t + 1][2 * part : 2 * part + 2]
            assert np.flatnonzero(present).tolist() == sorted(known[name])
            for label, row in known[name].items():
                np.testing.assert_allclose(
                    value[label], row, rtol=1e-3 if name == "soft" else 1e-5, atol=1e-5
                )
