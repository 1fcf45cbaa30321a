"""What `hpcfl plan` says against what must be, and against what a run does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hpcfl.config.loading import load_config
from hpcfl.federation.run_plan import plan_run
from hpcfl.log.reader import read_log
from hpcfl.log.size import expected_log_size
from hpcfl.models.costs import costs
from hpcfl.plan.checkpoints import checkpoint_sizes
from hpcfl.plan.device_memory import CUDA_CONTEXT_BYTES, gpu_memory, gpus
from hpcfl.plan.forecast import Forecast
from hpcfl.plan.machine import Machine
from hpcfl.plan.warnings import warnings
from hpcfl.runtime.scheduling import makespan
from hpcfl.utils.formatting import format_ranges

GIB = 2**30


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def forecast(
    *settings: str, ranks: int = 5, nodes: int = 1, devices: int = 0, memory: float = 64, **more: int
):
    plan = plan_run(load_config(None, ["data.samples_per_class=200", *settings]))
    counted = costs(plan.architectures, plan.data.shape, *plan.dims, plan.config.train.batch_size, 256)
    machine = Machine(
        ranks, nodes, devices, 4, int(memory * GIB), more.get("gpu"), more.get("shared", 8 * GIB), "cuda"
    )
    return Forecast(plan, counted, machine, program_bytes=(100, 7))


@pytest.mark.parametrize(
    "more", [[], ["method.sparsity=0.3"], ["method.name=fedtgp", "data.style=supplement"]]
)
def test_bytes_are_those_of_a_run(hpcfl, more):
    settings = ["federation.participation=0.3", "federation.rounds=6", "data.samples_per_class=200", *more]
    assert hpcfl("train", *(f"--set={s}" for s in settings), "--out", "run.h5").exit_code == 0
    log, said = read_log("run.h5"), forecast(*settings)
    up, down = said.bytes
    assert up == log["/round/bytes_up"].mean()
    assert down == log["/round/bytes_down"][-1]
    for t, who in enumerate(said.participants):
        assert np.flatnonzero(log["/round/participants"][t]).tolist() == who.tolist()
    counted = [said.costs[name].flops for name in log["/clients/architecture"]]
    assert log["/clients/flops"].tolist() == counted


def test_flops_by_hand():
    """Forward 2·(2·64 + 64·32 + 32·6) a sample: three for training, one for prototypes, one for a test."""
    said = forecast("federation.clients=1", "models.list=['mlp_64']", "train.epochs=2")
    forward, client = 2 * (2 * 64 + 64 * 32 + 32 * 6), said.plan.clients[0]
    train, evaluate = said.flops
    assert train == forward * len(client.train) * (3 * 2 + 1)
    assert evaluate == forward * len(client.test)


def test_evaluation_counts_those_who_changed_when_it_is_due():
    often = forecast("federation.rounds=20", "log.evaluate_every=1")
    seldom = forecast("federation.rounds=20", "log.evaluate_every=10")
    assert often.flops[0] == seldom.flops[0]
    assert often.flops[1] == pytest.approx(10 * seldom.flops[1])


def test_a_download_of_the_network_evaluates_all_clients_once_more():
    settings = ("models.list=['mlp_256']", "federation.participation=0.3", "log.evaluate_every=2")
    heads = forecast(*settings, "method.name=lg-fedavg")
    networks = forecast(*settings, "method.name=tests.helpers.toy_algorithm:Toy")
    tests = sum(len(client.test) for client in heads.plan.clients)
    forward = heads.costs["mlp_256"].flops
    rounds = len(heads.participants)
    evaluated = sum(map(heads.plan.config.evaluates, range(rounds)))
    assert networks.flops[1] == pytest.approx(heads.flops[1] + forward * tests * evaluated / rounds)


def test_clients_are_dealt_to_devices_as_in_a_run():
    said = forecast(ranks=9, nodes=2, devices=2, gpu=GIB)
    assert set(said.device_of) == {"cuda:0", "cuda:1"}
    assert sorted(rank for pool in said.pools for rank in pool.ranks) == list(range(1, 9))
    assert sorted(i for n in range(len(said.pools)) for i in said.clients_of(n)) == list(range(20))
    assert {pool.node for pool in said.pools} == {0, 1}


@pytest.mark.parametrize("placement", ["pool", "pinned"])
def test_a_gpu_needs_memory_for_all_ranks_that_use_it(placement):
    """The clients are alike: five contexts, for the server has one too, and four networks."""
    alike = ("partition.name=iid", "models.list=['mlp_64']", f"runtime.placement={placement}")
    said = forecast(*alike, ranks=5, devices=1, gpu=1000)
    parts = gpu_memory(said, 0).parts
    assert parts["contexts"] == 5 * CUDA_CONTEXT_BYTES
    assert parts["network"] == 4 * said.layouts.buffer_bytes("mlp_64")
    assert (gpus(said), len(warnings(said))) == ([0], 1)
    two = forecast(*alike, ranks=5, devices=2)
    assert [gpu_memory(two, n).parts["contexts"] // CUDA_CONTEXT_BYTES for n in gpus(two)] == [2, 3]


def test_makespan_and_imbalance():
    assert makespan([3, 3, 2, 2, 2], 2) == 7  # 3+2+2 against 3+2
    assert makespan([5], 3) == 5
    even = forecast("partition.name=iid", "models.list=['mlp_64']", ranks=5)
    assert even.imbalance == pytest.approx(1, abs=0.01)
    pinned = forecast("partition.name=iid", "models.list=['mlp_64']", "runtime.placement=pinned", ranks=17)
    assert pinned.imbalance == pytest.approx(
        1, abs=0.01
    )  # 20 clients on 16 ranks, but four cores set the pace
    assert (
        forecast("runtime.arena=private", ranks=5).pools
        == forecast("runtime.placement=pinned", ranks=5).pools
    )
    gpus = forecast("partition.name=iid", "models.list=['mlp_64']", ranks=9, nodes=2, devices=2)
    assert gpus.imbalance == pytest.approx(1, abs=0.01)
    lonely = forecast("partition.name=iid", "models.list=['mlp_64']", "federation.participation=1", ranks=5)
    assert lonely.imbalance == pytest.approx(4)  # one client, four cores


def test_memory_adds_up():
    said = forecast("models.list=['mlp_256']", "train.momentum=0.5", ranks=5)
    cost = said.costs["mlp_256"]
    parts = said.node_memory(0).parts
    assert parts["programs"] == 5 * 100 + 7
    assert parts["gradients"] == 4 * 4 * cost.parameters  # four at a time: momentum alone
    assert parts["networks"] == 4 * said.layouts.state(0).nbytes
    assert parts["arena"] == sum(said.layouts.layout(i).nbytes for i in range(20))
    assert parts["data"] == 5 * said.plan.data.x.nbytes
    assert said.layouts.state(0).nbytes >= cost.state
    assert parts["kept by waiting ranks"] == 0
    crowded = forecast("models.list=['mlp_256']", ranks=21).node_memory(0).parts
    assert crowded["gradients"] == 0  # they are dropped as they come
    assert crowded["kept by waiting ranks"] == 16 * (4 * cost.parameters + cost.activations)
    plain = forecast("models.list=['mlp_256']", "runtime.step=plain", ranks=21).node_memory(0).parts
    assert plain["gradients"] == 4 * 4 * cost.parameters


def test_rank_0_keeps_the_rows_of_the_log():
    """Three times while it is written: rows, HDF5's file in memory, its bytes."""
    said = forecast("federation.rounds=1000", ranks=5, nodes=2)
    assert said.server_memory().parts["log"] == 3 * expected_log_size(said.plan)
    assert said.node_memory(0).parts["log"] == said.server_memory().parts["log"]
    assert "log" not in said.node_memory(1).parts


