"""FedTGP's and FedORGP's server training: losses by loops, gradients by finite differences, state."""

import itertools
import math
from functools import partial

import pytest
import torch
from torch.nn.functional import cosine_similarity, cross_entropy, one_hot

from hpcfl.config.schema import Config
from hpcfl.config.train import TrainConfig
from hpcfl.methods.aggregate import Upload
from hpcfl.methods.prototypes import Prototypes
from hpcfl.methods.refine.orthogonal import orthogonality
from hpcfl.methods.refine.tgp import Tgp, contrastive, separation
from hpcfl.methods.refine.trainable import TrainablePrototypes
from hpcfl.utils import seeds
from tests.helpers.methods import build

K, D = 4, 3
CONFIG = Config(train=TrainConfig(lr=0.05, batch_size=4))


def sent(rows: dict[int, list[float]], client: int = 0) -> Upload:
    """Returns the upload of a client that has these classes."""
    value_KD, present_K = torch.zeros(K, D), torch.zeros(K, dtype=torch.bool)
    for k, row in rows.items():
        value_KD[k], present_K[k] = torch.tensor(row), True
    return Upload(Prototypes(value_KD, present_K), torch.zeros(K, dtype=torch.int64), client)


UPLOADS = [
    sent({0: [0.0, 0, 0], 1: [3.0, 0, 0]}),
    sent({0: [0.0, 2, 0], 2: [0.0, 1, 9]}),
    sent({1: [3.0, 2, 0], 2: [0.0, 1, 11]}),
]
"""Means: class 0 (0, 1, 0), class 1 (3, 1, 0), class 2 (0, 1, 10); class 3 is nobody's."""


CLASSES = [0, 1, 2, 2, 3]


