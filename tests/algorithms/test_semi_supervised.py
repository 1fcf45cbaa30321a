"""The semi-supervised phase of a client: which samples, which labels, which views."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch

from hpcfl.algorithms import semi_supervised
from hpcfl.algorithms.semi_supervised import ActiveSet, SemiSupervised, weak_augmentation
from hpcfl.config.loading import load_config
from hpcfl.config.schema import DataConfig
from hpcfl.data.dataset import Dataset
from hpcfl.federation.run_plan import RunPlan, plan_run
from hpcfl.log.reader import read_log
from hpcfl.methods.local_loss import LocalLoss
from hpcfl.methods.prototypes import ClassMeans, Prototypes
from hpcfl.methods.spec import PrototypeSpec
from hpcfl.models.network import Network
from hpcfl.training.samples import SampleSource
from hpcfl.training.step.options import StepOptions
from hpcfl.training.step.step import Step
from tests.helpers.cases import KSHOT


class Bare(Step):
    """A step whose features are the inputs themselves."""

    def __init__(self) -> None:
        self.network = Network(torch.nn.Identity(), torch.nn.Identity())
        self.options = StepOptions()


@pytest.fixture
def plan() -> RunPlan:
    return plan_run(load_config(None, ["data.samples_per_class=200", *KSHOT, "method.mix=0.25"]))


def phase_of(plan: RunPlan) -> SemiSupervised:
    assert isinstance(plan.spec, PrototypeSpec)
    return SemiSupervised(plan, plan.spec)


def points(x: list[list[float]], y: list[int]):
    data = Dataset(np.array(x, dtype=np.float32), np.array(y), tuple("abc"), len(y), "")
    return SampleSource(data, DataConfig(), torch.device("cpu")).samples(np.arange(len(y)))


AXES = Prototypes(torch.eye(3), torch.tensor([True, True, True]))
POOL: list[list[float]] = [[9.0, 1, 0], [0, 1, 0], [1, 1, 0], [0, 0, 3]]
"""Near class 0; exactly class 1; between both; class 2."""


def test_pseudo_labels_come_from_prototypes_and_not_from_the_hidden_labels(plan):
    """All hidden labels are wrong; the third sample has no margin; class 2 is not the client's own."""
    own = Prototypes(AXES.value_KD, torch.tensor([True, True, False]))
    limits = torch.tensor([0.5, 0.2])
    found, _ = phase_of(plan).active_set(0, 0, Bare(), points(POOL, [2, 0, 1, 1]), own, limits)
    assert found.samples.index_N.tolist() == [0, 1]
    assert found.label_N.tolist() == [0, 1]
    assert found.num_correct == 0
    everyone, _ = phase_of(plan).active_set(0, 0, Bare(), points(POOL, [0, 1, 0, 2]), AXES, limits)
    assert (everyone.label_N.tolist(), everyone.num_correct) == ([0, 1, 2], 3)


def test_every_accepted_sample_comes_before_any_comes_again():
    active = ActiveSet(points(POOL, [0, 1, 0, 2]), torch.tensor([5, 6, 7, 8]), 0)
    taken = list(islice(active.batches(3, np.random.default_rng(0), None), 4))
    assert [len(x) for x, _ in taken] == [3] * 4
    labels = torch.cat([y for _, y in taken]).tolist()
    assert sorted(labels[:4]) == sorted(labels[4:8]) == sorted(labels[8:]) == [5, 6, 7, 8]
    for x_B, y_B in taken:
        assert x_B.tolist() == [POOL[y - 5] for y in y_B.tolist()]
    assert len(next(active.batches(99, np.random.default_rng(0), None))[0]) == 4


