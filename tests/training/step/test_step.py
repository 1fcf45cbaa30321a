"""Layers that move their own weights do what torch's layers and its SGD do."""

from __future__ import annotations

import copy
from contextlib import nullcontext

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from hpcfl.config.schema import Config, RuntimeConfig
from hpcfl.config.train import TrainConfig
from hpcfl.errors import Fatal
from hpcfl.models.network import Network, build_network
from hpcfl.training.step.layers import conv_axis
from hpcfl.training.step.optimizer import Optimizer, OptimizerInBackward
from hpcfl.training.step.options import StepOptions, step_options
from hpcfl.training.step.step import WARMUP, BatchOutputs, GraphStep, make_step

PLAIN = StepOptions(direct=False, products=False, channels_last=False)
small = st.integers(1, 5)


def moved_alike(layer: nn.Module, shape: tuple[int, ...], momentum: float, steps: int = 3) -> None:
    """Trains the layer in both ways, in float64, and compares outputs, input gradients and parameters."""
    plain = copy.deepcopy(layer.double())
    ours = layer.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    train = TrainConfig(lr=0.1, momentum=momentum)
    optimizer = StepOptions().optimizer(ours, train)
    optimiser = torch.optim.SGD(plain.parameters(), 0.1, momentum)
    for _ in range(steps):
        x = torch.randn(shape, dtype=torch.float64)
        one, two = x.clone().requires_grad_(), x.clone().requires_grad_()
        y_one, y_two = ours(one), plain(two)
        torch.testing.assert_close(y_one, y_two)
        weight = torch.randn_like(y_two)
        optimizer.step((y_one * weight).sum())
        optimiser.zero_grad()
        (y_two * weight).sum().backward()
        optimiser.step()
        torch.testing.assert_close(one.grad, two.grad)
        for got, want in zip(ours.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(got, want)
            assert got.grad is None


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(small, small),
    st.tuples(small, small),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(0, 2), st.integers(0, 2)),
    st.sampled_from([1, 2, 70]),
    st.booleans(),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from([1, 4]),
)
def test_convolutions(size, kernel, stride, padding, batch, bias, momentum, groups):
    """Of every shape: as a product, by its taps that meet pixels, depthwise, or as torch does it."""
    assume(all(s + 2 * p >= k for s, k, p in zip(size, kernel, padding, strict=True)))
    torch.manual_seed(0)
    layer = nn.Conv2d(4, 4, kernel, stride, padding, groups=groups, bias=bias)
    moved_alike(layer, (batch, 4, *size), momentum)


@pytest.mark.parametrize("shape", [(3, 90), (70, 90), (2, 5, 90)])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_linear_layers(shape, momentum):
    torch.manual_seed(0)
    moved_alike(nn.Sequential(nn.Linear(90, 100), nn.ReLU(inplace=True)), shape, momentum)


def test_of_a_kernel_on_a_single_pixel_one_tap_is_used():
    found = conv_axis(1, 3, 1, 1)
    assert found is not None
    assert (found.outputs, found.first, found.taps, found.before, found.after) == (1, 1, 1, 0, 0)
    found = conv_axis(2, 3, 2, 1)  # one output, at pixels 0 and 1, by the second and third tap
    assert found is not None
    assert (found.outputs, found.first, found.taps, found.before, found.after) == (1, 1, 2, 0, 0)


