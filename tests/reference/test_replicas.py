"""Every method against its replica: what the server sends, losses and accuracies of all clients, to 1e-5.

Three rounds with half of the clients; a class is absent from a round, and a label has no prototype yet.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hpcfl.engine.worker import Worker
from tests.helpers.cases import prepare_images
from tests.helpers.runs import train_log
from tests.reference.baselines import FedDistill, FedGh, LgFedAvg
from tests.reference.federation import Federation, Replica
from tests.reference.fedgen import FedGen
from tests.reference.fedmps import FedMps
from tests.reference.fedorgp import FedOrgp
from tests.reference.fedproto import FedProto, Local
from tests.reference.fedsap import FedSap
from tests.reference.fedsap_ssl import FedSapSsl
from tests.reference.fedtgp import FedTgp
from tests.reference.mutual import FedKd, Fml
from tests.reference.networks import FedAvg, FedNh, FedUv
from tests.reference.protonorm import ProtoNorm, align
from tests.reference.simplex import Anchor, Simplex
from tests.reference.sparse import Sparse, SparseTgp, read_masks

TOLERANCE = 1e-5
SETTINGS = [
    *("seed=21", "data.name=tiny", "data.root=.", "federation.clients=6", "federation.rounds=3"),
    *("federation.participation=0.5", "partition.name=pathological", "partition.classes_per_client=2"),
    *("models.list=['mlp_64', 'mlp_32x3', 'mlp_256']", "models.features=16"),
    *("train.batch_size=5", "log.prototypes_every=1"),
]
NETWORKS = [
    "models.list=['cnn_femnist', 'resnet4', 'cnn']",  # dropout, batch-norm, neither
    "runtime.step=plain",
]
"""Steps are torch's own: with so many ReLUs, another order of sums would switch one on or off by rounding."""
TWO_EPOCHS = [*NETWORKS, "train.epochs=2"]
ONE_NETWORK = ["models.list=['mlp_64']"]
BATCH_NORM = ["models.list=['resnet4']", "runtime.step=plain", "train.epochs=2"]
FEW_LABELS = [
    *NETWORKS,
    *("partition.name=nway_kshot", "partition.ways=2", "partition.shots=5", "partition.unlabelled=8"),
    *("train.momentum=0.5", "train.epochs=2"),
]
HABITS = ["train.shuffle=false", "train.drop_last=true"]
"""Of the code published with FedTGP: batches are the same in every epoch."""
SLOW = ["train.lr=0.001"]
"""For large λ and γ: with 0.01 and so little data, rounding errors grow from batch to batch."""
ADAMW = [
    *("train.optimizer=adamw", "train.lr=0.0001", "train.momentum=0.0", "train.weight_decay=0.1"),
    *("train.lr_schedule=cosine", "train.lr_rounds=4"),
]
"""Another optimiser of the clients; at a larger rate Adam makes rounding errors of small gradients large."""
PRINTED = {"distance": "euclid", "class_weights": "balanced", "initial": "random"}
"""As papers print it, and published code does not."""
SOLVER = {
    "solver_lr": 0.05,
    "solver_momentum": 0.8,
    "solver_decay": 0.9,
    "solver_decay_every": 7,
    "solver_patience": 5,
}
DIVERGING = [
    *("seed=23", "federation.clients=5", "federation.participation=3", "federation.rounds=2"),
    "partition.classes_per_client=1",
]
"""Client 0 diverges in round 2: no other of that round has a class that was uploaded in round 1."""

REPLICAS: dict[str, Callable[..., Replica]] = {
    "local": Local,
    "fedproto": FedProto,
    "protonorm": ProtoNorm,
    "fedtgp": FedTgp,
    "fedtgp-scl": partial(FedTgp, margin="none"),
    "fedtgp-fm": partial(FedTgp, margin="fixed"),
    "fedtgp-without-f": partial(FedTgp, server_network=False),
    "fedorgp": FedOrgp,
    "fedorgp-without-or": partial(FedProto, aggregate="weighted", distance="cosine"),
    "fedproto-sparse": Sparse,
    "fedtgp-sparse": SparseTgp,
    "fedsap": FedSap,
    "fedsap-ssl": FedSapSsl,
    "simplex": Simplex,
    "simplex-fixed": partial(Simplex, anchor="seed"),
    "anchor": Anchor,
    "anchor-fixed": partial(Anchor, anchor="seed"),
    "lg-fedavg": LgFedAvg,
    "fedgh": FedGh,
    "feddistill": FedDistill,
    "fedgen": FedGen,
    "fedmps": FedMps,
    "fml": Fml,
    "fedkd": FedKd,
    "fedavg": FedAvg,
    "feduv": FedUv,
    "fednh": FedNh,
}