def test_mixed_prototypes_use_pseudo_labels_with_their_weight(plan):
    means = ClassMeans(3, 3)
    means.add(torch.tensor([[1.0, 0, 0]]), torch.tensor([0]))
    active = ActiveSet(points([[0.0, 4, 0], [0, 0, 2]], [1, 1]), torch.tensor([0, 2]), 0)
    phase_of(plan).add_to_means(active, 0, 0, Bare(), means)
    got = means.prototypes().value_KD
    torch.testing.assert_close(got[0], torch.tensor([1.0, 0.25 * 4, 0]) / 1.25)
    torch.testing.assert_close(got[2], torch.tensor([0.0, 0, 2]))


def test_running_means_have_met_labelled_samples_once_per_epoch():
    settings = ["data.samples_per_class=200", *KSHOT, "method.prototypes=running", "train.epochs=3"]
    means = ClassMeans(3, 3)
    phase_of(plan_run(load_config(None, settings))).add_to_means(
        ActiveSet(points([[0.0, 4, 0]], [1]), torch.tensor([0]), 0),
        0,
        0,
        Bare(),
        means,
    )
    assert means.count_K[0] == 0.5 * 3


def test_weak_and_strong_views(plan, monkeypatch):
    """Characters are not mirrored; the strong view is the weak one and RandAugment."""
    assert weak_augmentation(characters=True) == ("crop",)
    assert weak_augmentation(characters=False) == ("crop", "flip")
    asked: list[tuple[int, tuple[str, ...]]] = []
    monkeypatch.setattr(
        semi_supervised,
        "augmentation_of",
        lambda plan, i, t, epoch, which, steps: asked.append((which, tuple(steps))),
    )
    phase = phase_of(plan)
    phase.active_set(0, 0, Bare(), points(POOL, [0, 1, 0, 2]), AXES, torch.tensor([0.5, 0.2]))
    assert asked == [(semi_supervised.WEAK, ("crop", "flip"))]
    asked.clear()
    active = ActiveSet(points(POOL, [0, 1, 0, 2]), torch.tensor([0, 1, 0, 2]), 0)
    next(phase.batches(active, 0, 0, 0))
    phase.add_to_means(active, 0, 0, Bare(), ClassMeans(3, 3))
    assert asked == [(semi_supervised.STRONG, ("crop", "flip", "randaugment"))] * 2


def test_what_is_accepted_matters_to_prototypes_and_to_training(hpcfl):
    """Full runs that differ in α or λ_cons alone: the first changes uploads, the second the networks too."""
    small = [
        "data.samples_per_class=200",
        "federation.rounds=3",
        "models.features=8",
        "log.local_prototypes=true",
    ]
    logs = {}
    for name, more in {"as is": [], "mix": ["method.mix=0.0"], "cons": ["method.consistency=0.0"]}.items():
        given = (f"--set={s}" for s in (*small, *KSHOT, "log.prototypes_every=1", *more))
        assert hpcfl("train", "--out", "run.h5", "--fresh", *given).exit_code == 0
        logs[name] = read_log("run.h5")
    local = {name: log["/prototypes/local"] for name, log in logs.items()}
    for name in ("mix", "cons"):
        np.testing.assert_array_equal(local[name][:2], local["as is"][:2])
        assert np.nanmax(np.abs(local[name][2] - local["as is"][2])) > 1e-4
    np.testing.assert_array_equal(logs["mix"]["/client/loss"], logs["as is"]["/client/loss"])
    assert (logs["cons"]["/round/loss"][2] < logs["as is"]["/round/loss"][2]).all()


def test_every_client_aligns_by_its_own_class_counts(hpcfl, monkeypatch):
    given: list[list[int]] = []
    original = LocalLoss.bind

    def looking(self, t, target, count_K):
        given.append(count_K.tolist())
        return original(self, t, target, count_K)

    monkeypatch.setattr(LocalLoss, "bind", looking)
    small = [
        "data.samples_per_class=200",
        "federation.rounds=2",
        "models.features=8",
        "method.class_weights=proportional",
    ]
    assert hpcfl("train", "--out", "run.h5", *(f"--set={s}" for s in small)).exit_code == 0
    assert sorted(given) == sorted(read_log("run.h5")["/clients/class_counts"].tolist())
