"""Networks of a run in a process that has torch alone give the logged accuracy by head, exactly."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

import hpcfl as package
from hpcfl.log.reader import read_log
from hpcfl.models.registry import ARCHITECTURES
from tests.helpers.cases import FEW, OWN, VALIDATION, prepare_images
from tests.helpers.runs import options, train_log

TORCH_ALONE = """
import importlib, json, pathlib, sys
import torch
torch.set_num_threads(1)
found = {name: {} for name in sys.argv[1:]}
for path in [path for name in found for path in pathlib.Path(name).glob("client-*.json")]:
    about = json.loads(path.read_text())
    if about["file"].endswith(".pt2"):
        network = torch.export.load(path.with_name(about["file"])).module()
    else:
        network = importlib.import_module("alone").build()
        network.load_state_dict(torch.load(path.with_name(about["file"]), weights_only=True))
    test = torch.load(path.with_name(f"{path.stem}-test.pt"), weights_only=True)
    logit_BK = torch.cat([network(x_B)[1] for x_B in test["x"].split(about["batch"])])
    correct = int((logit_BK.argmax(1) == test["y"]).sum())
    found[path.parent.name][about["client"]] = correct / len(test["y"])
assert "hpcfl" not in sys.modules
print(json.dumps(found))
"""
IMAGES = [
    *("data.name=tiny", "data.root=.", "federation.rounds=1", "models.features=64", "partition.name=iid"),
    *("train.batch_size=8", "train.lr=0.05"),
]


LARGE = ("resnet34", "resnet50", "resnet101", "resnet152")
"""Networks of the same layers as smaller ones."""
KINDS = [
    ["models.list=['cnn']", "models.head=unit"],
    ["models.list=['cnn']", "method.name=fednh"],
    ["models.list=['resnet4']", "method.name=fedavg", "method.buffers=true"],
    ["models.list=['cnn_femnist', 'resnet4']", "runtime.precision=bfloat16"],
    ["models.list=['cnn_femnist', 'resnet4']", "method.name=fml"],
    ["models.list=['cnn_femnist', 'resnet4']", "method.name=fedkd", "method.auxiliary=cnn"],
    ["models.list=['cnn_femnist', 'resnet4']", "method.name=lg-fedavg"],
    ["models.list=['cnn']", "models.head=mlp128", "models.style=published", "data.normalise=half"],
]


def export(hpcfl, log: str, settings: Sequence[str], clients: Sequence[int] = ()) -> None:
    """Trains a run and exports clients; all have the accuracy of the log here, too."""
    assert hpcfl("train", "--out", log, *options(*settings)).exit_code == 0
    chosen = [f"--client={i}" for i in clients]
    done = hpcfl("export", log, "--to", "torch", "--samples", *chosen)
    assert done.exit_code == 0, done.output
    assert done.output.count("\n") == 1, "no accuracy is another one here"


def accuracies_by_torch_alone(logs: Sequence[str]) -> dict[str, dict[int, float]]:
    """Returns the accuracies by head of the exported clients of logs, from one process without hpcfl."""
    program = f"import sys; sys.path.append('.')\n{TORCH_ALONE}"
    command = [sys.executable, "-c", program, *(f"{Path(log).stem}-torch" for log in logs)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return {log: {int(i): value for i, value in found[f"{Path(log).stem}-torch"].items()} for log in logs}


def assert_reproduced(logs: Sequence[str]) -> None:
    """Checks the accuracies of exported clients after the last round."""
    for log, found in accuracies_by_torch_alone(logs).items():
        logged = read_log(log)["/client/accuracy_head"][-1].tolist()
        assert found, log
        assert found == {i: logged[i] for i in found}, log


METHODS = ("fedproto", "lg-fedavg", "fedgh", "feddistill", "fedavg", "feduv", "fednh", "fedgen", "fedmps")
"""One of those that leave the networks alone; those whose server's head or network counts; others."""


