"""Runs that must give the same bits on any number of ranks, and how results are compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hpcfl.data.prepare import prepare
from hpcfl.engine.launch import launch_train
from hpcfl.methods.catalogue import CATALOGUE
from tests.helpers import layouts
from tests.helpers.runs import SMALL

SAVED = [*SMALL, "log.prototypes_every=2"]

FEW = ["data.samples_per_class=200", "federation.rounds=3", "models.features=8", "federation.participation=2"]
"""So few participants that classes are absent from a round."""
KSHOT = [
    *("method.name=fedsap-ssl", "method.semi=2", "method.curriculum_start=1", "method.curriculum_end=3"),
    *("partition.name=nway_kshot", "partition.shots=9", "partition.unlabelled=9", "method.own_classes=true"),
]
"""Few labelled samples, a few unlabelled ones that are used after two rounds."""
METHODS = tuple(CATALOGUE)
ONE_NETWORK = ["models.list=['mlp_256']"]
"""For methods that average whole networks."""
OWN = {
    **{name: ["method.server_epochs=3"] for name in METHODS if "tgp" in name},
    **{name: ONE_NETWORK for name in METHODS if CATALOGUE[name].equal_networks},
    "fedsap": ["method.curriculum_start=1", "method.curriculum_end=3"],
    "fedsap-ssl": [*KSHOT, "method.semi=1"],
}
"""What some methods need beside their name."""

VALIDATION = [
    *("partition.validation_fraction=0.2", "log.train_accuracy=true", "log.evaluate_every=2"),
    *("log.features_at=[1, 3]", "log.features_per_class=3"),
]
"""Everything that is measured on request."""

DEVICES = [
    *("system.speed={median=10.0, sigma=0.6}", "system.watts=4.0", "system.radio_watts=2.0"),
    "system.down={median=36.0, sigma=0.8}",
]
"""Devices of no profile, because the numbers of a profile may change, and with them what is kept."""

HABITS = [
    *(*FEW, "method.name=fedtgp", "method.server_epochs=3", "method.prototypes=before", "train.epochs=2"),
    *("train.shuffle=false", "train.drop_last=true", "train.batch_size=5"),
]
"""Habits of the code published with FedTGP."""

WAYS = {
    "pinned": ["runtime.placement=pinned"],
    "mapped": ["runtime.arena=mapped"],
    "private": ["runtime.arena=private"],
    "nodes": ["runtime.pretend_nodes=3"],
}
"""Other ways to do the same run."""

CASES = {
    "full": SAVED,
    "partial": [
        *SAVED,
        "federation.participation=0.3",
        "method.aggregate=mean",
        "log.evaluate_every=3",
        "train.epochs=2",
        "train.momentum=0.5",
    ],
    "few": [*SAVED, "federation.participation=2", "method.prototypes=running", "method.forget=true"],
    "iid": [*SAVED, "method.name=local", "partition.name=iid"],
    "rare": [
        *SAVED,
        "federation.participation=0.2",
        "federation.clients=30",
        "log.evaluate_every=2",
        "partition.alpha=1.0",
    ],
    "images": [
        *("data.name=tiny", "federation.clients=6", "federation.rounds=3", "models.features=8"),
        *("partition.name=pathological", "partition.classes_per_client=3"),
        "train.augment=['crop', 'flip', 'randaugment']",
    ],
    "networks": [
        *("data.name=tiny", "federation.clients=5", "federation.rounds=2", "models.features=64"),
        "models.list=['resnet10', 'cnn_femnist', 'efficientnet_b0']",  # batch-norm, dropout, stochastic depth
        *("models.head=htc4", "train.batch_size=7", "train.momentum=0.5", "partition.name=iid"),
    ],
    "published networks": [
        *("data.name=tiny", "federation.clients=4", "federation.rounds=2", "models.features=64"),
        *("models.list=['cnn', 'googlenet', 'mobilenet_v2', 'efficientnet_b0']", "models.style=published"),
        *("models.head=htc4", "train.batch_size=7", "partition.name=iid"),
    ],
    "plain": [
        *("data.name=tiny", "federation.clients=3", "federation.rounds=2", "models.features=64"),
        *("models.list=['cnn_femnist', 'resnet4']", "partition.name=iid", "runtime.step=plain"),
    ],
    "bfloat16": [
        *("data.name=tiny", "federation.clients=3", "federation.rounds=2", "models.features=64"),
        *("models.list=['cnn_femnist', 'resnet4']", "partition.name=iid", "runtime.precision=bfloat16"),
    ],
    "adamw": [
        *("data.name=tiny", "federation.clients=4", "federation.rounds=3", "models.features=64"),
        *("models.list=['cnn_femnist', 'resnet8']", "partition.name=iid", "federation.participation=0.5"),
        *("train.optimizer=adamw", "train.lr=0.001", "train.weight_decay=0.1"),
        *("train.lr_schedule=cosine", "train.lr_rounds=3"),
    ],
    "clipped": [*SAVED, "train.clip_norm=0.5", "train.weight_decay=0.01", "federation.rounds=2"],
    "fml on images": [
        *("data.name=tiny", "federation.clients=5", "federation.rounds=3", "models.features=64"),
        *("models.list=['cnn_femnist', 'resnet4']", "partition.name=iid", "federation.participation=0.6"),
        *("method.name=fml", "method.auxiliary=resnet6", "method.clip_norm=0.0", "train.momentum=0.5"),
    ],
    "fedkd on images": [
        *("data.name=tiny", "federation.clients=5", "federation.rounds=3", "models.features=64"),
        *("models.list=['cnn_femnist', 'resnet4']", "partition.name=iid", "federation.participation=0.6"),
        *("method.name=fedkd", "method.auxiliary=cnn", "method.energy_start=0.3", "method.energy_rounds=4"),
    ],
    **{name: [*FEW, f"method.name={name}", *OWN.get(name, [])] for name in METHODS},
    "simplex in the plane": [*FEW, "method.name=simplex", "models.features=2"],  # Thomson and L-BFGS
    "anchor with shared dimensions": [*FEW, "method.name=anchor", "models.features=4"],
    "sparse thomson": [*FEW, "method.name=protonorm", "method.sparsity=0.5", "method.aggregate=ppa"],
    "unlabelled images": [
        *("data.name=tiny", "federation.clients=6", "federation.participation=0.5", "models.features=16"),
        *("federation.rounds=5", "models.list=['cnn_femnist', 'resnet4']", "train.batch_size=8"),
        *(*KSHOT, "partition.ways=2", "partition.shots=5", "partition.unlabelled=8"),
        *("train.momentum=0.5", "method.proxy_scale=8.0"),
    ],
    "networks that travel": [
        *("method.name=tests.helpers.toy_algorithm:Toy", "models.list=['mlp_256']", *FEW),
        *("federation.rounds=4", "train.lr=0.1"),
    ],
    "networks with buffers": [
        *("data.name=tiny", "federation.clients=5", "federation.rounds=3", "federation.participation=0.6"),
        *("models.list=['resnet4']", "models.features=16", "partition.name=iid", "method.name=fedavg"),
        *("method.buffers=true", "method.weighted=false", "method.first_download=false"),
        *("train.momentum=0.5", "train.batch_size=8"),
    ],
    "prototypes as heads": [
        *("data.name=tiny", "federation.clients=4", "federation.rounds=3", "federation.participation=0.5"),
        *("models.list=['cnn_femnist']", "models.features=2", "method.name=fednh"),  # dropout, K > d
        *("partition.name=pathological", "partition.classes_per_client=2"),
    ],
    "clients that recover": [
        *(*FEW, *ONE_NETWORK, "method.name=tests.helpers.toy_algorithm:Unlucky"),
        *("federation.participation=0.6", "federation.rounds=4"),
    ],
    "heads of one's own": [*FEW, "method.name=tests.helpers.toy_algorithm:Mix", "federation.rounds=4"],
    **{
        f"validation, {name}": [*FEW, *VALIDATION, f"method.name={method}"]
        for name, method in (("prototypes", "fedproto"), ("heads", "tests.helpers.toy_algorithm:Mix"))
    },
    "validation, networks": [
        *(*FEW, *VALIDATION, "method.name=tests.helpers.toy_algorithm:Toy", "models.list=['mlp_256']")
    ],
    "deadline": [
        *(*FEW, "federation.participation=6", "federation.rounds=5", "method.aggregate=ppa"),
        *(*DEVICES, "system.latency={median=1.0, sigma=1.0}", "system.up={median=11.0, sigma=0.8}"),
        *("system.deadline=0.8", "system.failure=0.2", "system.availability=0.8", "system.late=keep"),
    ],
    "over-selection": [
        *(*FEW, "federation.participation=4", "federation.rounds=4", "method.name=fedkd", "system.extra=3"),
        *(*DEVICES, "system.latency=0.04", "system.up={median=1.0, sigma=1.0}", "system.late=keep"),
    ],
    "late uploads dropped": [
        *(*FEW, "federation.participation=5", "federation.rounds=5", "method.name=fedgen"),
        *(*DEVICES, "system.latency={median=1.0, sigma=1.0}", "system.up={median=11.0, sigma=0.8}"),
        *("system.deadline=2.0", "system.extra=3", "system.failure=0.1", "system.late=drop"),
    ],
    "diverging": [*SAVED, "federation.clients=3", "train.lr=1e30", "federation.rounds=2"],
}

STUDY = """
[set]
data.samples_per_class = 200
federation.rounds = 4
models.features = 8
log.prototypes_every = 2
[[block]]
name = "ranks"
grid.ranks = [1, 2, 3, 999]
[[block]]
name = "other"
cells = [{train.lr = 1e30}, {train.lr = 0.01}, {partition.name = "pathological", train.lr = 0.1}]
set.partition.classes_per_client = 9
"""
"""The case `full` on several numbers of ranks; a cell that diverges, one that is refused."""


FEW_RANKS = 5
MANY_RANKS = ("full", "partial", "few", "iid", "rare", "images", "networks", "diverging")
"""On more ranks than a few, all runs would take too long."""


def runs(ranks: int) -> dict[str, list[str]]:
    """Returns the settings of every run on so many ranks."""
    cases = {name: settings for name, settings in CASES.items() if ranks <= FEW_RANKS or name in MANY_RANKS}
    return cases | {way: [*CASES["rare"], *settings] for way, settings in WAYS.items()}


def prepare_images(root: Path) -> None:
    """Prepares the dataset `tiny` that some of the cases train on."""
    x, y = layouts.images(180, 16), np.arange(180) % 5
    np.savez(root / "tiny.npz", x=x, y=y)
    assert list(prepare("tiny", str(root / "tiny.npz"), str(root)))


def run_cases(directory: Path, root: Path) -> dict[str, int]:
    """Runs all cases in this process, one log each, and returns their exit codes."""
    return {
        name: launch_train(None, [*settings, f"data.root={root}"], str(directory / f"{name}.h5"), False)
        for name, settings in CASES.items()
    }
