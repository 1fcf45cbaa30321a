"""FML and FedKD: losses by hand, bytes, the auxiliary network, clients that diverge, bad options."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from hpcfl.algorithms.build import build_algorithm
from hpcfl.algorithms.mutual_learning import auxiliary_architecture, divergence
from hpcfl.config.loading import load_config
from hpcfl.data.prepare import prepare
from hpcfl.data.split_file import write_split
from hpcfl.exchange.codec import ClientUpload, Codec
from hpcfl.federation.participants import select_participants
from hpcfl.federation.run_plan import plan_run
from hpcfl.training.local_client import LocalClient
from hpcfl.training.step.step import BatchOutputs
from tests.helpers.cases import FEW, prepare_images
from tests.helpers.layouts import images
from tests.helpers.runs import options, train_log

NAMES = ("fml", "fedkd")
each = pytest.mark.parametrize("name", NAMES)


def algorithm_of(*settings: str):
    return build_algorithm(plan_run(load_config(None, [*FEW, *settings])), torch.device("cpu"))


# --- losses

P, Q = torch.tensor([0.5, 0.25, 0.25]), torch.tensor([0.2, 0.4, 0.4])
"""What the own network and the auxiliary one say about a sample of class 0."""


def kl(p: torch.Tensor, q: torch.Tensor) -> float:
    return sum(a * math.log(a / b) for a, b in zip(p.tolist(), q.tolist(), strict=True))


def outputs(p: torch.Tensor, z: list[float], copies: int = 2) -> BatchOutputs:
    """The outputs of a batch of equal samples."""
    logit_BK = p.log().repeat(copies, 1).requires_grad_()
    z_BD = torch.tensor([z] * copies).requires_grad_()
    return BatchOutputs(z_BD, logit_BK, torch.zeros(copies, dtype=torch.int64))


def test_the_divergence_by_hand():
    """0.4·ln(0.4/0.25)·2 + 0.2·ln(0.2/0.5) = 0.1927: per sample, and as published ÷ K."""
    assert kl(Q, P) == pytest.approx(0.192745, abs=1e-6)
    student, teacher = outputs(P, [0.0]).logit_BK, outputs(Q, [0.0]).logit_BK
    assert divergence(student, teacher, False).item() == pytest.approx(kl(Q, P), rel=1e-5)
    assert divergence(student, teacher, True).item() == pytest.approx(kl(Q, P) / 3, rel=1e-5)


@pytest.mark.parametrize("published", [False, True])
def test_the_losses_of_fml_by_hand(published):
    algorithm = algorithm_of("method.name=fml", "method.alpha=0.3", "method.beta=0.6")
    algorithm.options = algorithm.options.model_copy(update={"published": published})
    joint_loss, more = algorithm.joint_loss(None)
    assert more == ()
    own, other = outputs(P, [0.0]), outputs(Q, [0.0])
    total, terms = joint_loss(own, other)
    share = 1 / 3 if published else 1
    loss = 0.3 * math.log(2) + 0.7 * share * kl(Q, P)
    loss_g = 0.6 * math.log(5) + 0.4 * share * kl(P, Q)
    assert terms["loss"].item() == pytest.approx(loss, rel=1e-5)
    assert terms["auxiliary"].item() == pytest.approx(loss_g, rel=1e-5)
    assert terms["ce"].item() == pytest.approx(math.log(2), rel=1e-5)
    total.backward()
    if not published:  # by logits, KL(q ‖ p) has the gradient p − q; the teacher has none
        label = torch.tensor([1.0, 0.0, 0.0])
        expected = (0.3 * (P - label) + 0.7 * (P - Q)) / 2
        expected_g = (0.6 * (Q - label) + 0.4 * (Q - P)) / 2
        torch.testing.assert_close(own.logit_BK.grad, expected.repeat(2, 1))
        torch.testing.assert_close(other.logit_BK.grad, expected_g.repeat(2, 1))


class FakeClient:
    """A client with nothing but a map W and a step whose optimiser is new."""

    def __init__(self, algorithm, weight):
        from hpcfl.training.step.options import StepOptions
        from hpcfl.training.step.step import make_step

        network = algorithm.start
        self.step = make_step(network, algorithm.plan.train, StepOptions(direct=False, products=False))
        self.blocks = {"map": weight}


@pytest.mark.parametrize("published", [False, True])
def test_the_losses_of_fedkd_by_hand(published):
    """z = (1, 2), z_g = (1, 0), W = 2·1: W z_g = (2, 0), so MSE = (1 + 4)/2."""
    algorithm = algorithm_of("method.name=fedkd", "models.features=2")
    algorithm.options = algorithm.options.model_copy(update={"published": published})
    weight = 2 * torch.eye(2)
    joint_loss, (optimizer,) = algorithm.joint_loss(FakeClient(algorithm, weight))
    own, other = outputs(P, [1.0, 2.0]), outputs(Q, [1.0, 0.0])
    total, terms = joint_loss(own, other)
    share, s = 1 / 3 if published else 1, math.log(2) + math.log(5)
    assert terms["features"].item() == pytest.approx(2.5)
    assert terms["loss"].item() == pytest.approx(math.log(2) + (share * kl(Q, P) + 2.5) / s, rel=1e-5)
    assert terms["auxiliary"].item() == pytest.approx(math.log(5) + (share * kl(P, Q) + 2.5) / s, rel=1e-5)
    total.backward()
    twice = 2 if published else 1  # published: both losses move both sides
    gradient = torch.tensor([-1.0, 2.0]) / 2 / s * twice  # of MSE by z: 2 (z − W z_g)/(B d)
    torch.testing.assert_close(own.z_BD.grad, gradient.repeat(2, 1))
    torch.testing.assert_close(other.z_BD.grad, -2 * gradient.repeat(2, 1))
    [parameter] = optimizer.parameters
    torch.testing.assert_close(parameter.grad, -2 * torch.outer(gradient, torch.tensor([1.0, 0.0])))
    moved = weight - 0.01 * parameter.grad
    optimizer.update()
    torch.testing.assert_close(weight, moved)


def test_the_energy_rises_to_its_end_and_stays():
    algorithm = algorithm_of("method.name=fedkd", "method.energy_rounds=10")
    energies = [algorithm.energy(t) for t in (0, 1, 5, 10, 99)]
    assert energies == pytest.approx([0.95, 0.953, 0.965, 0.98, 0.98])


# --- what travels


def prepare_photos(root) -> None:
    """Prepares 32 × 32 images of 100 classes, and a split with two samples per client."""
    y = np.arange(100)
    np.savez(root / "photos.npz", x=images(100, 32), y=y)
    list(prepare("photos", str(root / "photos.npz"), str(root)))
    rows = [y[4 * i : 4 * i + 3] for i in range(20)]
    write_split(root / "split.npz", [(row[:2], row[2:], y[:0]) for row in rows])


PHOTOS = [
    *("data.name=photos", "data.root=.", "partition.file=split.npz", "models.list=['mlp_64']"),
    *("models.features=512", "federation.rounds=2", "method.auxiliary=cnn"),
]
CNN = 924_708
"""Numbers of the 4-layer CNN."""


def test_bytes_of_fml_are_those_of_fedtgps_table_5(hpcfl, tmp_path):
    prepare_photos(tmp_path)
    log = train_log(hpcfl, *PHOTOS, "method.name=fml")
    assert log["/round/bytes_up"].tolist() == log["/round/bytes_down"].tolist() == [4 * 20 * CNN] * 2
    assert (log["/round/bytes_up"][1] + log["/round/bytes_down"][1]) / 4 == 36_988_320
    planned = json.loads(hpcfl("plan", "-n", 3, "--json", *options(*PHOTOS, "method.name=fml")).output)
    assert planned["bytes_up"] == planned["bytes_down"] == 4 * 20 * CNN
    assert planned["warnings"] == []


@pytest.mark.parametrize("published", [False, True])
def test_bytes_of_fedkd_are_those_of_what_is_sent(hpcfl, tmp_path, published):
    """Fresh random matrices have no small factors: ours are sent as they are, published ones grow."""
    prepare_photos(tmp_path)
    settings = [*PHOTOS, "method.name=fedkd", f"method.published={str(published).lower()}"]
    log = train_log(hpcfl, *settings, "federation.participation=5")
    numbers = log["/round/bytes_down"] / 4 / 20
    assert numbers[0] / CNN == (pytest.approx(1.14, abs=0.005) if published else 1)
    assert published or (numbers <= CNN).all()
    planned = json.loads(hpcfl("plan", "-n", 3, "--json", *options(*settings)).output)
    assert (log["/round/bytes_up"] / 5 <= planned["bytes_up"] / 20).all()
    assert (log["/round/bytes_down"] <= planned["bytes_down"]).all()
    assert "bytes and FLOPs of factors are upper bounds" in planned["warnings"][0]
    shapes = 2 * 4 * (3 if published else 0)
    assert (log["/round/bytes_side"] >= shapes).all()


def test_small_factors_are_sent_and_restored():
    algorithm = algorithm_of("method.name=fedkd", "method.auxiliary=mlp_256", "method.energy_start=0.5")
    values = {name: value.clone() for name, value in algorithm.initial_parameters().items()}
    large = max(values, key=lambda name: values[name].numel())
    rows, columns = values[large].shape
    values[large] = torch.outer(torch.arange(1.0, rows + 1), torch.ones(columns))  # of rank 1
    codec = Codec(algorithm.upload_arrays())
    payload = codec.decode(codec.encode(algorithm.compress(values, 0)))
    assert f"{large}.left" in payload
    assert large not in payload
    sent = algorithm.receive(payload)
    torch.testing.assert_close(sent[large], values[large])
    mean = algorithm.aggregate(0, {}, [ClientUpload(0, False, payload), ClientUpload(3, False, payload)])
    assert mean.keys() == payload.keys()
    torch.testing.assert_close(algorithm.receive(mean)[large], values[large])


# --- runs


@pytest.fixture
def run(hpcfl):
    return lambda name, *settings: train_log(hpcfl, *FEW, f"method.name={name}", *settings)


@each
def test_bytes_with_few_participants(run, name):
    """FML's network goes to participants, FedKD's to all."""
    log = run(name, "method.energy_start=1.0", "method.energy_end=1.0") if name == "fedkd" else run(name)
    size = 4 * sum(math.prod(shape) for shape in algorithm_of(f"method.name={name}").shapes.values())
    assert (log["/round/bytes_up"] == 2 * size).all()
    assert (log["/round/bytes_down"] == (2 if name == "fml" else 20) * size).all()
    assert (log["/client/accuracy"] == log["/client/accuracy_head"]).all()
    for path in ("/round/loss_mutual", "/round/loss_auxiliary"):
        assert (log[path] > 0).all()


@each
def test_a_client_that_diverges_is_left_out(run, monkeypatch, name):
    train = LocalClient.train

    def diverging(self, **arguments):
        losses = train(self, **arguments)
        if (self.id, self.round) == (3, 1):
            for parameter in self.extra_steps["auxiliary"].network.parameters():
                parameter.data.fill_(math.nan)
        return losses

    monkeypatch.setattr(LocalClient, "train", diverging)
    log = run(name, "federation.participation=1.0")
    assert log["/client/diverged"].sum(1).tolist() == [0, 1, 1]
    assert log["/round/uploads"].tolist() == [20, 19, 19]
    assert (log["/client/accuracy_head"][1:, 3] == 0).all()
    assert np.isfinite(log["/round/loss"]).all()


@each
def test_all_clients_diverge(hpcfl, name):
    settings = (*FEW, f"method.name={name}", "method.clip_norm=0", "train.lr=1e30")
    done = hpcfl("train", "--out", "run.h5", *options(*settings, "federation.participation=1.0"))
    assert done.exit_code == 1
    assert "Traceback" not in done.output
    assert "diverged" in done.output


@each
def test_without_uploads_the_last_download_stays(name):
    algorithm = algorithm_of(f"method.name={name}")
    last = algorithm.initial()
    assert algorithm.aggregate(1, last, []) is last


@each
def test_a_client_with_one_sample_and_a_network_with_batch_norm(hpcfl, tmp_path, name):
    """Its statistics are those of the start, whatever client the rank had before."""
    prepare_images(tmp_path)
    y = np.arange(12)
    write_split(tmp_path / "one.npz", [(y[:6], y[6:8], y[:0]), (y[8:9], y[9:10], y[:0])])
    settings = [
        *("data.name=tiny", "data.root=.", "partition.file=one.npz", "federation.clients=2"),
        *("models.list=['cnn']", "models.features=64", "method.auxiliary=resnet4", f"method.name={name}"),
        *("federation.rounds=2", "method.clip_norm=0"),
    ]
    seed = next(s for s in range(9) if select_participants(s, 0, 2, 1).tolist() == [1])
    both = train_log(hpcfl, *settings, f"seed={seed}")
    alone = train_log(hpcfl, *settings, f"seed={seed}", "federation.participation=1")
    assert np.isfinite(both["/client/loss"]).all()
    assert both["/client/loss"][0, 1] == alone["/client/loss"][0, 1]


# --- choices


def test_which_network_is_the_auxiliary_one():
    plan = plan_run(load_config(None, [*FEW, "method.name=fml"]))
    assert plan.architectures == ("mlp_64", "mlp_256", "mlp_32x3", "mlp_taper")
    chosen = {choice: auxiliary_architecture(plan, choice) for choice in ("first", "mlp_256", "smallest")}
    assert chosen == {"first": "mlp_64", "mlp_256": "mlp_256", "smallest": "mlp_taper"}


def test_a_weight_of_one_is_training_alone(run):
    """α = β = 1: the own network gets the cross-entropy alone, with the batches of `local`."""
    alone, mutual = run("local"), run("fml", "method.alpha=1.0", "method.clip_norm=0.0")
    assert (mutual["/client/accuracy_head"] == alone["/client/accuracy_head"]).all()
    assert (mutual["/round/loss_ce"] == alone["/round/loss_ce"]).all()


@each
@pytest.mark.parametrize("published", ["true", "false"])
def test_the_direct_step_of_both_networks_is_the_plain_one(run, name, published):
    """At d = 128 the map and the largest weights are updated in the backward pass, also of a teacher."""
    settings = [
        *("method.clip_norm=0.0", f"method.published={published}", "models.features=128", "train.lr=0.05"),
        *("models.list=['mlp_256', 'mlp_taper']", "method.auxiliary=mlp_256", "federation.participation=1.0"),
    ]
    direct, plain = (run(name, *settings, f"runtime.step={step}") for step in ("direct", "plain"))
    for path in ("/client/loss", "/round/loss_auxiliary", "/round/loss_mutual"):
        np.testing.assert_allclose(direct[path], plain[path], rtol=1e-4)
    assert (direct["/client/loss"][2] != plain["/client/loss"][2]).any(), "they sum in another order"


BAD = {
    ("fml", "method.alpha=1.5"): "method.alpha = 1.5: must be less than or equal to 1",
    ("fml", "method.energy_start=0.9"): "method.energy_start = 0.9: 'fml' has no such option",
    ("fml", "method.auxiliary=mlp_46"): "method.auxiliary = 'mlp_46'",
    ("fml", "runtime.step=direct"): "runtime.step = 'direct': updates weights before the norm of all",
    ("fml", "runtime.graphs=true"): "runtime.graphs = true: fml trains two networks in one step",
    ("fedkd", "runtime.graphs=true"): "runtime.graphs = true: fedkd trains two networks in one step",
    ("fml", "method.infer=trained"): "method.infer = 'trained': method 'fml' has no such inference",
    ("fedkd", "method.energy_end=1.1"): "method.energy_end = 1.1: must be less than or equal to 1",
    ("fedkd", "method.energy_start=0"): "method.energy_start = 0: must be greater than 0",
    ("fedkd", "method.clip_norm=-1"): "method.clip_norm = -1: must be greater than or equal to 0",
    ("fedkd", "method.auxiliary=cnn"): "models: cnn takes images, a sample here has the shape 2",
    ("fedkd", "log.distances=true"): "log.distances = true: method 'fedkd' has none",
}


@pytest.mark.parametrize(("name", "setting"), BAD)
def test_bad_options_are_one_sentence(hpcfl, name, setting):
    done = hpcfl("train", f"--set=method.name={name}", f"--set={setting}")
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert BAD[name, setting] in done.output