@dataclass(frozen=True)
class Case:
    """A method, its options, with the same names in [method] and in the replica, and further settings."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    settings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return " ".join([self.name, *map(str, self.options.values())])

    @property
    def method(self) -> list[str]:
        values = {
            key: str(value).lower() if isinstance(value, bool) else value
            for key, value in self.options.items()
        }
        return [f"method.name={self.name}", *(f"method.{key}={value}" for key, value in values.items())]


CASES = [
    Case("local", {}, NETWORKS),
    Case("fedproto"),
    Case("fedproto", {"weight": 1.0}, TWO_EPOCHS),
    Case("fedproto", {"aggregate": "weighted"}),
    Case("fedproto", {"aggregate": "weighted-literal"}),
    Case("fedproto", {"distance": "euclid"}),
    Case("fedproto", {"distance": "sq", "weight": 0.1}),
    Case("fedproto", {"distance": "cosine"}, SLOW),
    Case("fedproto", {"prototypes": "running", "forget": True, "own_classes": True}, ["train.epochs=2"]),
    Case("fedproto", {"prototypes": "before"}, [*TWO_EPOCHS, *HABITS]),
    Case("protonorm", {}, SLOW),
    Case("protonorm", {"stopping": "whole"} | SOLVER, SLOW),
    Case("protonorm", {"iterations": 15} | PRINTED),
    Case("fedtgp"),
    Case("fedtgp", {"margin": "max-pair", "server_epochs": 9} | PRINTED),
    Case("fedtgp", {"tau": 0.01, "scale": 2.0, "server_epochs": 9, "server_lr": 0.1, "server_batch": 3}),
    Case("fedtgp", {"prototypes": "before"}, HABITS),
    Case("fedtgp-scl", {"server_epochs": 9}),
    Case("fedtgp-fm", {"server_epochs": 9}),
    Case("fedtgp-without-f", {"server_epochs": 9}),
    Case("fedorgp"),
    Case("fedorgp", {"initial": "random"}),
    Case("fedorgp-without-or", {}, SLOW),
    Case("fedproto-sparse"),
    Case("fedproto-sparse", {"sparsity": 0.4, "masked": "loss", "class_weights": "per-class"}),
    Case("fedproto-sparse", {"weight": 1e4}, DIVERGING),
    Case("fedtgp-sparse", {"server_epochs": 9}),
    Case("fedsap", {"curriculum_start": 0, "curriculum_end": 4}),
    Case("fedsap", {"curriculum_start": 0, "curriculum_end": 4, "curriculum": "cosine"}),
    Case("fedsap", {"curriculum_start": 0, "curriculum_end": 4, "curriculum": "sigmoid"}),
    Case("fedsap", {"curriculum_start": 0, "curriculum_end": 4, "curriculum": "step"}),
    Case("fedsap-ssl", {"curriculum_start": 0, "curriculum_end": 4, "semi": 1}, FEW_LABELS),
    Case("simplex", {}, SLOW),
    Case("simplex", {"anchor": "first"}, SLOW),
    Case("simplex-fixed", {}, SLOW),
    Case("anchor", {}, SLOW),
    Case("anchor-fixed", {}, SLOW),
    Case("lg-fedavg", {}, NETWORKS),
    Case("fedgh", {}, NETWORKS),
    Case("feddistill", {}, NETWORKS),
    Case("feddistill", {"term": "softmax"}),
    Case("feddistill", {"term": "logits", "weight": 0.1}),
    Case("fedgen", {"noise": 3, "server_steps": 4, "server_lr": 1e-4}, NETWORKS),
    Case("fedmps", {"low_features": 20, "server_lr": 1e-4}, TWO_EPOCHS),
    Case("fedmps", {"low_features": 20, "server_lr": 1e-4, "own_classes": True}),
    Case("fml", {"auxiliary": "resnet4", "alpha": 0.3, "beta": 0.6, "clip_norm": 2.0}, TWO_EPOCHS),
    Case("fml", {"auxiliary": "cnn", "published": True}, [*TWO_EPOCHS, *HABITS]),
    Case(
        "fedkd", {"auxiliary": "cnn", "energy_start": 0.5, "energy_end": 0.9, "energy_rounds": 4}, TWO_EPOCHS
    ),
    Case("fedkd", {"auxiliary": "cnn", "published": True, "energy_start": 0.5, "clip_norm": 2.0}, TWO_EPOCHS),
    Case("fedavg", {}, ONE_NETWORK),
    Case("fedavg", {}, BATCH_NORM),
    Case("fedavg", {"weighted": False, "buffers": True, "first_download": False}, BATCH_NORM),
    Case("feduv", {}, ONE_NETWORK),
    Case("feduv", {"variance": 0.7, "uniformity": 1.5}, BATCH_NORM),
    Case("fednh", {}, ONE_NETWORK),
    Case("fednh", {"smoothing": 0.3, "scale": 20.0, "clip_norm": 0.5}, BATCH_NORM),
]


@pytest.fixture
def sent(monkeypatch) -> list[list[np.ndarray]]:
    """What the server sends, by broadcast: heads, or a row for every class and which rows there are."""
    found: list[list[np.ndarray]] = []
    original = Worker.receive

    def receive(self, download):
        values = [
            part
            for value in download.values()
            for part in ([value] if isinstance(value, Tensor) else [value.value_KD, value.present_K])
        ]
        found.append([value.numpy().copy() for value in values])
        original(self, download)

    monkeypatch.setattr(Worker, "receive", receive)
    return found


def difference(found: Any, expected: Any) -> float:
    """Returns the largest ‖a − b‖ / ‖b‖ of the rows of a matrix, else of the numbers; NaN equals NaN only."""
    a, b = (np.asarray(value, dtype=float) for value in (found, expected))
    assert a.shape == b.shape
    a, b = (value if value.ndim == 2 else value.reshape(-1, 1) for value in (a, b))
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
    norm, length = (np.linalg.norm(np.nan_to_num(value), axis=1) for value in (a - b, b))
    return float(np.max(norm / np.where(length > 0, length, 1), initial=0.0))


def rows(value: Any) -> np.ndarray:
    """Returns an array as a matrix: a vector is one row, a convolution has a row for every output."""
    array = np.asarray(value)
    return array.reshape(len(array) if array.ndim > 1 else 1, -1)


FIRST = {case.name: case for case in reversed(CASES)}
"""The first case of every method."""


@pytest.mark.parametrize("case", CASES, ids=str)
def test_method_agrees_with_its_replica(hpcfl, tmp_path, sent, case):
    assert_agree(hpcfl, tmp_path, sent, case)


@pytest.mark.parametrize("name", FIRST)
def test_method_agrees_with_its_replica_by_adamw(hpcfl, tmp_path, sent, name):
    case = FIRST[name]
    assert_agree(hpcfl, tmp_path, sent, Case(name, case.options, [*case.settings, *ADAMW]))


def assert_agree(hpcfl, tmp_path: Path, sent: list[list[np.ndarray]], case: Case) -> None:
    """Checks all rounds of a method against those of its replica."""
    prepare_images(tmp_path)
    settings = [*SETTINGS, *case.settings]
    log = train_log(hpcfl, *settings, *case.method)
    given = {"mask": read_masks(log["/prototypes/global"])} if "sparse" in case.name else {}
    replica = REPLICAS[case.name](Federation(settings), **case.options, **given)
    for t in range(-1, log.rounds_done):
        if t >= 0:
            replica.run_round(t)
            for path, value in replica.results().items():
                assert difference(log[path][t], value) < TOLERANCE, f"{path} in round {t + 1}"
        for number, value in enumerate(replica.sent()):
            assert difference(rows(sent[t + 1][number]), rows(value)) < TOLERANCE, f"sent after round {t + 1}"


@pytest.mark.parametrize("settings", [[], FEW_LABELS], ids=["supervised", "few labels"])
def test_classes_are_absent(tmp_path, monkeypatch, settings):
    """From round 1, so that a label has no prototype in round 2; and from round 2, so that one is stale."""
    monkeypatch.chdir(tmp_path)
    prepare_images(tmp_path)
    clients = Federation([*SETTINGS, *settings])
    first, second = (
        {j for i in clients.participants(t) for j in range(clients.classes) if clients.count(i, j)}
        for t in (0, 1)
    )
    assert second - first
    assert first - second


def test_every_method_has_a_replica_and_a_case(hpcfl):
    methods = hpcfl("catalog").output.split("\n\n")[0].splitlines()[1:]
    names = {line.split()[0] for line in methods if line[0] != " "}
    assert names == REPLICAS.keys() == {case.name for case in CASES}


def test_replicas_use_no_method_of_hpcfl():
    for path in Path(__file__).parent.glob("*.py"):
        nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        assert not [
            node for node in nodes if str(node.module).startswith(("hpcfl.methods", "hpcfl.algorithms"))
        ]


def test_published_stopping_rule_ends_after_21_iterations_with_100_classes():
    directions = torch.randn(100, 256, generator=torch.Generator().manual_seed(0)).double()
    assert align(directions, stopping="whole")[1] == 21
