import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hpcfl.config.schema import DataConfig
from hpcfl.config.train import TrainConfig
from hpcfl.data.dataset import Dataset
from hpcfl.methods.local_loss import LocalLoss
from hpcfl.methods.prototypes import ClassMeans, Prototypes
from hpcfl.methods.spec import PrototypeSpec
from hpcfl.models.network import build_network
from hpcfl.training.epochs import batches, features, train_epochs
from hpcfl.training.samples import SampleSource
from hpcfl.training.step.options import StepOptions
from hpcfl.training.step.step import make_step

K, D = 6, 4
WAYS = [StepOptions(), StepOptions(direct=False, products=False, channels_last=False)]


@pytest.fixture
def samples():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(100, 2, generator=generator)
    y = torch.randint(0, K, (100,), generator=generator)
    data = Dataset(x.numpy(), y.numpy(), tuple("abcdef"), 100, "")
    return SampleSource(data, DataConfig(), torch.device("cpu")).samples(np.arange(10, 77))


@given(st.integers(1, 60), st.integers(1, 20), st.booleans())
def test_batches_hold_every_sample_once_and_merge_only_a_lonely_one(n, size, merge):
    order = np.random.default_rng(n).permutation(n)
    cut = batches(order, size, merge)
    np.testing.assert_array_equal(np.concatenate(cut), order)
    sizes = [len(batch) for batch in cut]
    assert all(length == size for length in sizes[:-2])
    if merge and n > 1 and size > 1:
        assert min(sizes) > 1
    if not merge or size == 1:
        assert max(sizes) <= size


@given(st.integers(1, 60), st.integers(1, 20), st.booleans())
def test_a_dropped_last_batch_leaves_the_full_ones(n, size, merge):
    order = np.random.default_rng(n).permutation(n)
    cut = batches(order, size, merge, drop_last=True)
    assert [len(batch) for batch in cut if len(batch)] == [size] * (n // size)
    np.testing.assert_array_equal(np.concatenate(cut), order[: n // size * size])


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_training_is_the_plain_loop_with_eq_4(samples, momentum, way):
    """The same steps written out: cross-entropy + λ·MSE to the prototype of the label, torch's SGD."""
    torch.manual_seed(1)
    ours, plain = build_network("mlp_64", (2,), K, D), build_network("mlp_64", (2,), K, D)
    plain.load_state_dict(ours.state_dict())
    target = Prototypes(torch.randn(K, D), torch.tensor([True] * 5 + [False]))
    settings = TrainConfig(lr=0.1, batch_size=16, epochs=2, momentum=momentum)
    optimiser = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=momentum)

    bound = LocalLoss(PrototypeSpec(about="", paper="", page="", weight=10.0)).bind(0, target, torch.ones(K))
    loss = train_epochs(
        make_step(ours, settings, way),
        samples,
        lambda outputs: bound(outputs.z_BD, outputs.y_B),
        lambda epoch: np.random.default_rng(epoch),
    )

    losses, correct = [], 0
    for epoch in range(2):
        order = np.random.default_rng(epoch).permutation(67)
        for start in range(0, 67, 16):
            rows = samples.index_N[torch.from_numpy(order[start : start + 16])]
            z = plain.extractor(samples.source.x[rows])
            logits = plain.head(z)
            labels = samples.source.y[rows]
            aligned = torch.stack(
                [
                    ((z[b] - target.value_KD[labels[b]]) ** 2).mean() * target.present_K[labels[b]]
                    for b in range(len(rows))
                ]
            ).mean()
            correct += sum(int(logits[b].argmax()) == labels[b] for b in range(len(rows)))
            mean = -torch.log_softmax(logits, 1)[range(len(rows)), labels].mean() + 10 * aligned
            optimiser.zero_grad()
            mean.backward()
            optimiser.step()
            losses.append((mean.item(), len(rows)))
    for got, want in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-6)
    assert loss["loss"] == pytest.approx(sum(value * n for value, n in losses) / (2 * 67), rel=1e-4)
    assert loss["loss"] == pytest.approx(loss["ce"] + 10 * loss["align"])
    assert loss["train_accuracy"] == correct / (2 * 67), "before each step, over all epochs"


def test_running_prototypes_collect_the_features_met_in_training(samples):
    network = build_network("mlp_64", (2,), K, D)
    seen = ClassMeans(K, D)
    train_epochs(
        make_step(network, TrainConfig(epochs=3), StepOptions()),
        samples,
        None,
        np.random.default_rng,
        lambda outputs: seen.add(outputs.z_BD, outputs.y_B),
    )
    assert seen.count_K.tolist() == (3 * torch.bincount(samples.labels_N, minlength=K)).tolist()


def test_features_are_those_of_eval_mode_in_order_for_any_batch(samples):
    network = build_network("mlp_64", (2,), K, D)
    network.train()
    parts = list(features(make_step(network, TrainConfig(), StepOptions()), samples, 20))
    assert not network.training
    assert [len(z) for z, _ in parts] == [20, 20, 20, 7]
    torch.testing.assert_close(torch.cat([z for z, _ in parts]), network.extractor(samples.source.x[10:77]))
    assert torch.equal(torch.cat([y for _, y in parts]), samples.source.y[10:77])


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_parameter_that_the_loss_does_not_reach_stays_as_it_is(samples, way):
    network = build_network("mlp_64", (2,), K, D)
    network.extractor.register_parameter("unused", torch.nn.Parameter(torch.ones(3)))
    loss = train_epochs(
        make_step(network, TrainConfig(momentum=0.5), way), samples, None, np.random.default_rng
    )
    assert np.isfinite(loss["loss"])
    assert network.extractor.get_parameter("unused").eq(1).all()


@pytest.mark.parametrize(("n", "size"), [(1, 32), (2, 32), (33, 32), (65, 32), (3, 1)])
def test_batch_norm_trains_on_any_number_of_samples(n, size):
    """33 and 65 leave one over, which joins the batch before; a single sample uses what batch-norm knows."""
    x = np.random.default_rng(0).integers(0, 256, (n, 16, 16, 3), dtype=np.uint8)
    half = np.full(3, 0.5)
    data = Dataset(x, np.arange(n) % 3, tuple("abc"), n, "", mean_C=half, std_C=half)
    torch.manual_seed(0)
    network = build_network("resnet4", (3, 16, 16), 3, 8)
    before = [p.clone() for p in network.parameters()]
    samples = SampleSource(data, DataConfig(), torch.device("cpu")).samples(np.arange(n))
    trained = make_step(network, TrainConfig(batch_size=size), StepOptions())
    assert np.isfinite(train_epochs(trained, samples, None, np.random.default_rng)["loss"])
    assert any(not torch.equal(p, q) for p, q in zip(before, network.parameters(), strict=True))
    counters = {int(b) for name, b in network.named_buffers() if name.endswith("num_batches_tracked")}
    assert counters == {{1: 0, 2: 1, 33: 1, 65: 2, 3: 0}[n]}
    assert all(module.training for module in network.modules())
    for z_BD, _ in features(trained, samples, 64):
        assert torch.isfinite(z_BD).all()


@pytest.mark.parametrize("name", ["googlenet", "efficientnet_b0", "cnn_femnist"])
def test_dropout_and_stochastic_depth_follow_torchs_seed_alone(name):
    """The worker seeds by (seed, client, round) before each client: the same key gives the same bits."""
    torch.manual_seed(0)
    network = build_network(name, (3, 32, 32), 3, 8)
    network.train()
    x = torch.randn(8, 3, 32, 32)
    outputs = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        outputs.append(network(x))
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])
