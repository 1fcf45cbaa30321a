"""Every registered network, in every shape that the datasets have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from hpcfl.config.schema import ModelsConfig
from hpcfl.errors import BadInput
from hpcfl.models.costs import cost, costs
from hpcfl.models.network import build_network, build_on_meta
from hpcfl.models.registry import ARCHITECTURES, GROUPS, HEADS, client_architectures
from hpcfl.training.state import Layout, bind, copy_into, empty_vector, module_blocks

CLASSES = 6
SHAPES = ((2,), (1, 28, 28), (3, 32, 32), (3, 64, 64))
CASES = [
    (name, shape)
    for name, architecture in ARCHITECTURES.items()
    for shape in SHAPES
    if len(shape) == 3 or not architecture.images
]


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "shape"), CASES, ids=str)
def test_every_network_gives_d_features_learns_everywhere_and_moves_exactly(name, shape):
    """Width d in train and eval mode; gradients reach every parameter; state → vector → state is exact."""
    torch.manual_seed(3)
    features = 96
    network = build_network(name, shape, CLASSES, features)
    x = torch.randn(8, *shape)
    network.train()
    z_BD = network.extractor(x)
    assert z_BD.shape == (8, features)
    (network.head(z_BD).square().sum() + z_BD.sum()).backward()
    unreached = [n for n, p in network.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert not unreached

    layout = Layout(module_blocks(network, channels_last=False))
    vector = empty_vector(layout.nbytes)
    copy_into(layout.views(vector), network)
    second = build_on_meta(name, shape, CLASSES, features)
    bind(second, layout.views(vector.clone()))
    for (key, one), (other, two) in zip(
        network.state_dict().items(), second.state_dict().items(), strict=True
    ):
        assert (key, one.dtype) == (other, two.dtype)
        assert torch.equal(one, two)
    network.eval(), second.eval()
    with torch.no_grad():
        assert network.extractor(x).shape == (8, features)
        assert torch.equal(network(x), second(x))
    second.train()
    second(x).sum().backward()  # as workers train: all tensors in one vector
    if network.has_batch_norm:
        counters = [
            value for key, value in layout.views(vector).items() if key.endswith("num_batches_tracked")
        ]
        assert counters
        assert all(counter == 1 for counter in counters)


@pytest.mark.parametrize("features", [64, 128, 256, 500, 512, 1024])
@pytest.mark.parametrize("name", ["cnn", "resnet4", "resnet50", "mobilenet_v2"])
def test_any_width(name, features):
    network = build_network(name, (3, 32, 32), CLASSES, features).eval()
    with torch.no_grad():
        assert network.extractor(torch.randn(2, 3, 32, 32)).shape == (2, features)


def test_narrow_features_are_repeated_and_wide_ones_averaged():
    """ResNet-4 has 64 values: at d = 512 each stands 8 times; ResNet-50 has 2048: 4 are averaged."""
    x = torch.randn(2, 3, 32, 32)
    for name, plain, d in (("resnet4", 64, 512), ("resnet50", 2048, 512)):
        network = build_network(name, (3, 32, 32), CLASSES, d).eval()
        with torch.no_grad():
            raw, got = network.extractor.get_submodule("net")(x), network.extractor(x)
        assert raw.shape == (2, plain)
        want = raw.repeat_interleave(8, 1) if plain < d else raw.view(2, d, 4).mean(2)
        torch.testing.assert_close(got, want)


PARAMETERS = {  # millions, without the head, d = 512, 3×32×32 (htcnn8: with its head, 1×28×28, 10 classes)
    "resnet4": 0.084,
    "resnet6": 0.314,
    "resnet8": 1.233,
    "resnet10": 4.906,
    "resnet18": 11.177,
}


def test_sizes_are_those_of_the_papers():
    for name, millions in PARAMETERS.items():
        extractor = build_on_meta(name, (3, 32, 32), 100, 512).extractor
        assert sum(p.numel() for p in extractor.parameters()) / 1e6 == pytest.approx(millions, abs=6e-4)
    gray = costs(GROUPS["htcnn8"].members, (1, 28, 28), 10, 512, 10, 256)
    sizes = [counted.parameters / 1e6 for counted in gray.values()]
    assert (round(min(sizes), 2), round(max(sizes), 2)) == (0.58, 5.51)
    femnist = build_on_meta("cnn_femnist", (1, 128, 128), 62, 50)
    assert sum(p.numel() for p in femnist.parameters()) == 849_332  # FedProto's 849k


def test_groups_name_registered_architectures():
    for group in GROUPS.values():
        assert set(group.members) <= set(ARCHITECTURES)
    assert {
        "htfe2",
        "htfe3",
        "htfe4",
        "htfe8",
        "htfe9",
        "htcnn8",
        "hmg3",
        "hmg5",
        "hmg8",
        "hmg10",
        "light4",
    } <= set(GROUPS)
    assert GROUPS["hmg8"].members == GROUPS["htfe8"].members


def test_what_a_configuration_chooses():
    assert client_architectures(ModelsConfig(group="htfe2")) == ("cnn", "resnet18")
    assert client_architectures(ModelsConfig(group="resnet34")) == ("resnet34",)
    four = ("linear", "mlp512", "mlp256", "mlp128")
    assert client_architectures(ModelsConfig(group="res34-htc4")) == tuple(
        "resnet34" if head == "linear" else f"resnet34/{head}" for head in four
    )
    eight = client_architectures(ModelsConfig(group="htfe8-htc4"))
    assert (len(eight), eight[1], eight[4], eight[5]) == (
        8,
        "googlenet/mlp512",
        "resnet34",
        "resnet50/mlp512",
    )
    assert (
        len(client_architectures(ModelsConfig(group="htfe3", head="htc4"))) == 12
    )  # client i: network i mod 3, head i mod 4
    assert client_architectures(ModelsConfig(list=["cnn", "mlp_64"], weights=[2, 1])) == (
        "cnn",
        "cnn",
        "mlp_64",
    )
    assert (
        client_architectures(ModelsConfig(list=["cnn", "cnn", "my.nets:tiny"], head="mlp128"))[2]
        == "my.nets:tiny/mlp128"
    )


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"list": ["mlp_65"]}, r"models.list = 'mlp_65': .*nearest: mlp_64"),
        ({"group": "htfe5"}, r"models.group = 'htfe5': .*nearest: htfe"),
        (
            {"group": "htfe8-htc4", "head": "mlp128"},
            "models.head = 'mlp128': models.group = 'htfe8-htc4' has its own",
        ),
    ],
)
def test_wrong_names(settings, says):
    with pytest.raises(BadInput, match=says):
        client_architectures(ModelsConfig.model_validate(settings))


@pytest.mark.parametrize("head", HEADS)
def test_heads(head):
    """d → K, or d → width → K with ReLU between; -relu: another one at the end; unit: features / length."""
    network = build_network("cnn" if head == "linear" else f"cnn/{head}", (1, 28, 28), CLASSES, 40)
    widths = [tuple(p.shape) for name, p in network.head.named_parameters() if name.endswith("weight")]
    hidden = [int(number) for number in re.findall(r"mlp(\d+)", head)]
    assert widths == [(b, a) for a, b in zip([40, *hidden], [*hidden, CLASSES], strict=True)]
    layers = list(network.head) if isinstance(network.head, torch.nn.Sequential) else [network.head]
    assert sum(isinstance(layer, torch.nn.ReLU) for layer in layers) == len(hidden) + head.endswith("-relu")
    with torch.no_grad():
        logits = network.head(torch.randn(50, 40))
        torch.testing.assert_close(
            network.head_norms(), layers[-1 - head.endswith("-relu")].weight.double().norm(dim=1)
        )
        z = torch.rand(50, 40)
        assert torch.allclose(network.head(z), network.head(7 * z), atol=1e-5) == (head == "unit")
    assert (logits.min() < 0) == (not head.endswith("-relu"))


def test_cost_by_hand():
    """2→64→24 and a head 24→6: parameters, FLOPs of a sample, and what a batch of 5 keeps.

    Autograd keeps the input (5·2), the first layer's output after ReLU (5·64), the features (5·24), and of
    the cross-entropy the log-probabilities (5·6), the labels (5, 8 bytes) and a weight.
    """
    counted = cost(build_on_meta("mlp_64", (2,), CLASSES, 24), (2,), 5, 7)
    assert counted.parameters == 2 * 64 + 64 + 64 * 24 + 24 + 24 * 6 + 6
    assert counted.flops == 2 * (2 * 64 + 64 * 24 + 24 * 6)
    assert counted.buffers == 0
    assert counted.inference == 7 * 4 * (64 + 64)  # the ReLU's input and output
    assert counted.activations == 4 * (5 * 2 + 5 * 64 + 5 * 24 + 5 * 6) + 8 * 5 + 4


def test_without_a_home_nothing_is_kept(monkeypatch):
    """A user of a container may have neither HOME nor an entry in /etc/passwd."""

    def unknown(uid):
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert costs(["mlp_64"], (2,), 3, 8, 4, 8)["mlp_64"].parameters > 0


def test_counts_are_kept_on_disk(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = costs(["cnn"], (1, 28, 28), 10, 32, 8, 64)
    (kept,) = (tmp_path / "hpcfl" / "costs").iterdir()
    monkeypatch.setattr("hpcfl.models.costs.cost", None)  # counting again would fail
    assert costs(["cnn"], (1, 28, 28), 10, 32, 8, 64) == first
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept.write_text("{")
    assert costs(["cnn"], (1, 28, 28), 10, 32, 8, 64) == first
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    assert costs(["cnn"], (1, 28, 28), 10, 32, 8, 64) == first


OWN = """
from torch import nn
def tiny(shape, features):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], features))
def wrong(shape, features):
    return nn.Flatten()
