"""Whole runs of LG-FedAvg, FedGH and FedDistill: bytes, heads, absent and diverged clients, bad options."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from hpcfl.algorithms.build import build_algorithm
from hpcfl.config.loading import load_config
from hpcfl.data.prepare import prepare
from hpcfl.data.split_file import write_split
from hpcfl.engine.worker import Worker
from hpcfl.exchange import codec
from hpcfl.exchange.payload_tensors import is_finite
from hpcfl.federation.run_plan import plan_run
from hpcfl.models.network import build_on_meta
from hpcfl.training.local_client import LocalClient
from tests.helpers.cases import FEW, prepare_images
from tests.helpers.layouts import images
from tests.helpers.runs import options, train_log

NAMES = ("lg-fedavg", "fedgh", "feddistill")
HEADS = ("lg-fedavg", "fedgh")
"""The methods whose server sends a head."""
each = pytest.mark.parametrize("name", NAMES)
each_with_a_head = pytest.mark.parametrize("name", HEADS)


@pytest.fixture
def run(hpcfl):
    """Returns `run(method, *settings)`: trains for three rounds with few participants and reads the log."""
    return lambda name, *settings: train_log(hpcfl, *FEW, f"method.name={name}", *settings)


# --- bytes

CLIENTS, CLASSES, FEATURES = 20, 100, 512
NUMBERS = {
    "lg-fedavg": 2_052_000,  # 40 (K d + K)
    "feddistill": 289_000,  # K (Σ K_i + 20 K)
    "fedgh": 1_481_680,  # Σ K_i d + 20 (K d + K)
    "fedproto": 1_479_680,  # (Σ K_i + 20 K) d
    "fedtgp": 1_479_680,
    "fedgen": 8_687_520,  # 40 (K d + K) + 20 · 331,776 of the generator
}
"""Numbers up and down in a round with K = 100, d = 512, Σ K_i = 890."""
MASK, BITMAP, SAMPLES = 8, 16, 8
"""Bytes of a message beside the numbers, padded to 8: which arrays it has, which classes, n_i."""
BESIDE = {
    "lg-fedavg": (SAMPLES, 0),
    "feddistill": (BITMAP, BITMAP),
    "fedgh": (BITMAP, 0),
    "fedgen": (8 * CLASSES, 0),
}
"""Of an upload and of a download, beside the mask; those of prototypes have a bitmap in both, those of fedgen
the samples of each class in an upload."""


@pytest.fixture
def messages(monkeypatch) -> list[int]:
    """The lengths of all messages, in the order in which they are encoded."""
    found: list[int] = []
    encode = codec.Codec.encode

    def counting(self, payload, room=0):
        message = encode(self, payload, room)
        found.append(message.nbytes - room)
        return message

    monkeypatch.setattr(codec.Codec, "encode", counting)
    return found


def prepare_890(root) -> None:
    """Prepares 3 × 3 images, and a split with 44 or 45 of 100 classes per client, one sample of each."""
    owned = [np.arange(44 + i % 2) + 5 * i for i in range(CLIENTS)]
    assert sum(map(len, owned)) == 890
    y = np.concatenate([*owned, np.arange(CLASSES)]) % CLASSES
    np.savez(root / "many.npz", x=images(len(y), 3, 1), y=y)
    list(prepare("many", str(root / "many.npz"), str(root)))
    starts = np.cumsum([0, *map(len, owned)])
    test = np.arange(890, len(y))
    split = [(np.arange(starts[i], starts[i + 1]), test[i : i + 1], test[:0]) for i in range(CLIENTS)]
    write_split(root / "split.npz", split)


@pytest.mark.parametrize("name", NUMBERS)
def test_bytes_of_a_round_are_those_of_its_messages_and_of_the_plan(hpcfl, tmp_path, messages, name):
    prepare_890(tmp_path)
    settings = [
        *("data.name=many", "data.root=.", "partition.file=split.npz", "models.list=['mlp_64', 'mlp_256']"),
        *(f"models.features={FEATURES}", "federation.rounds=2", f"method.name={name}"),
        *(["method.server_epochs=1"] if name == "fedtgp" else []),
    ]
    log = train_log(hpcfl, *settings)
    assert (log["/clients/class_counts"] > 0).sum() == 890
    nbytes = log["/round/bytes_up"][1] + log["/round/bytes_down"][1]
    assert nbytes == 4 * NUMBERS[name]

    uploads, downloads = messages[CLIENTS + 2 : -1], [messages[0], messages[CLIENTS + 1], messages[-1]]
    assert len(uploads) == CLIENTS
    up, down = BESIDE.get(name, (BITMAP, BITMAP))
    sent = sum(uploads) + CLIENTS * downloads[1]
    assert sent == nbytes + CLIENTS * (MASK + up + MASK + down)

    planned = json.loads(hpcfl("plan", "-n", 3, "--json", *options(*settings)).output)
    assert [planned["bytes_up"], planned["bytes_down"]] == [
        log["/round/bytes_up"][1],
        log["/round/bytes_down"][1],
    ]


@each
def test_bytes_with_few_participants(run, name):
    """The head goes to all clients, also before the first round; logits go to participants."""
    log = run(name)
    who, owned = log["/round/participants"], log["/clients/class_counts"] > 0
    classes, features = owned.shape[1], 8
    head, present = classes * features + classes, [owned[each].any(0).sum() for each in who]
    owned_by_participants = np.array([owned[each].sum() for each in who])
    up = {"lg-fedavg": 2 * head, "fedgh": owned_by_participants * features}
    assert (log["/round/bytes_up"] == 4 * up.get(name, owned_by_participants * classes)).all()
    logits = [2 * rows * classes for rows in [0, *present[:-1]]]
    assert log["/round/bytes_down"].tolist() == [4 * (20 * head if name in HEADS else n) for n in logits]


# --- heads


@each_with_a_head
@pytest.mark.parametrize("setting", ["models.head=htc4", "models.group=mlp4-htc4"])
def test_different_heads_are_refused(hpcfl, name, setting):
    done = hpcfl("train", *options(*FEW, f"method.name={name}", setting))
    assert (done.exit_code, done.output) == (
        2,
        f"hpcfl: method.name = {name!r}: has one head for all clients, but these have linear, mlp128, "
        "mlp256, mlp512 (models.head)\n",
    )


@each
def test_equal_heads_of_several_layers(run, name):
    log = run(name, "models.head=mlp128")
    assert log.status == "finished"
    if name == "lg-fedavg":
        head = 8 * 128 + 128 + 128 * 6 + 6
        assert (log["/round/bytes_up"] == 4 * 2 * head).all()


def test_feddistill_with_different_heads(run):
    log = run("feddistill", "models.head=htc4", "federation.participation=1.0")
    assert len({name.partition("/")[2] for name in log["/clients/architecture"]}) == 4
    assert (log["/round/loss_distill"][1:] > 0).all()
    assert np.isnan(log["/round/loss_distill"][0])


@each_with_a_head
@pytest.mark.parametrize("architectures", [("cnn", "cnn_femnist"), ("cnn_femnist", "cnn")])
def test_heads_whose_parameters_have_other_names(hpcfl, tmp_path, name, architectures):
    """One of the networks has dropout before its head; all clients start with the head of client 0."""
    heads = [build_on_meta(each, (3, 16, 16), 5, 16).head.state_dict() for each in architectures]
    assert not heads[0].keys() & heads[1].keys()
    prepare_images(tmp_path)
    log = train_log(
        hpcfl,
        *("data.name=tiny", "data.root=.", "partition.name=iid", "federation.clients=3"),
        *("federation.rounds=1", "models.features=16", f"models.list={list(architectures)}"),
        *("train.lr=1e-12", f"method.name={name}"),
    )
    [norms] = log["/client/head_norms"]
    assert (norms > 0).all()
    np.testing.assert_allclose(norms, norms[[0, 0, 0]], rtol=1e-6)


# --- evaluation


@each_with_a_head
def test_the_accuracy_is_that_of_the_sent_head_or_of_the_trained_one(run, name):
    after, before = run(name), run(name, "method.infer=trained")
    for log, infer in ((after, "head"), (before, "trained")):
        assert (log["/client/accuracy"] == log[f"/client/accuracy_{infer}"]).all()
    for path in ("/client/accuracy_head", "/client/accuracy_trained", "/round/loss"):
        assert (after[path] == before[path]).all()
    assert (after["/client/accuracy_head"] != after["/client/accuracy_trained"]).any()


@each
def test_evaluation_every_second_round_changes_nothing_else(run, name):
    every, some = run(name), run(name, "log.evaluate_every=2")
    assert np.isnan(some["/round/accuracy"]).tolist() == [True, False, False]
    assert (every["/round/loss"] == some["/round/loss"]).all()
    for path in ("/client/accuracy_head", *(["/client/accuracy_trained"] if name in HEADS else [])):
        assert (every[path][1:] == some[path][1:]).all()


# --- clients that diverge


@each
def test_a_client_that_diverges_is_left_out(run, monkeypatch, name):
    train, receive, downloads = LocalClient.train, Worker.receive, []

    def diverging(self, *arguments):
        losses = train(self, *arguments)
        return losses | {"loss": np.nan} if (self.id, self.round) == (3, 1) else losses

    def recording(self, download):
        downloads.append(download)
        receive(self, download)

    monkeypatch.setattr(Worker, "receive", recording)
    monkeypatch.setattr(LocalClient, "train", diverging)
    log = run(name, "federation.participation=1.0")
    assert log["/client/diverged"].sum(1).tolist() == [0, 1, 1]
    assert log["/client/diverged"][1:, 3].all()
    assert log["/round/uploads"].tolist() == [20, 19, 19]
    assert (log["/client/accuracy_head"][1:, 3] == 0).all()
    assert all(map(is_finite, downloads))
    assert log["/round/accuracy"][-1] > 0
    if name in HEADS:
        assert (log["/client/accuracy_trained"][1:, 3] == 0).all()
        head = 4 * (6 * 8 + 6)
        assert log["/round/bytes_down"].tolist() == [20 * head, 20 * head, 19 * head]


@each
def test_all_clients_diverge(hpcfl, name):
    settings = (*FEW, f"method.name={name}", "train.lr=1e30", "federation.participation=1.0")
    done = hpcfl("train", "--out", "run.h5", *options(*settings))
    assert done.exit_code == 1
    assert "Traceback" not in done.output
    assert "diverged" in done.output


@each
def test_without_uploads_the_last_download_stays(name):
    plan = plan_run(load_config(None, [*FEW, f"method.name={name}"]))
    algorithm = build_algorithm(plan, torch.device("cpu"))
    last = algorithm.initial()
    assert algorithm.aggregate(1, last, []) is last


# --- options


def test_the_servers_batch_may_differ_from_the_clients(run):
    """FedGH's server takes one step for each batch of uploaded prototypes in an epoch."""
    log = run("fedgh", "method.server_batch=2", "method.server_epochs=3")
    owned_M, who_TM = (log["/clients/class_counts"] > 0).sum(1), log["/round/participants"]
    uploads_T = [owned_M[who_M].sum() for who_M in who_TM]
    assert log["/refine/iterations"].tolist() == [3 * -(-uploads // 2) for uploads in uploads_T]
    assert run("fedgh")["/refine/iterations"].tolist() == [1, 1, 1], "all uploads are one batch of 32"


BAD = {
    ("feddistill", "method.term=foo"): "method.term = 'foo': allowed is 'mse', 'softmax' or 'logits'",
    ("feddistill", "method.weight=-1"): "method.weight = -1: must be greater than or equal to 0",
    ("feddistill", "method.infer=trained"): "method.infer = 'trained': method 'feddistill' has no such",
    ("feddistill", "method.forget=true"): "method.forget = True: 'feddistill' has no such option",
    ("fedgh", "method.refine=tgp"): "method.refine = 'tgp': 'fedgh' has no such option",
    ("fedgh", "method.server_epochs=0"): "method.server_epochs = 0: must be greater than or equal to 1",
    ("fedgh", "method.server_lr=0"): "method.server_lr = 0: must be greater than 0",
    ("fedgh", "method.server_lrr=1"): "unknown key method.server_lrr (nearest: method.server_lr)",
    ("fedgh", "log.distances=true"): "log.distances = true: method 'fedgh' has none",
    ("lg-fedavg", "log.local_prototypes=true"): "log.local_prototypes = true: method 'lg-fedavg' has none",
    ("lg-fedavg", "method.infer=global"): "method.infer = 'global': method 'lg-fedavg' has no such inference",
    ("lg-fedavg", "method.weight=2.0"): "method.weight = 2.0: 'lg-fedavg' has no such option",
    ("lg-fedavg", "method.server_epochs=2"): "method.server_epochs = 2: 'lg-fedavg' has no such option",
}


@pytest.mark.parametrize(("name", "setting"), BAD)
def test_bad_options_are_one_sentence(hpcfl, name, setting):
    done = hpcfl("train", f"--set=method.name={name}", f"--set={setting}")
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert BAD[name, setting] in done.output


def test_options_change_the_training(run):
    losses = {
        setting: run("feddistill", setting)["/round/loss"].tolist()
        for setting in ("method.weight=0.0", "method.weight=1.0", "method.term=softmax", "method.weight=0.5")
    }
    assert losses["method.weight=0.0"] == run("local")["/round/loss"].tolist()
    assert len({tuple(loss) for loss in losses.values()}) == 4
    steps = [run("fedgh", f"method.server_epochs={n}")["/refine/iterations"].tolist() for n in (1, 3)]
    assert steps[1] == [3 * n for n in steps[0]]