@pytest.mark.slow
def test_methods_and_kinds_of_networks(hpcfl):
    """Two clients of one architecture share a program, so both are exported."""
    prepare_images(Path())
    cases = {name: [*FEW, *OWN.get(name, []), f"method.name={name}", "train.lr=0.1"] for name in METHODS}
    cases |= {" ".join(settings): [*IMAGES, "federation.clients=4", *settings] for settings in KINDS}
    for number, settings in enumerate(cases.values()):
        export(hpcfl, f"{number}.h5", settings, (0, 2, 3))
    assert_reproduced([f"{number}.h5" for number in range(len(cases))])


@pytest.mark.slow
def test_every_network(hpcfl):
    prepare_images(Path())
    known = ARCHITECTURES.items()
    names = [
        name for name, entry in known if entry.images and not entry.published_form_of and name not in LARGE
    ]
    settings = [f"models.list={names}", f"federation.clients={len(names)}", "partition.min_samples=2"]
    export(hpcfl, "run.h5", [*IMAGES, *settings, "models.head=htc4"])
    assert_reproduced(["run.h5"])


OWN_NETWORK = """
import torch
from torch import nn
class Odd(nn.Module):
    def __init__(self, coordinates, features):
        super().__init__()
        self.layer = nn.Linear(coordinates, features)
    def forward(self, x_B):
        return self.layer(x_B) if len(x_B) == 1 else self.layer(x_B).tanh()
def odd(shape, features):
    return Odd(shape[0], features)
"""
ALONE = """
from torch import nn
from own_networks import odd
class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.extractor, self.head = odd((2,), 8), nn.Linear(8, 6)
    def forward(self, x_B):
        return None, self.head(self.extractor(x_B))
build = Both
"""


def test_a_network_that_is_no_program_gives_its_parameters(hpcfl, monkeypatch):
    """This one does something else for one sample, which a program for batches of any size cannot."""
    monkeypatch.syspath_prepend(".")
    Path("own_networks.py").write_text(OWN_NETWORK)
    Path("alone.py").write_text(ALONE)
    export(hpcfl, "run.h5", [*FEW, "models.list=['own_networks:odd']"], (2, 5))
    assert_reproduced(["run.h5"])
    about = json.loads(Path("run-torch/client-2.json").read_text())
    assert about["file"] == "client-2.pt"
    assert about["architecture"] == "own_networks:odd"
    assert "batch" in about["no_program"]


def test_files_name_what_they_hold(hpcfl):
    run = train_log(hpcfl, *FEW, *VALIDATION)
    done = hpcfl("export", "run.h5", "--to", "torch", "--client", "3")
    files = "client-3.pt2, client-3.json, prototypes.pt, features.pt"
    assert done.output == f"run.h5: {files} in run-torch\n"
    for name in ("prototypes", "features"):
        tensors = torch.load(f"run-torch/{name}.pt", weights_only=True)
        assert tensors.keys() == {p for p in run.datasets if p.startswith(f"/{name}/")} - run.lacking
        for path, values in tensors.items():
            want = run[path]
            if run.metrics[path].dims[0] == "round":
                want = want[run["/prototypes/saved_round"]]
            np.testing.assert_array_equal(values, want)
    about = json.loads(Path("run-torch/client-3.json").read_text())
    assert (about["client"], about["round"], about["method"], about["features"]) == (3, 3, "fedproto", 8)
    assert about["accuracy_head"] == run["/client/accuracy_head"][-1, 3]
    assert about["input"]["shape"] == ["batch", 2]


def test_the_normalisation_is_in_the_description(hpcfl):
    prepare_images(Path())
    train_log(hpcfl, *IMAGES, "federation.clients=2", "models.list=['cnn']")
    hpcfl("export", "run.h5", "--to", "torch", "--samples")
    about = json.loads(Path("run-torch/client-1.json").read_text())["input"]
    client = package.open_run("run.h5").client(1)
    data, rows = client.clients.plan.data, client.clients.plan.clients[1].test
    mean, std = (torch.tensor(about[name]) for name in ("mean", "std"))
    x_NHWC = (torch.from_numpy(data.x[rows]).float() - mean) / std
    test = torch.load("run-torch/client-1-test.pt", weights_only=True)
    assert torch.equal(x_NHWC.permute(0, 3, 1, 2), test["x"])
    assert torch.equal(torch.from_numpy(data.y[rows]), test["y"])