def broken(shape, features):
    raise KeyError("oops")
def leaves(shape, features):
    import sys
    sys.exit(3)
def lazy(shape, features):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(features))
def double(shape, features):
    return tiny(shape, features).double()
class Two(nn.Module):
    def forward(self, x):
        return x, x
def two(shape, features):
    return Two()
class Narrow(nn.Module):
    def forward(self, x):
        return x.reshape(len(x), 1000)
def narrow(shape, features):
    return Narrow()
number = 3
"""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("ownnets:tiny", ""),
        ("ownnets:wrong", "ownnets:wrong gives features of shape"),
        ("ownnets:broken", "ownnets:broken cannot be built for samples of shape"),
        ("ownnets:leaves", "ownnets:leaves cannot be built for samples of shape"),
        ("ownnets:lazy", "extractor.1.weight has no shape yet"),
        ("ownnets:double", "extractor.1.weight is torch.float64, not float32"),
        ("ownnets:two", "ownnets:two gives features of shape \\('tuple',\\)"),
        (
            "ownnets:narrow",
            r"ownnets:narrow cannot take samples of shape .* \(RuntimeError.*ownnets.py:23\)$",
        ),
        ("ownnets:number", "ownnets:number is not a function"),
        ("ownnets:wide", r"ownnets \(.*ownnets.py\) has no wide$"),
        ("ownnets:doubel", r"has no doubel \(nearest: double\)"),
        ("nowhere.nets:none", "nowhere.nets:none cannot be imported"),
    ],
)
def test_a_users_own_network(monkeypatch, tmp_path, name, says):
    monkeypatch.chdir(tmp_path)
    Path("ownnets.py").write_text(OWN)
    if not says:
        assert costs([name], (1, 8, 8), 3, 16, 4, 8)[name].parameters == 64 * 16 + 16 + 16 * 3 + 3
        return
    with pytest.raises(BadInput, match=says):
        costs([name], (1, 8, 8), 3, 16, 4, 8)


@pytest.mark.parametrize(
    ("name", "shape", "says"),
    [("cnn", (3, 8, 8), "cnn cannot"), ("resnet18", (2,), "resnet18 takes images, a sample here has")],
)
def test_samples_that_do_not_fit(name, shape, says):
    with pytest.raises(BadInput, match=says):
        costs([name], shape, 3, 16, 4, 8)