def batch(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns five uploads, the one-hot rows of their classes, and global prototypes."""
    draw = torch.Generator().manual_seed(seed)
    return (
        torch.randn(5, D, dtype=torch.float64, generator=draw),
        one_hot(torch.tensor(CLASSES), K).double(),
        torch.randn(K, D, dtype=torch.float64, generator=draw),
    )


@pytest.mark.parametrize("delta", [0.0, 2.5])
def test_the_contrastive_loss_is_eq_6_without_and_eq_10_with_a_margin(delta):
    sent_BD, own_BK, proto_KD = batch()
    total = 0.0
    for row, y in zip(sent_BD.tolist(), CLASSES, strict=True):
        apart = [math.dist(row, other) for other in proto_KD.tolist()]
        above = math.exp(-(apart[y] + delta))
        total -= math.log(above / (above + sum(math.exp(-a) for c, a in enumerate(apart) if c != y)))
    assert contrastive(sent_BD, own_BK, proto_KD, delta)[0].item() == pytest.approx(total / 5)


def test_orthogonality_is_eq_5():
    sent_BD, own_BK, proto_KD = batch()
    intra = inter = 0.0
    for row, y in zip(sent_BD.tolist(), CLASSES, strict=True):
        for c, other in enumerate(proto_KD.tolist()):
            cosine = sum(map(float.__mul__, row, other)) / math.hypot(*row) / math.hypot(*other)
            intra += cosine / 5 if c == y else 0
            inter += abs(cosine) / 5 / (K - 1) if c != y else 0
    got, _ = orthogonality(sent_BD, own_BK, proto_KD, pull=2.0, push=7.0)
    assert got.item() == pytest.approx(2 * (1 - intra) + 7 * inter)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "loss",
    [partial(contrastive, delta=1.5), partial(orthogonality, pull=1.0, push=10.0)],
    ids=["contrastive", "orthogonality"],
)
def test_gradients_by_finite_differences(loss, seed):
    sent_BD, own_BK, proto_KD = batch(seed)
    gradient_KD = loss(sent_BD, own_BK, proto_KD)[1]
    for k, d in itertools.product(range(K), range(D)):
        shift_KD = torch.zeros(K, D, dtype=torch.float64)
        shift_KD[k, d] = 1e-6
        higher, lower = (loss(sent_BD, own_BK, proto_KD + sign * shift_KD)[0] for sign in (1, -1))
        assert gradient_KD[k, d].item() == pytest.approx((higher - lower).item() / 2e-6, abs=1e-7)


def test_a_prototype_on_an_upload_gets_no_gradient_from_it():
    """The distance 0 has no slope: only the other prototype is pushed, by both uploads."""
    proto_KD = torch.eye(2, dtype=torch.float64)
    _, both_KD = contrastive(proto_KD[:1], torch.tensor([[1.0, 0.0]]).double(), proto_KD, 1.0)
    assert both_KD[0].abs().max() < 1e-9
    assert both_KD[1].abs().max() > 0.1


def test_delta_by_hand():
    """Means (0,1,0), (3,1,0), (0,1,10): nearest others are 3, 3 and 10 away, the farthest pair √109."""
    assert separation(UPLOADS, "max-min") == pytest.approx(10)
    assert separation(UPLOADS, "max-pair") == pytest.approx(math.sqrt(109))
    assert math.isnan(separation([sent({1: [1.0, 2, 3]})], "max-min"))
    assert math.isnan(separation([sent({1: [1.0, 2, 3]})], "max-pair"))


@pytest.mark.parametrize(
    ("settings", "delta"),
    [
        ({}, 10),
        ({"margin": "max-pair"}, math.sqrt(109)),
        ({"tau": 4.0}, 4),
        ({"margin": "fixed", "tau": 7.0}, 7),
        ({"name": "fedtgp-fm"}, 100),
        ({"name": "fedtgp-scl"}, 0),
    ],
)
def test_delta_is_bounded_by_tau_and_fixed_or_none_in_the_ablations(settings, delta):
    method = build((K, D), config=CONFIG, **({"name": "fedtgp", "server_epochs": 1} | settings))
    method.update_global(0, Prototypes.none(K, D), UPLOADS)
    assert method.refine.stats.delta == pytest.approx(delta)


def test_a_round_with_one_class_keeps_the_last_delta_at_first_zero():
    method = build((K, D), config=CONFIG, name="fedtgp", server_epochs=1)
    assert isinstance(method.refine, Tgp)
    alone = [sent({1: [1.0, 2, 3]})]
    last = method.update_global(0, Prototypes.none(K, D), alone)
    assert method.refine.delta == 0
    last = method.update_global(1, last, UPLOADS)
    method.update_global(2, last, alone)
    assert method.refine.delta == pytest.approx(10)


@pytest.mark.parametrize("name", ["fedtgp", "fedorgp"])
def test_the_server_may_have_its_own_learning_rate_and_batch_size(name):
    """Its training is then that of clients with these values; unset, it has theirs."""
    own = build((K, D), name=name, server_epochs=3, server_lr=0.05, server_batch=4)
    theirs, plain = (build((K, D), config=c, name=name, server_epochs=3) for c in (CONFIG, Config()))
    results = [each.update_global(5, Prototypes.none(K, D), UPLOADS) for each in (own, theirs, plain)]
    assert results[0].equals(results[1])
    assert not results[0].equals(results[2])
    assert own.refine.stats.iterations == 6, "two batches of six uploads, three epochs"


@pytest.mark.parametrize("name", ["fedtgp", "fedtgp-without-f", "fedorgp"])
def test_a_round_is_so_many_epochs_of_sgd_on_all_uploads(name):
    """Written out: rows in client order, shuffled by key, batches of 4 and 2, plain SGD."""
    method = build((K, D), config=CONFIG, name=name, server_epochs=3)
    assert isinstance(method.refine, TrainablePrototypes)
    weights = {
        key: value.clone().requires_grad_() for key, value in method.refine.state().items() if key != "delta"
    }
    rows = torch.cat([u.prototypes.value_KD[u.prototypes.present_K] for u in UPLOADS])
    y = torch.tensor([0, 1, 0, 2, 1, 2])
    for epoch in range(3):
        order = torch.from_numpy(seeds.generator(0, "server shuffle", 5, epoch).permutation(6))
        for which in (order[:4], order[4:]):
            proto = weights["table"]
            if name != "fedtgp-without-f":
                hidden = torch.relu(proto @ weights["w1"].T + weights["b1"])
                proto = hidden @ weights["w2"].T + weights["b2"]
            own = one_hot(y[which], K).bool()
            if name == "fedorgp":
                cosine = cosine_similarity(rows[which][:, None], proto[None], dim=2)
                loss = 1 - cosine[own].mean() + 10 * cosine[~own].abs().mean()
            else:
                loss = cross_entropy(-(torch.cdist(rows[which], proto) + 10.0 * own), y[which])
            for weight, slope in zip(
                weights.values(), torch.autograd.grad(loss, list(weights.values())), strict=True
            ):
                weight.data -= 0.05 * slope
    got = method.update_global(5, Prototypes.none(K, D), UPLOADS)
    for key, weight in weights.items():
        torch.testing.assert_close(method.refine.state()[key], weight.detach(), rtol=1e-4, atol=1e-5)
    assert got.present_K.all(), "classes that nobody has are sent too"
    assert method.refine.stats.iterations == 6
    assert math.isfinite(method.refine.stats.loss)


@pytest.mark.parametrize("name", ["fedtgp", "fedtgp-without-f", "fedorgp"])
def test_the_state_of_the_server_survives_a_restart(name):
    """Two rounds, and two rounds with a new server in between that only has the state: the same bits.

    The second round has one class, so that FedTGP keeps the first one's δ.
    """
    alone = [sent({1: [1.0, 2, 3]})]
    whole = build((K, D), config=CONFIG, name=name, server_epochs=2)
    shared = whole.update_global(0, Prototypes.none(K, D), UPLOADS)
    kept = {key: value.clone() for key, value in whole.refine.state().items()}
    want = whole.update_global(1, shared, alone)
    new = build((K, D), config=CONFIG, name=name, server_epochs=2)
    new.refine.load(kept)
    got = new.update_global(1, shared, alone)
    assert got.equals(want)
    assert new.refine.stats.delta == whole.refine.stats.delta or name == "fedorgp"


@pytest.mark.parametrize("name", ["fedtgp", "fedtgp-without-f", "fedorgp"])
def test_more_epochs_bring_a_smaller_loss(name):
    losses = []
    for epochs in (1, 100):
        method = build((K, D), config=CONFIG, name=name, server_epochs=epochs)
        method.update_global(0, Prototypes.none(K, D), UPLOADS)
        losses.append(method.refine.stats.loss)
    assert losses[1] < 0.7 * losses[0]
