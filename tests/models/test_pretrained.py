"""A pretrained start: what is loaded is what was saved, and nothing else is."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from hpcfl.api import train
from hpcfl.config.loading import load_config
from hpcfl.errors import BadInput
from hpcfl.federation.run_plan import plan_run
from hpcfl.log.reader import read_log
from hpcfl.models.network import build_network
from hpcfl.models.pretrained import read_pretrained
from hpcfl.utils.torchvision_loader import load_torchvision

KNOWN = ((3, 32, 32), 5, 512)


@pytest.fixture(autouse=True)
def _here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_weights_of_a_whole_torchvision_network_from_a_file():
    """Its classifier of 1000 classes is left out; everything else, counters too, is taken over."""
    net = load_torchvision().models.resnet18()
    torch.save(net.state_dict(), "r18.pth")
    got = read_pretrained({"resnet18": "r18.pth"}, ["resnet18/mlp128", "cnn"], *KNOWN)["resnet18"]
    network = build_network("resnet18", *KNOWN)
    network.extractor.load_state_dict(got)
    x = torch.randn(2, 3, 32, 32)
    net.fc = torch.nn.Identity()
    with torch.no_grad():
        assert torch.equal(network.extractor.eval()(x), net.eval()(x))


def test_weights_of_an_hpcfl_network_and_of_a_checkpoint():
    network = build_network("cnn", *KNOWN)
    torch.save({"state_dict": network.state_dict(), "epoch": 3}, "cnn.pt")
    got = read_pretrained({"cnn": "cnn.pt"}, ["cnn"], *KNOWN)["cnn"]
    for key, value in network.extractor.state_dict().items():
        assert torch.equal(got[key], value)


def test_torchvisions_name_is_looked_up_in_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    weights = load_torchvision().models.get_model_weights("resnet18")["IMAGENET1K_V1"]
    with pytest.raises(
        BadInput, match=r"not in the cache; fetch https://.*resnet18.* and put it into .*checkpoints"
    ):
        read_pretrained({"resnet18": "IMAGENET1K_V1"}, ["resnet18"], *KNOWN)
    place = tmp_path / "torch" / "hub" / "checkpoints" / weights.url.rpartition("/")[2]
    place.parent.mkdir(parents=True)
    torch.save(load_torchvision().models.resnet18().state_dict(), place)
    with pytest.raises(BadInput, match=r"is damaged; fetch https://"):
        read_pretrained({"resnet18": "IMAGENET1K_V1"}, ["resnet18"], *KNOWN)
    digest = hashlib.sha256(place.read_bytes()).hexdigest()[:8]
    renamed = place.with_name(f"resnet18-{digest}.pth")
    place.rename(renamed)
    monkeypatch.setattr(type(weights), "url", f"https://example.org/{renamed.name}")
    assert (
        "net.conv1.weight" in read_pretrained({"resnet18": "IMAGENET1K_V1"}, ["resnet18"], *KNOWN)["resnet18"]
    )


@pytest.mark.parametrize("old", [False, True])
def test_files_of_the_older_format_without_counters(old):
    """Before torch 1.6 files were no zip archives, before 0.4.1 batch-norm had no counter."""
    state = {
        k: v for k, v in load_torchvision().models.resnet18().state_dict().items() if "num_batches" not in k
    }
    torch.save(state, "r18.pth", _use_new_zipfile_serialization=not old)
    got = read_pretrained({"resnet18": "r18.pth"}, ["resnet18"], *KNOWN)["resnet18"]
    assert got["net.bn1.num_batches_tracked"] == 0
    assert torch.equal(got["net.conv1.weight"], state["conv1.weight"])


def test_densenets_old_names():
    state = load_torchvision().models.densenet121().state_dict()
    old = {re.sub(r"(denselayer\d+\.(?:norm|conv))([12])\.", r"\1.\2.", key): v for key, v in state.items()}
    assert "features.denseblock1.denselayer1.norm.1.weight" in old
    torch.save(old, "d121.pth")
    got = read_pretrained({"densenet121": "d121.pth"}, ["densenet121"], *KNOWN)["densenet121"]
    key = "features.denseblock1.denselayer1.conv2.weight"
    assert torch.equal(got[f"net.{key}"], state[key])


class Evil:
    def __reduce__(self):
        return (Path("touched").write_text, ("code ran",))


def test_no_code_in_a_file_is_run():
    torch.save({"conv1.weight": Evil()}, "evil.pt")
    with pytest.raises(BadInput, match=r"evil.pt is no file of plain tensors"):
        read_pretrained({"cnn": "evil.pt"}, ["cnn"], *KNOWN)
    assert not Path("touched").exists()


def _changed(change):
    state = build_network("cnn", *KNOWN).state_dict()
    return state | {"extractor.0.weight": change(state["extractor.0.weight"])}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (lambda: b"hello", "is no file of plain tensors that torch.save wrote"),
        (lambda: [1, 2], "holds no named tensors"),
        (lambda: {"a": 1}, "holds no named tensors"),
        (lambda: {1: torch.zeros(1)}, "holds no named tensors"),
        (
            lambda: _changed(lambda w: w * float("nan")),
            "0.weight is not a plain array of finite real numbers",
        ),
        (lambda: _changed(lambda w: w.to_sparse()), "0.weight is not a plain array of finite real numbers"),
        (lambda: _changed(lambda w: w.to(torch.complex64)), "0.weight is not a plain array of finite real"),
        (
            lambda: _changed(lambda w: w.to(torch.float8_e4m3fn)),
            "0.weight is not a plain array of finite real numbers",
        ),
        (
            lambda: _changed(lambda w: torch.quantize_per_tensor(w, 0.1, 0, torch.qint8)),
            "0.weight is not a plain array of finite real numbers",
        ),
        (
            lambda: _changed(lambda w: torch.nested.nested_tensor([w[0], w[1, :1]])),
            "0.weight is not a plain array of finite real numbers",
        ),
        (
            lambda: _changed(lambda w: w.double() + 1e300),
            r"0.weight has numbers there that are too large for torch.float32",
        ),
        (dict, "0.weight is missing there"),
        (
            lambda: build_network("cnn2", (3, 64, 64), 5, 512).state_dict(),
            r"has shape \(512, 10816\) there, \(512, 1600\) here",
        ),
        (lambda: build_network("cnn4", *KNOWN).state_dict(), "there belongs to another network"),
        (lambda: build_network("cnn1", *KNOWN).state_dict(), "is missing there"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*(quantized tensor|nested tensors):UserWarning")
def test_wrong_files(content, says):
    made = content()
    if isinstance(made, bytes):
        Path("wrong.pt").write_bytes(made)
    else:
        torch.save(made, "wrong.pt")
    with pytest.raises(BadInput, match=says):
        read_pretrained({"cnn": "wrong.pt"}, ["cnn"], *KNOWN)


def test_a_file_that_may_not_be_read(hpcfl, monkeypatch):
    Path("closed.pt").write_bytes(b"")
    opened = os.open

    def closed(path, *rest, **more):
        if os.path.basename(path) == "closed.pt":
            raise PermissionError(13, "Permission denied", "closed.pt")
        return opened(path, *rest, **more)

    monkeypatch.setattr(os, "open", closed)
    done = hpcfl("train", "--set=models.pretrained.mlp_64=closed.pt")
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert "models.pretrained: cannot read closed.pt: Permission denied" in done.output


def test_names_that_mean_nothing():
    with pytest.raises(BadInput, match="neither a file nor the name of weights that torchvision has"):
        read_pretrained({"resnet18": "IMAGENET"}, ["resnet18"], *KNOWN)
    with pytest.raises(BadInput, match="neither a file nor the name of weights"):
        read_pretrained({"cnn": "IMAGENET1K_V1"}, ["cnn"], *KNOWN)
    with pytest.raises(BadInput, match=r"cannot read nowhere.pt: No such file"):
        read_pretrained({"cnn": "nowhere.pt"}, ["cnn"], *KNOWN)


def test_a_run_starts_from_the_file(hpcfl):
    """Without learning, global prototypes are the class means of the file's extractor."""
    settings = ["data.samples_per_class=200", "federation.clients=4", "federation.rounds=1", "train.lr=1e-12"]
    settings += ["models.list=['mlp_64']", "models.pretrained.mlp_64=start.pt"]
    network = build_network("mlp_64", (2,), 6, 32)
    torch.save(network.state_dict(), "start.pt")
    assert hpcfl("train", *(f"--set={s}" for s in settings), "--out", "a.h5").exit_code == 0
    plan = plan_run(load_config(None, settings))
    used = np.concatenate([client.train for client in plan.clients])
    with torch.no_grad():
        z_ND = network.extractor(torch.from_numpy(plan.data.x[used])).numpy()
    want_KD = [z_ND[plan.data.y[used] == k].mean(0) for k in range(6)]
    np.testing.assert_allclose(read_log("a.h5")["/prototypes/global"][0], want_KD, rtol=1e-4, atol=1e-5)
    torch.save(build_network("mlp_64", (2,), 6, 32).state_dict(), "start.pt")
    done = hpcfl("train", *(f"--set={s}" for s in settings), "--out", "a.h5")
    assert done.exit_code == 2
    assert "other content of the same name (pretrained_mlp_64)" in done.output


