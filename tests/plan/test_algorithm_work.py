"""What algorithms compute beside passes through the clients' networks, by numbers derived by hand.

K = 6 classes, d = 8 features. A matrix product counts two per multiply-add, and a backward pass as two.
"""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hpcfl.algorithms.build import build_algorithm
from hpcfl.config.loading import load_config
from hpcfl.exchange.codec import ClientUpload
from hpcfl.exchange.payload import ClassRows
from hpcfl.federation.run_plan import plan_run
from hpcfl.plan.algorithm_work import algorithm_flops
from tests.helpers.cases import FEW
from tests.helpers.runs import options

HEAD = 2 * 8 * 6
"""FLOPs of a linear head for one feature vector."""


def algorithm_of(*settings: str):
    return build_algorithm(plan_run(load_config(None, [*FEW, *settings])), torch.device("cpu"))


def num_uploaded(algorithm, clients: list[int]) -> int:
    """Returns the number of prototypes that these clients upload: Σ K_i."""
    return sum(int((algorithm.plan.class_counts_MK[i] > 0).sum()) for i in clients)


def samples_of(algorithm, client: int) -> int:
    return len(algorithm.plan.clients[client].train)


def test_a_generator_is_trained_and_makes_features():
    """G: 3 numbers of noise and a label → 8 → 8. Each batch has 32 labels, also a client's last one."""
    settings = ["method.name=fedgen", "method.noise=3", "method.server_steps=10", "train.epochs=2"]
    fedgen = algorithm_of(*settings)
    make = 2 * ((3 + 6) * 8 + 8 * 8)
    assert fedgen.server_flops([1, 4, 5]) == 10 * 32 * (3 * make + 2 * HEAD)
    batches = 2 * math.ceil(samples_of(fedgen, 4) / 32)
    assert fedgen.client_flops(4) == batches * 32 * (make + 3 * HEAD)

    deep = algorithm_of(*settings, "models.head=mlp128")  # the heads of all uploads, not their mean
    heads = 3 * 2 * (8 * 128 + 128 * 6)
    assert deep.server_flops([1, 4, 5]) == 10 * 32 * (3 * make + 2 * heads)
    initial = algorithm_of(*settings, "method.generator=initial")
    assert (initial.server_flops([1, 4, 5]), initial.client_flops(4)) == (0, fedgen.client_flops(4))
    none = algorithm_of(*settings, "method.generator=none")
    assert (none.server_flops([1]), none.client_flops(4)) == (0, 0)


def test_classifiers_are_trained_on_prototypes():
    """FedMPS: six epochs, and logits of all six rows of each upload; the lower level has 16 features."""
    fedgh = algorithm_of("method.name=fedgh", "method.server_epochs=5")
    rows = num_uploaded(fedgh, [2, 3])
    assert fedgh.server_flops([2, 3]) == 3 * 5 * rows * HEAD
    assert fedgh.client_flops(2) == 0
    fedmps = algorithm_of("method.name=fedmps", "train.batch_size=7")
    assert fedmps.server_flops([2, 3]) == (3 * 6 * rows + 2 * 6) * HEAD
    full, rest = divmod(samples_of(fedmps, 2), 7)
    assert fedmps.client_flops(2) == 3 * 2 * (8 + 16) * (full * 14**2 + (2 * rest) ** 2)


@pytest.mark.parametrize("published", [False, True])
def test_factors(published):
    """g: 64 × 2, 8 × 64 and 6 × 8. 4n²m + 9n³ are 1096, 20,992 and 3096, in all 25,184.

    Factors are smaller up to ranks 1, 7 and 3; published ones have at most 1, 7 and 5. Products are 2nm·rank.
    """
    settings = ["method.name=fedkd", "method.auxiliary=mlp_64", f"method.published={str(published).lower()}"]
    fedkd = algorithm_of(*settings)
    assert fedkd.client_flops(3) == 3 * 2 * 8 * 8 * samples_of(fedkd, 3) + 25_184
    multiply = 256 + 7168 + (480 if published else 288)
    assert fedkd.server_flops([0, 1, 2, 3]) == 4 * multiply + 25_184


