"""FedAvg, FedUV and FedNH: averages, limits, bytes, clients that recover, what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from hpcfl.algorithms.build import build_algorithm
from hpcfl.config.loading import load_config
from hpcfl.exchange.codec import ClientUpload
from hpcfl.federation.run_plan import plan_run
from hpcfl.training.local_client import LocalClient
from tests.helpers.cases import FEW, ONE_NETWORK, prepare_images
from tests.helpers.runs import options, train_log
from tests.reference.federation import Federation

NAMES = ("fedavg", "feduv", "fednh")
each = pytest.mark.parametrize("name", NAMES)


@pytest.fixture
def run(hpcfl):
    """Returns `run(method, *settings)`: trains for three rounds with few participants and reads the log."""
    return lambda name, *settings: train_log(hpcfl, *FEW, *ONE_NETWORK, f"method.name={name}", *settings)


def algorithm_of(*settings: str):
    return build_algorithm(plan_run(load_config(None, [*FEW, *ONE_NETWORK, *settings])), torch.device("cpu"))


# --- averages


@pytest.mark.parametrize(("weighted", "mean"), [("true", 0.25 * 2 + 0.75 * 6), ("false", 4)])
def test_the_average_of_two_networks(weighted, mean):
    """10 and 30 samples: weights 1/4 and 3/4, or 1/2 each."""
    algorithm = algorithm_of("method.name=fedavg", f"method.weighted={weighted}")
    uploads = [
        ClientUpload(
            client,
            False,
            {array.name: torch.full(array.shape, value) for array in algorithm.arrays}
            | {"samples": torch.tensor([samples])},
        )
        for client, value, samples in ((0, 2.0, 10), (4, 6.0, 30))
    ]
    for value in algorithm.aggregate(0, {}, uploads).values():
        assert value.dtype == torch.float32
        assert (value == mean).all()


# --- limits


def test_fedavg_of_one_client_is_local_training(hpcfl):
    settings = [*FEW, *ONE_NETWORK, "federation.clients=1", "federation.participation=1.0"]
    logs = [train_log(hpcfl, *settings, f"method.name={name}") for name in ("fedavg", "local")]
    for path in ("/round/loss", "/client/accuracy_head"):
        assert logs[0][path].tolist() == logs[1][path].tolist()


def test_rounds_of_one_full_batch_are_steps_of_sgd_on_all_samples(hpcfl, sent):
    """Σ n_i (w − η∇L_i) / Σ n_i = w − η∇L, with L the mean over all samples; clients differ in size."""
    settings = [
        *(*FEW, *ONE_NETWORK, "method.name=fedavg", "federation.participation=1.0"),
        *("train.batch_size=5000", "train.lr=0.5", "partition.alpha=1.0"),
    ]
    log, clients = train_log(hpcfl, *settings), Federation(settings)
    assert len(set(log["/clients/train_samples"])) > 5
    network = clients.networks[0]
    x, y = (torch.cat(parts) for parts in zip(*clients.train_data, strict=True))
    optimiser = torch.optim.SGD(network.parameters(), 0.5)
    for t in range(3):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(x), y)
        loss.backward()
        optimiser.step()
        np.testing.assert_allclose(log["/round/loss"][t], loss.item(), rtol=1e-5)
        for name, value in network.named_parameters():
            torch.testing.assert_close(sent[t + 1][name], value.detach(), rtol=1e-4, atol=1e-6)


# --- what travels


@each
def test_bytes_of_a_round_are_those_of_the_networks_and_of_the_plan(hpcfl, run, name):
    log = run(name)
    classes, features = log["/clients/class_counts"].shape[1], 8
    parameters, owned = int(log["/clients/parameters"][0]), log["/clients/class_counts"] > 0
    assert parameters == 2 * 256 + 256 + 256 * 8 + 8 + (1 if name == "fednh" else 8 * 6 + 6)
    rows = np.array([owned[who].sum() for who in log["/round/participants"]]) if name == "fednh" else 0
    down = parameters + (classes * features if name == "fednh" else 0)
    np.testing.assert_array_equal(log["/round/bytes_up"], 4 * (2 * parameters + rows * features))
    np.testing.assert_array_equal(log["/round/bytes_down"], 20 * 4 * down)
    beside = 2 * 1 + rows * 4 if name == "fednh" else 2 * 8  # a bitmap and counts by class, or n_i
    np.testing.assert_array_equal(log["/round/bytes_side"], beside)
    everyone = [*FEW, *ONE_NETWORK, f"method.name={name}", "federation.participation=1.0"]
    planned = json.loads(hpcfl("plan", "-n", 3, "--json", *options(*everyone)).output)
    assert planned["bytes_up"] == 4 * (20 * parameters + (owned.sum() * features if name == "fednh" else 0))
    assert planned["bytes_down"] == 20 * 4 * down


def test_twenty_resnets_are_forty_times_their_parameters(hpcfl, tmp_path):
    prepare_images(tmp_path)
    settings = ["data.name=tiny", "data.root=.", "partition.name=iid", "models.group=resnet18"]
    settings.append("partition.min_samples=2")
    for name in ("fedavg", "feduv"):
        said = json.loads(hpcfl("plan", "-n", 3, "--json", *options(*settings, f"method.name={name}")).output)
        parameters = said["architectures"]["resnet18"]["parameters"]
        assert said["bytes_up"] + said["bytes_down"] == 4 * 2 * 20 * parameters
        buffers = said["architectures"]["resnet18"]["buffers"] - 20 * 8  # without the numbers of batches
        message = 4 * parameters + (buffers if name == "feduv" else 0)
        assert said["server_bytes"] - said["nodes"][0]["programs"] < 24 * message
        assert 24 * message < said["server_bytes"] < 24 * message + 2**29
        assert said["nodes"][0]["messages"] > 2 * 20 * message


@pytest.mark.parametrize("travel", [False, True])
def test_batch_norm_statistics_travel_only_if_asked(hpcfl, tmp_path, sent, travel):
    prepare_images(tmp_path)
    log = train_log(
        hpcfl,
        *("data.name=tiny", "data.root=.", "partition.name=iid", "federation.clients=2"),
        *("federation.rounds=1", "models.features=16", "models.list=['resnet4']", "method.name=fedavg"),
        f"method.buffers={str(travel).lower()}",
    )
    names = {name.rpartition(".")[2] for name in sent[1]}
    assert ("running_mean" in names, "num_batches_tracked" in names) == (travel, False)
    if travel:
        assert all(value.any() for name, value in sent[1].items() if "running_mean" in name)
    assert log["/round/bytes_up"][0] == 2 * 4 * log["/clients/parameters"][0]


def test_the_first_download_starts_all_alike_unless_asked(run):
    """Without learning, the average of equal networks scores as each of them."""
    for alike in ("true", "false"):
        log = run("fedavg", "train.lr=1e-30", "federation.rounds=1", "federation.participation=1.0",
                  f"method.first_download={alike}")  # fmt: skip
        same = log["/client/accuracy_trained"] == log["/client/accuracy_head"]
        assert same.all() == (alike == "true")
        assert (log["/round/bytes_down"][0] > 0) == (alike == "true")


def test_pretrained_weights_are_in_the_first_download(hpcfl, sent, tmp_path):
    weights = {f"extractor.{name}": value for name, value in _extractor().items()}
    torch.save(weights, tmp_path / "mine.pt")
    train_log(hpcfl, *FEW, *ONE_NETWORK, "method.name=fedavg", "models.pretrained.mlp_256=mine.pt")
    for name, value in weights.items():
        assert torch.equal(sent[0][name], value)


def _extractor() -> dict[str, torch.Tensor]:
    torch.manual_seed(5)
    return Federation([*FEW, *ONE_NETWORK]).networks[3].extractor.state_dict()


# --- evaluation, clients that recover, refusals


@each
def test_accuracy_before_and_after_the_download(run, name):
    after, before = run(name), run(name, "method.infer=trained")
    for log, infer in ((after, "head"), (before, "trained")):
        assert (log["/client/accuracy"] == log[f"/client/accuracy_{infer}"]).all()
    assert (after["/client/accuracy_head"] != after["/client/accuracy_trained"]).any()
    some = run(name, "log.evaluate_every=2")
    assert (some["/round/loss"] == after["/round/loss"]).all()
    assert (some["/client/accuracy_head"][1:] == after["/client/accuracy_head"][1:]).all()


@each
@pytest.mark.parametrize("what", ["loss", "upload"])
def test_a_client_that_is_not_finite_is_left_out_of_that_round_only(run, sent, monkeypatch, name, what):
    train, plain = LocalClient.train, run(name, "federation.participation=1.0")
    chosen = int(plain["/client/accuracy_head"][1].argmax())

    def diverging(self, *arguments):
        losses = train(self, *arguments)
        if (self.id, self.round) != (chosen, 1):
            return losses
        if what == "loss":
            return losses | {"loss": np.inf}
        next(self.network.extractor.parameters()).data.fill_(torch.nan)
        return losses

    monkeypatch.setattr(LocalClient, "train", diverging)
    log = run(name, "federation.participation=1.0")
    assert log["/client/diverged"].nonzero()[0].tolist() == [1]
    assert log["/client/diverged"][1, chosen]
    assert log["/round/uploads"].tolist() == [20, 19, 20]
    assert len(set(log["/round/bytes_down"])) == 1, "it receives the next download, too"
    trained, head = log["/client/accuracy_trained"][:, chosen], log["/client/accuracy_head"][:, chosen]
    assert (trained[1], trained[2] > 0, head[1] > 0) == (0, True, True)
    assert np.isinf(log["/client/loss"][1, chosen]) == (what == "loss")
    assert np.isfinite(log["/round/loss"]).all()
    assert all(value.isfinite().all() for download in sent for value in download.values())


@each
def test_all_clients_diverge(hpcfl, name):
    """A clipped step of that length is finite, but networks of that size are not."""
    settings = (*FEW, *ONE_NETWORK, f"method.name={name}", "train.lr=1e38", "federation.participation=1.0")
    done = hpcfl("train", "--out", "run.h5", *options(*settings))
    assert done.exit_code == 1
    assert "Traceback" not in done.output
    assert "diverged" in done.output


@each
def test_several_architectures_are_refused(hpcfl, name):
    done = hpcfl("train", *options(*FEW, f"method.name={name}", "models.list=['mlp_64', 'mlp_256']"))
    head = "/prototypes" if name == "fednh" else ""
    assert (done.exit_code, done.output) == (
        2,
        f"hpcfl: method.name = {name!r}: has one network for all clients, but these have "
        f"mlp_64{head}, mlp_256{head} (models.group, models.head)\n",
    )


BAD = {
    ("fedavg", "method.weight=2.0"): "method.weight = 2.0: 'fedavg' has no such option",
    ("fedavg", "method.weighted=1"): "method.weighted = 1: must be a valid boolean",
    ("fedavg", "method.infer=global"): "method.infer = 'global': method 'fedavg' has no such inference",
    ("feduv", "method.variance=-1"): "method.variance = -1: must be greater than or equal to 0",
    ("fednh", "method.smoothing=1.5"): "method.smoothing = 1.5: must be less than or equal to 1",
    ("fednh", "runtime.step=direct"): "runtime.step = 'direct'",
}


@pytest.mark.parametrize(("name", "setting"), BAD)
def test_bad_options_are_one_sentence(hpcfl, name, setting):
    done = hpcfl("train", *options(*ONE_NETWORK, f"method.name={name}", setting))
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert BAD[name, setting] in done.output


def test_evaluation_of_all_clients_is_in_the_plan(hpcfl):
    """Two of 20 clients train, all are evaluated after the download, and those two before it, too."""
    for name in ("local", "fedavg"):
        settings = [*FEW, *ONE_NETWORK, "partition.name=iid", "federation.rounds=20", f"method.name={name}"]
        said = json.loads(hpcfl("plan", "-n", 3, "--json", *options(*settings)).output)
        plan = plan_run(load_config(None, settings))
        forward = said["architectures"]["mlp_256"]["flops"]
        tests = sum(len(client.test) for client in plan.clients)
        changed = said["flops_evaluate"] - (forward * tests if name == "fedavg" else 0)
        assert 0 < changed < 0.2 * forward * tests