@pytest.mark.parametrize("kind", ["pipe", "device", "directory", "torchvision's"])
def test_only_regular_files_are_read(hpcfl, monkeypatch, tmp_path, kind):
    """A pipe that nobody writes to would be waited for, and a device read for ever."""
    source = {"device": "/dev/zero", "torchvision's": "IMAGENET1K_V1"}.get(kind, "weights")
    settings = ["models.list=['mlp_64']", f"models.pretrained.mlp_64={source}"]
    if kind == "pipe":
        os.mkfifo("weights")
    elif kind == "directory":
        Path("weights").mkdir()
    if kind != "torchvision's":
        done = hpcfl("train", *(f"--set={each}" for each in settings), "--out", "run.h5")
        assert (done.exit_code, done.output.count("\n")) == (2, 1), done.output
        reason = "Is a directory" if kind == "directory" else "not a regular file"
        assert done.output == f"hpcfl: models.pretrained: cannot read {tmp_path / source}: {reason}\n"
        with pytest.raises(BadInput, match=reason):
            read_pretrained({"cnn": source}, ["cnn"], *KNOWN)
        return
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    weights = load_torchvision().models.get_model_weights("resnet18")["IMAGENET1K_V1"]
    place = tmp_path / "torch" / "hub" / "checkpoints" / weights.url.rpartition("/")[2]
    place.parent.mkdir(parents=True)
    os.mkfifo(place)
    with pytest.raises(BadInput, match="not a regular file"):
        read_pretrained({"resnet18": source}, ["resnet18"], *KNOWN)


NETWORK = """
import os
from torch import nn
os.chdir("elsewhere" if os.path.isdir("elsewhere") else ".")
def net(shape, features):
    os.chdir("/")
    return nn.Sequential(nn.Linear(shape[0], features))
"""


def test_paths_begin_where_the_run_was_started(monkeypatch, tmp_path):
    """A network that changes the directory, when it is imported and when it is built."""
    monkeypatch.syspath_prepend(tmp_path)
    Path("elsewhere").mkdir()
    Path("roaming.py").write_text(NETWORK)
    torch.save({"0.weight": torch.ones(8, 2), "0.bias": torch.zeros(8)}, "w.pt")
    more = ["models.list=['roaming:net']", "models.features=8", "federation.rounds=1"]
    config = {"models": {"pretrained": {"roaming:net": "w.pt"}}}
    for out in ("a.h5", "b.h5"):
        run = train(config, out=out, settings=more)
        assert run is not None
        assert run.status == "finished"
        assert Path.cwd() == tmp_path
    assert sorted(path.name for path in tmp_path.glob("*.h5")) == ["a.h5", "b.h5"]
    assert list(Path("elsewhere").iterdir()) == []
