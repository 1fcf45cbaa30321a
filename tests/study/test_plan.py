"""`hpcfl study plan`: FLOPs and time of a study's runs, by numbers derived by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcfl.config.loading import load_config
from hpcfl.data.stand_in import SIZES, dataset_or_stand_in
from hpcfl.errors import BadInput
from hpcfl.plan.machine import machine_like_here
from hpcfl.study.plan import work_of

TINY = [
    *("data.name=cifar10", "partition.name=iid", "models.group=cnn", "method.name=local"),
    *("federation.clients=4", "federation.rounds=10"),
]


def test_work_of_equal_clients_by_hand():
    """Four clients with 11250 of 60000 images each: three passes to train, and each other pass once.

    Two workers take two clients each, so a round is as long as two clients' work.
    """
    machine = machine_like_here(3, 1, 0, 3, None, None)
    work = work_of(load_config(None, TINY), machine, 10.0)
    per_sample = work.flops / 10 / (4 * (4 * 11250 + 3750))
    assert per_sample == round(per_sample)
    assert work.seconds == pytest.approx(work.flops / 2 / 1e10)
    assert work_of(load_config(None, TINY), machine, 20.0).seconds == pytest.approx(work.seconds / 2)


def test_a_stand_in_has_the_size_of_the_dataset():
    data = dataset_or_stand_in(load_config(None, ["data.name=cifar100"]).data)
    assert (len(data.y), data.shape, data.classes, data.num_train) == (60000, (3, 32, 32), 100, 50000)
    assert data.x.base is None or data.x.strides == (0, 0, 0, 0)
    with pytest.raises(BadInput, match=r"data.name = 'mnist': not prepared"):
        dataset_or_stand_in(load_config(None, ["data.name=mnist"]).data)
    assert SIZES["flowers102-squash"][0] == (64, 64, 3)


def test_the_command_sums_over_methods_and_seeds(hpcfl):
    Path("s.toml").write_text(
        "[set]\ndata.name = 'cifar10'\npartition.name = 'iid'\nmodels.group = 'cnn'\nfederation.rounds = 10\n"
        "[[block]]\nname = 'b'\ngrid.method.name = ['local', 'fedproto']\ngrid.seed = [0, 1, 2]\n"
    )
    lines = hpcfl("study", "plan", "s.toml", "-n", "21", "--speed", "10").output.splitlines()
    assert [line.partition(",")[0] for line in lines[:2]] == ["local: 3 runs", "fedproto: 3 runs"]
    assert lines[2].startswith("s: 6 runs, ")
    assert lines[2].endswith(" on 21 ranks, each on its own core, at 10 GFLOP/s each")
    gpus = hpcfl("study", "plan", "s.toml", "--devices", "4").output
    assert "on 4 GPUs, at 1000 GFLOP/s each" in gpus
    assert hpcfl("study", "plan", "s.toml", "--speed", "0").exit_code == 2