@pytest.mark.parametrize("name", ["fedgen", "fedkd", "fedmps"])
def test_batches_that_are_left_out_cost_nothing(name):
    """A second epoch without the last, smaller batch has the FLOPs of its full batches."""
    settings = [f"method.name={name}", "train.batch_size=7", "train.drop_last=true"]
    one, two = algorithm_of(*settings), algorithm_of(*settings, "train.epochs=2")
    client = max(range(20), key=lambda i: samples_of(one, i))
    full, rest = divmod(samples_of(one, client), 7)
    assert full
    assert rest
    per_batch = {
        "fedgen": 7 * (2 * ((32 + 6) * 8 + 8 * 8) + 3 * HEAD),
        "fedkd": 7 * 3 * 2 * 8 * 8,
        "fedmps": 3 * 2 * (8 + 16) * 14**2,
    }
    assert two.client_flops(client) - one.client_flops(client) == full * per_batch[name]


class ProductCounter(TorchDispatchMode):
    """Counts the FLOPs of all matrix products, also of those that write into their first argument."""

    flops = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if "mm" in function.overloadpacket.__name__:
            left, right = [each for each in args if isinstance(each, torch.Tensor)][-2:]
            self.flops += 2 * left.shape[0] * left.shape[1] * right.shape[1]
        return function(*args, **(kwargs or {}))


def test_a_server_network():
    """In each step six products with K·d² multiply-adds, and for each upload two with K·d; no more."""
    for name, network in (("fedtgp", 12 * 6 * 8 * 8), ("fedorgp", 12 * 6 * 8 * 8), ("fedtgp-without-f", 0)):
        algorithm = algorithm_of(f"method.name={name}", "method.server_epochs=3", "method.server_batch=4")
        clients = [2, 3, 7, 9]
        rows = num_uploaded(algorithm, clients)
        said = algorithm.server_flops(clients)
        assert said == 3 * (math.ceil(rows / 4) * network + 4 * rows * 6 * 8)
        owned = {i: torch.from_numpy(algorithm.plan.class_counts_MK[i] > 0) for i in clients}
        uploads = [
            ClientUpload(i, False, {"prototypes": ClassRows(torch.rand(6, 8) * owned[i][:, None], owned[i])})
            for i in clients
        ]
        with ProductCounter() as counter:
            algorithm.aggregate(0, {}, uploads)
        last = network // 3  # the prototypes that are sent: a forward pass
        assert counter.flops == said + last, name


@pytest.mark.parametrize("name", ["local", "fedproto", "protonorm", "lg-fedavg", "feddistill", "fml"])
def test_others_compute_nothing_beside(name):
    algorithm = algorithm_of(f"method.name={name}")
    assert algorithm_flops(algorithm, [np.array([1, 2]), np.array([3])]) == (0, 0)


def test_means_over_rounds():
    fedgen = algorithm_of("method.name=fedgen")
    clients, server = algorithm_flops(fedgen, [np.array([1, 2]), np.array([3])])
    assert clients == sum(map(fedgen.client_flops, (1, 2, 3))) / 2
    assert server == fedgen.server_flops([1])


def test_the_command_says_both(hpcfl):
    settings = options(*FEW, "method.name=fedgen")
    said = json.loads(hpcfl("plan", "-n", 3, "--json", *settings).output)
    fedgen = algorithm_of("method.name=fedgen")
    assert said["flops_server"] == fedgen.server_flops([0])
    assert said["flops_algorithm"] > 0
    text = hpcfl("plan", "-n", 3, *settings).output
    assert "fedgen computes beside it: " in text
    assert "MFLOP on rank 0" in text
    assert "computes beside it" not in hpcfl("plan", "-n", 3, *options(*FEW, "method.name=fml")).output