def test_a_second_network_costs_as_much_as_it_does_alone():
    """FML's auxiliary network is trained and scratch; FedKD's clients keep a map of d × d floats, too."""
    alone = forecast("models.list=['mlp_256']", "method.name=lg-fedavg", ranks=5)
    fml = forecast("models.list=['mlp_256']", "method.name=fml", "method.auxiliary=mlp_64", ranks=5)
    own, cost = alone.costs["mlp_256"], fml.trained.costs["mlp_64"]
    assert list(fml.costs) == ["mlp_256"]
    ratio = (own.flops + cost.flops) / own.flops
    assert fml.flops == pytest.approx((alone.flops[0] * ratio, alone.flops[1]))
    parts, before = fml.node_memory(0).parts, alone.node_memory(0).parts
    assert parts["gradients"] == 4 * 4 * (own.parameters + cost.parameters)  # the plain step, for clipping
    assert parts["activations"] == 4 * max(own.activations + cost.activations, own.inference)
    assert parts["networks"] - before["networks"] == pytest.approx(4 * cost.state, rel=0.1)
    assert parts["arena"] == before["arena"]
    kept = forecast("models.list=['mlp_256']", "method.name=fedkd", ranks=5).node_memory(0).parts
    assert kept["arena"] == before["arena"] + 20 * 4 * alone.plan.dims[1] ** 2