def weight(network: torch.nn.Module, name: str) -> torch.Tensor:
    return network.get_parameter(name)


def test_a_client_in_python(hpcfl):
    run = train_log(hpcfl, *FEW, "method.name=lg-fedavg")
    opened = package.open_run("run.h5")
    clients = [opened.client(i) for i in range(20)]
    assert repr(clients[3]) == "<Client 3 of run.h5: mlp_taper, round 3>"
    networks = [client.network() for client in clients]
    for i, (client, network) in enumerate(zip(clients, networks, strict=True)):
        assert not network.training
        x_N, y_N = client.samples()
        assert len(y_N) == run["/clients/test_samples"][i]
        correct = int((network(x_N).argmax(1) == y_N).sum())
        assert correct / len(y_N) == run["/client/accuracy_head"][-1, i]
        assert torch.equal(weight(network, "head.weight"), weight(networks[0], "head.weight")), "the server's"
        assert len(client.samples("train")[1]) == run["/clients/train_samples"][i]
    first, fifth = (weight(networks[i], "extractor.1.weight") for i in (0, 4))
    assert not torch.equal(first, fifth)


def test_without_the_last_checkpoint_the_networks_are_of_the_one_before(hpcfl):
    run = train_log(hpcfl, *FEW, "runtime.checkpoint_rounds=1")
    Path("run.h5.ckpt/manifest-2.json").unlink()
    assert package.open_run("run.h5").client(0).round == 1
    done = hpcfl("export", "run.h5", "--to", "torch", "--client", "0", "--client", "4", "--samples")
    assert done.output.startswith("run.h5: its newest checkpoint is of round 1 of 3\n")
    logged = run["/client/accuracy_head"][0]
    assert accuracies_by_torch_alone(["run.h5"]) == {"run.h5": {0: logged[0], 4: logged[4]}}


def test_what_is_missing_is_said(hpcfl, monkeypatch):
    monkeypatch.syspath_prepend(".")
    Path("my_networks.py").write_text(OWN_NETWORK)
    train_log(hpcfl, *FEW, "models.list=['my_networks:odd']")

    def said(*arguments: str) -> str:
        done = hpcfl("export", "run.h5", "--to", "torch", *arguments)
        assert done.exit_code == 2
        assert not Path("run-torch/client-0.json").exists()
        return done.output

    assert said("--client", "20") == "hpcfl: client 20: run.h5 has the clients 0 to 19\n"
    Path("my_networks.py").write_text(f"{OWN_NETWORK}\n")
    monkeypatch.delitem(sys.modules, "my_networks")
    assert said() == "hpcfl: run.h5 is a run with another code_my_networks than there is now\n"
    Path("my_networks.py").write_text(OWN_NETWORK)
    del sys.modules["my_networks"]
    for manifest in Path("run.h5.ckpt").glob("manifest-*"):
        manifest.unlink()
    assert said().startswith("hpcfl: run.h5 has no networks: there is no checkpoint in run.h5.ckpt; a run ")
    done = hpcfl("export", "run.h5", "--to", "csv", "--client", "1")
    assert (done.exit_code, "only with --to torch" in done.output) == (2, True)


def test_clients_that_diverged_are_left_out(hpcfl):
    """Its features overflow: all but one sample are of clients with a huge learning rate."""
    Path("big.py").write_text(OWN_NETWORK.replace(".tanh()", " * 1e30"))
    train_log(
        hpcfl, *FEW, "models.list=['mlp_64', 'big:odd']", "federation.participation=1.0", "train.lr=0.1"
    )
    done = hpcfl("export", "run.h5", "--to", "torch")
    assert done.exit_code == 0
    assert "left out, as they diverged: 1, 3, 5" in done.output
    assert sorted(Path("run-torch").glob("client-*.pt2"))[0].stem == "client-0"
    assert not Path("run-torch/client-1.json").exists()
    refused = hpcfl("export", "run.h5", "--to", "torch", "--client", "1")
    assert refused.output == "hpcfl: client 1 of run.h5 has diverged: its network is not finite\n"