class Twice(nn.Module):
    """Uses one weight twice, in turn, and another's weight by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(100, 100), nn.Linear(100, 100)
        self.unused = nn.Linear(100, 100)

    def forward(self, x):
        return self.one(self.one(x)) + nn.functional.linear(x, self.one.weight) + self.two(x)


def test_a_weight_with_several_uses_moves_once_by_all_of_them():
    torch.manual_seed(0)
    moved_alike(Twice(), (4, 100), 0.5)


USES = {
    "before": lambda layer, x: layer(nn.functional.linear(x, layer.weight)),
    "after": lambda layer, x: nn.functional.linear(layer(x), layer.weight),
    "beside": lambda layer, x: layer(x) + layer.weight.sum(),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_a_use_that_no_layer_sees_is_never_wrong_in_silence(use, momentum):
    torch.manual_seed(0)
    layer = nn.Linear(100, 100)
    optimizer = StepOptions().optimizer(layer, TrainConfig(momentum=momentum))
    with pytest.raises(Fatal, match="train it with runtime"):
        optimizer.step(USES[use](layer, torch.randn(4, 100, requires_grad=True)).sum())


@pytest.mark.filterwarnings("ignore:.*weight_norm.*deprecated")
def test_a_weight_that_is_computed_from_others_moves_by_them():
    torch.manual_seed(0)
    layer = nn.Linear(100, 100)
    nn.utils.weight_norm(layer)
    optimizer = StepOptions().optimizer(layer, TrainConfig(lr=0.1))
    before = layer.get_parameter("weight_v").clone()
    optimizer.step(layer(torch.randn(4, 100)).square().sum())
    assert not torch.equal(layer.get_parameter("weight_v"), before)


def test_an_image_without_a_batch():
    torch.manual_seed(0)
    moved_alike(nn.Conv2d(4, 3, 1), (4, 5, 5), 0.0)


def test_a_look_at_other_data_changes_nothing():
    """Bits must not depend on what a worker did before: features without gradients are not a use."""
    torch.manual_seed(0)
    one = nn.Linear(100, 100)
    two = copy.deepcopy(one)
    optimizer, other = (StepOptions().optimizer(layer, TrainConfig()) for layer in (one, two))
    x = torch.randn(4, 100)
    with torch.no_grad():
        one(x)
    assert optimizer.uses[one.weight] == 0  # type: ignore[attr-defined]
    one(x)  # a step that was never taken
    optimizer.reset()
    for layer, moves in ((one, optimizer), (two, other)):
        moves.step(layer(x).square().sum())
    assert torch.equal(one.weight, two.weight)


def test_frozen_weights_stay():
    layer = nn.Linear(100, 100)
    layer.weight.requires_grad_(False)
    before = layer.weight.clone(), layer.bias.clone()
    optimizer = StepOptions().optimizer(layer, TrainConfig())
    optimizer.step(layer(torch.randn(4, 100)).sum())
    assert torch.equal(layer.weight, before[0])
    assert not torch.equal(layer.bias, before[1])


def pulled(outputs: BatchOutputs):
    """A loss that draws features to zero."""
    return {"align": (1.0, outputs.z_BD.square().mean())}


NETWORKS = (
    "cnn cnn_femnist mlp_256 googlenet mobilenet_v2 shufflenet_v2 efficientnet_b0 densenet121 "
    "resnet8 resnet18 resnet50 googlenet_published mobilenet_v2_published/mlp512-relu "
    "efficientnet_b0_published cnn_published/linear-relu"
)


@pytest.mark.parametrize("name", NETWORKS.split())
def test_a_step_of_a_network_is_the_plain_step(name):
    torch.manual_seed(0)
    plain = build_network(name, (3, 32, 32), 5, 96).double()
    ours = copy.deepcopy(plain).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    before = [p.clone() for p in plain.parameters()]
    x, y = torch.randn(8, 3, 32, 32, dtype=torch.float64), torch.arange(8) % 5
    losses = []
    for network, chosen in ((plain, PLAIN), (ours, StepOptions())):
        torch.manual_seed(1)
        trained = make_step(network, TrainConfig(lr=0.01), chosen)
        trained.begin(pulled)
        losses.append(trained(x.contiguous(memory_format=chosen.memory_format), y)[0])
    assert losses[0].keys() == losses[1].keys() == {"loss", "ce", "align"}
    for name, part in losses[0].items():
        torch.testing.assert_close(part, losses[1][name])
    wanted = plain.state_dict()
    for key, got in ours.state_dict().items():
        torch.testing.assert_close(got, wanted[key], rtol=1e-9, atol=1e-12)
    moves = [not torch.equal(p, old) for p, old in zip(ours.parameters(), before, strict=True)]
    assert sum(moves) > len(moves) // 2


def test_which_way_by_device_and_precision():
    assert step_options(RuntimeConfig(), "cpu", "cnn") == StepOptions()
    assert step_options(RuntimeConfig(), "cuda", "cnn") == PLAIN
    assert step_options(RuntimeConfig(), "cpu", "nets:mine") == PLAIN
    assert step_options(RuntimeConfig(step="direct"), "cpu", "nets:mine/linear") == StepOptions()
    assert step_options(RuntimeConfig(graphs=True), "cuda", "cnn").graphs
    assert not step_options(RuntimeConfig(graphs=True), "cpu", "cnn").graphs
    assert step_options(RuntimeConfig(step="plain"), "cpu", "cnn") == PLAIN
    assert step_options(RuntimeConfig(step="direct"), "cuda", "cnn") == StepOptions()
    assert (str(StepOptions()), str(PLAIN)) == ("direct + products + channels last", "plain")
    half = step_options(RuntimeConfig(precision="bfloat16"), "cpu", "cnn")
    assert half.bfloat16
    assert not half.direct
    assert isinstance(half.optimizer(nn.Linear(2, 2), TrainConfig()), Optimizer)
    assert isinstance(StepOptions().optimizer(nn.Linear(2, 2), TrainConfig()), OptimizerInBackward)
    with pytest.raises(ValueError, match="only with runtime"):
        Config(runtime=RuntimeConfig(step="direct", precision="bfloat16"))
    with pytest.raises(ValueError, match="only on GPUs"):
        Config(runtime=RuntimeConfig(graphs=True, device="cpu"))


class Pretended(GraphStep):
    """Recorded without a GPU: to replay is to do the work again on the tensors that were there."""

    recordings = 0

    def capture(self):
        self.recordings += 1
        return self.captured_step

    def on_capture_stream(self):
        return nullcontext()


def test_a_recorded_step_takes_every_batch_once_and_others_as_they_come():
    torch.manual_seed(0)
    network = build_network("mlp_64", (2,), 6, 4)
    other: Network = copy.deepcopy(network)
    train = TrainConfig(lr=0.1, batch_size=8)
    recorded, plain = Pretended(network, train, PLAIN), make_step(other, train, PLAIN)
    for local_loss in (None, pulled):
        recorded.begin(local_loss)
        plain.begin(local_loss)
        for size in [8] * (WARMUP - 1) + [5, 5, 1] + [8] * 3:
            x, y = torch.randn(size, 2), torch.randint(0, 6, (size,))
            (parts, outputs), (other_parts, other_outputs) = recorded(x, y), plain(x, y)
            for name in ("z_BD", "logit_BK", "y_B"):
                assert torch.equal(getattr(outputs, name), getattr(other_outputs, name))
            assert parts.keys() == other_parts.keys()
            assert all(torch.equal(part, other_parts[name]) for name, part in parts.items())
        recorded.end()
        plain.end()
    assert recorded.recordings == 2
    assert recorded.replay is None
    for got, want in zip(network.parameters(), other.parameters(), strict=True):
        assert torch.equal(got, want)


def guided(outputs: BatchOutputs):
    """Two terms of a batch, and one of strong views."""
    z_BD, strong = outputs.z_BD, outputs.strong
    terms = {"align": (3.0, z_BD.square().mean()), "proxy": (0.5, z_BD.sum(1).exp().mean())}
    return terms | ({} if strong is None else {"consistency": (2.0, (strong[0].sum(1) * strong[1]).mean())})


@pytest.mark.parametrize("way", [StepOptions(), PLAIN], ids=str)
def test_gradients_of_the_terms_against_that_of_the_cross_entropy(way):
    """By features, of the first batch, each with its weight; explicit autograd says the same."""
    torch.manual_seed(0)
    network = build_network("mlp_64", (2,), 6, 4)
    x, y = torch.randn(8, 2), torch.randint(0, 6, (8,))
    z_BD = network.extractor(x).detach().requires_grad_()
    (of_ce,) = torch.autograd.grad(torch.nn.functional.cross_entropy(network.head(z_BD), y), z_BD)
    want = {}
    for name, (weight, term) in guided(BatchOutputs(z_BD, network.head(z_BD), y)).items():
        want[name] = weight * torch.autograd.grad(term, z_BD, retain_graph=True)[0].norm() / of_ce.norm()
    trained = make_step(network, TrainConfig(lr=0.1), way)
    trained.begin(guided, measure_ratios=True)
    trained(x, y)
    trained(torch.randn(8, 2), y)  # a later batch changes nothing
    assert trained.ratios is not None
    assert trained.ratios.keys() == want.keys()
    for name, ratio in trained.ratios.items():
        torch.testing.assert_close(ratio, want[name])


@pytest.mark.parametrize("way", [StepOptions(), PLAIN], ids=str)
def test_strong_views_add_their_term_and_nothing_else(way):
    """Written out: cross-entropy of the batch alone, all terms, one backward pass through both."""
    torch.manual_seed(0)
    network = build_network("mlp_64", (2,), 6, 4)
    plain = copy.deepcopy(network)
    x, y, other, labels = (
        torch.randn(8, 2),
        torch.randint(0, 6, (8,)),
        torch.randn(3, 2),
        torch.tensor([1, 2, 3]),
    )
    z_AD = plain.extractor(torch.cat([x, other]))
    logit_BK = plain.head(z_AD[:8])
    terms = guided(BatchOutputs(z_AD[:8], logit_BK, y, (z_AD[8:], labels)))
    loss = torch.nn.functional.cross_entropy(logit_BK, y)
    loss = loss + sum(weight * term for weight, term in terms.values())
    loss.backward()
    trained = make_step(network, TrainConfig(lr=0.1), way)
    trained.begin(guided)
    parts, outputs = trained(x, y, (other, labels))
    torch.testing.assert_close(parts["loss"], loss.detach())
    torch.testing.assert_close(outputs.z_BD, z_AD[:8].detach())
    torch.testing.assert_close(outputs.logit_BK, logit_BK.detach())
    for got, want in zip(network.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(got, want - 0.1 * want.grad, rtol=1e-4, atol=1e-6)  # type: ignore[operator]