def test_adam_remembers_two_numbers_per_parameter():
    said = forecast("models.list=['mlp_256']", "train.optimizer=adamw", ranks=5)
    assert said.node_memory(0).parts["gradients"] == 4 * 2 * 4 * said.costs["mlp_256"].parameters


def test_checkpoints_are_as_large_as_those_of_a_run(hpcfl):
    """The server's arrays lie in a zip file, and some are there only after the first round."""
    settings = ["method.name=fedtgp", "method.server_epochs=2", "federation.rounds=3"]
    settings += ["data.samples_per_class=200", "runtime.checkpoint_disk=3"]
    assert hpcfl("train", *(f"--set={s}" for s in settings), "--out", "run.h5").exit_code == 0
    said = checkpoint_sizes(forecast(*settings))
    assert said.clients == sum(path.stat().st_size for path in Path("run.h5.ckpt").glob("*.bin"))
    (server,) = Path("run.h5.ckpt").glob("*.npz")
    assert said.server == pytest.approx(server.stat().st_size, rel=0.3)
    assert said.disk == 3 * said.clients + 2 * said.server


def test_warnings():
    assert warnings(forecast()) == []
    assert "node 0 needs" in warnings(forecast(memory=0.0001))[0]
    assert "shared memory has 1000 B" in warnings(forecast(shared=1000))[0]
    assert "cuda:0 of node 0 needs" in warnings(forecast(devices=1, gpu=1000))[0]
    assert warnings(forecast("federation.participation=2")) == [
        "2 of 4 workers have no client to train in a round"
    ]
    assert warnings(forecast("federation.participation=3")) == [
        "1 of 4 workers has no client to train in a round"
    ]


def test_ranges():
    assert format_ranges([1, 2, 3, 7, 9, 10]) == "1–3, 7, 9, 10"


def test_the_command(hpcfl):
    said = hpcfl("plan", "-n", 5, "--set=data.samples_per_class=200", "--calibrate")
    assert said.exit_code == 0
    for word in (
        "mlp_taper",
        "share of the work",
        "node 0",
        "a round: up",
        "training in a round takes about",
        ", while rank 0 aggregates and refines for",
    ):
        assert word in said.output
    numbers = json.loads(hpcfl("plan", "-n", 5, "--set=data.samples_per_class=200", "--json").output)
    assert numbers["pools"][0]["ranks"] == [1, 2, 3, 4]
    assert numbers["round_seconds"] is None
    assert numbers["server_seconds"] is None
    assert len(numbers["node_bytes"]) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-n", "0"], "0 is not in the range"),
        (["-n", "3", "--nodes", "4"], "--nodes 4: more than -n 3 ranks"),
        (["-n", "3", "--set", "models.group=resnet18"], "resnet18 takes images"),
        (["-n", "3", "none.toml"], "cannot read configuration none.toml"),
        (["-n", "3", "--memory", "nan"], "--memory nan: must be a number of GiB"),
        (["-n", "3", "--devices", "1", "--calibrate"], "--calibrate: there is no GPU here to try"),
        (["-n", "3", "--set", "models.pretrained.mlp_64=none.pt"], "none.pt: No such file"),
        (["-n", "3", "--set", "runtime.device=cuda"], "this node has no cuda device"),
    ],
)
def test_wrong_input(hpcfl, arguments, says):
    done = hpcfl("plan", *arguments)
    assert done.exit_code == 2
    assert says in done.output
    assert "Traceback" not in done.output
