"""Networks as in the papers' code: `models.style = "published"`."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hpcfl.config.schema import ModelsConfig
from hpcfl.log.reader import read_log
from hpcfl.models.network import build_network
from hpcfl.models.pretrained import read_pretrained
from hpcfl.models.registry import ARCHITECTURES, base_name, client_architectures
from tests.helpers.cases import CASES, prepare_images

SHAPE, K = (3, 32, 32), 5


def both(name: str, features: int) -> tuple[nn.Module, nn.Module]:
    """Returns an extractor and its published form, drawn from the same seed."""
    extractors = []
    for each in (name, f"{name}_published"):
        torch.manual_seed(4)
        extractors.append(build_network(each, SHAPE, K, features).extractor)
    return extractors[0], extractors[1]


def test_which_networks_and_heads_change():
    def chosen(**settings):
        return client_architectures(ModelsConfig(style="published", **settings))

    assert chosen(group="htfe4") == (
        "cnn_published",
        "googlenet_published",
        "mobilenet_v2_published",
        "resnet18",
    )
    assert chosen(group="light4")[1::2] == ("mobilenet_v2_published", "efficientnet_b0_published")
    assert chosen(group="res34-htc4") == tuple(
        f"resnet34/{head}-relu" for head in ("linear", "mlp512", "mlp256", "mlp128")
    )
    assert chosen(list=["cnn", "my.nets:tiny"], head="mlp128") == (
        "cnn_published/mlp128-relu",
        "my.nets:tiny/mlp128-relu",
    )
    for group in ("htcnn8", "mlp4", "hmg5"):
        assert chosen(group=group) == client_architectures(ModelsConfig(group=group))
    changed = {name: entry for name, entry in ARCHITECTURES.items() if entry.published_form_of}
    assert {name: base_name(name) for name in changed} == {
        name: name.removesuffix("_published") for name in changed
    }
    assert {base_name("cnn"), base_name("my.nets:tiny")} == {"cnn", "my.nets:tiny"}


@pytest.mark.parametrize("channels", [1, 3])
def test_googlenet_starts_from_a_truncated_normal(channels):
    """torchvision's `init_weights`: deviation 0.01 in every convolution, that of gray images too."""
    torch.manual_seed(0)
    extractor = build_network("googlenet_published", (channels, 32, 32), K, 512).extractor
    deviations = [m.weight.std().item() for m in extractor.modules() if isinstance(m, nn.Conv2d)]
    assert len(deviations) == 57
    assert deviations == pytest.approx([0.01] * 57, rel=0.05)
    norms = [m for m in extractor.modules() if isinstance(m, nn.BatchNorm2d)]
    assert all((m.weight == 1).all() and (m.bias == 0).all() for m in norms)


def test_mobilenet_drops_features_before_they_are_pooled():
    """At d = 128 ten of 1280 values are averaged, so that few of the pooled ones are 0."""
    plain, published = both("mobilenet_v2", 1280)
    x_B = torch.randn(64, *SHAPE)
    assert torch.equal(plain.eval()(x_B), published.eval()(x_B))
    published.train()
    kept = published.get_submodule("net.classifier")(torch.ones(200, 1280))
    assert (kept == 0).float().mean().item() == pytest.approx(0.2, abs=0.01)
    assert kept.max().item() == pytest.approx(1.25)
    narrow = build_network("mobilenet_v2_published", SHAPE, K, 128).extractor.train()
    assert (narrow(x_B) == 0).float().mean() < 0.2**2


def test_efficientnet_drops_its_d_features():
    plain, published = both("efficientnet_b0", 96)
    x_B = torch.randn(64, *SHAPE)
    assert torch.equal(plain.eval()(x_B), published.eval()(x_B))
    dropped = published.train()(x_B)
    assert (dropped == 0).float().mean().item() == pytest.approx(0.2, abs=0.02)
    assert not (plain.train()(x_B) == 0).any()


@pytest.mark.parametrize("features", [64, 512, 1024])
def test_the_cnn_is_pooled_from_512_values(features):
    """At d = 512 both are the same; else 512 values are averaged or repeated."""
    _, published = both("cnn", features)
    wide, _ = both("cnn", 512)
    x_B = torch.randn(3, *SHAPE)
    with torch.no_grad():
        z_BD, got = wide(x_B), published(x_B)
    if features <= 512:
        want = z_BD.view(3, features, 512 // features).mean(2)
    else:
        want = z_BD.repeat_interleave(features // 512, 1)
    torch.testing.assert_close(got, want)
    assert (features == 512) == torch.equal(got, z_BD)


def test_pretrained_weights_are_named_as_without_the_style(tmp_path):
    weights = build_network("mobilenet_v2", SHAPE, K, 64).extractor.state_dict()
    torch.save(weights, tmp_path / "m.pt")
    names = ["mobilenet_v2_published", "mobilenet_v2_published/mlp128-relu", "resnet18"]
    got = read_pretrained({"mobilenet_v2": "m.pt"}, names, SHAPE, K, 64, tmp_path)
    network = build_network("mobilenet_v2_published", SHAPE, K, 64)
    network.extractor.load_state_dict(got["mobilenet_v2_published"])
    assert got.keys() == {"mobilenet_v2_published"}
    torch.save(build_network("cnn", SHAPE, K, 512).state_dict(), tmp_path / "c.pt")
    got = read_pretrained({"cnn": "c.pt"}, ["cnn", "cnn_published"], SHAPE, K, 512, tmp_path)
    for name in ("cnn", "cnn_published"):
        build_network(name, SHAPE, K, 512).extractor.load_state_dict(got[name])


def test_runs_and_plans(hpcfl, tmp_path, monkeypatch):
    """Equal bits on a second start; plan cites FedTGP's FLOPs of the published forms too."""
    monkeypatch.chdir(tmp_path)
    prepare_images(tmp_path)
    chosen = [f"--set={setting}" for setting in CASES["published networks"]]
    for out in ("a.h5", "b.h5"):
        done = hpcfl("train", *chosen, "--set=data.root=.", "--out", out)
        assert done.exit_code == 0, done.output
    assert "equal" in hpcfl("diff", "a.h5", "b.h5").output
    run = read_log("a.h5")
    assert (run["/client/accuracy_head"] > 0).any()
    planned = hpcfl("plan", *chosen, "--set=data.root=.", "--set=models.head=linear", "-n3").output
    row = next(line for line in planned.splitlines() if line.startswith("mobilenet_v2_published"))
    assert row.split()[-2:] == ["314.0", "MFLOP"]
