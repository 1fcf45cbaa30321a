"""A user's own data that are no images: arrays, tables, torch Datasets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import hpcfl as api
from hpcfl.config.loading import load_config
from hpcfl.data.channel_statistics import ArrayStatistics
from hpcfl.data.dataset import Dataset
from hpcfl.data.prepared_file import open_prepared
from hpcfl.errors import BadInput
from hpcfl.federation.run_plan import plan_run
from hpcfl.training.samples import SampleSource
from tests.helpers import layouts
from tests.helpers.layouts import opened

RANDOM = np.random.default_rng(0)
WINDOWS = (RANDOM.normal(size=(40, 9, 12)) * 3 + 1000).astype(np.float32)
LABELS = np.arange(40) % 4


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def npz(prepare, *options: str, **arrays: np.ndarray) -> Dataset:
    np.savez("own.npz", y=LABELS, **arrays)  # type: ignore[arg-type]
    prepare("own", "--source", "own.npz", "--fresh", *options)
    return opened("own")


@pytest.mark.parametrize(
    ("x", "stored"),
    [
        (WINDOWS, np.float32),
        (WINDOWS.astype(np.float64), np.float32),
        (WINDOWS[:, 0], np.float32),
        (RANDOM.integers(0, 99, (40, 20)), np.int32),
        (RANDOM.integers(0, 99, (40, 20), np.uint16), np.int32),
        (RANDOM.random((40, 3)) < 0.5, np.float32),
        (RANDOM.random((40, 2, 5, 6), np.float32), np.float32),
    ],
    ids=["windows", "float64", "vectors", "tokens", "uint16", "bool", "maps"],
)
def test_any_numbers_keep_their_type_shape_and_values(prepare, x, stored):
    data = npz(prepare, x=x)
    assert data.x.dtype == stored
    np.testing.assert_array_equal(data.x, x.astype(stored))
    assert data.shape == x.shape[1:]
    assert not data.is_images
    assert data.input_type == np.dtype(stored).name
    if stored == np.float32:
        axes = (0, *range(2, x.ndim))
        np.testing.assert_allclose(data.mean_C, x.astype(stored).astype(np.float64).mean(axes), rtol=1e-12)


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_a_layout_says_which_axis_has_the_channels(prepare, layout, dtype):
    nhwc = layouts.images(40, 3).astype(dtype)  # 3 × 3 × 3: nothing but the layout can tell
    data = npz(prepare, "--layout", layout, x=nhwc if layout == "nhwc" else nhwc.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(data.x, nhwc if dtype == np.uint8 else nhwc.transpose(0, 3, 1, 2))
    assert data.provenance["layout"] == layout


def test_deviations_that_are_small_beside_the_mean_are_exact():
    x = (1e6 + RANDOM.normal(size=(1000, 2, 3))).astype(np.float32)
    statistics = ArrayStatistics(2)
    for part in np.split(x, [1, 300, 300]):
        statistics.add(part)
    np.testing.assert_allclose(statistics.std_C, x.astype(np.float64).std((0, 2)), rtol=1e-9)


@pytest.mark.parametrize("normalise", ["channel", "none"])
def test_other_data_are_normalised_by_channel_or_not_at_all(prepare, normalise):
    data = npz(prepare, x=WINDOWS)
    config = load_config(None, [f"data.normalise={normalise}"])
    source = SampleSource(data, config.data, torch.device("cpu"))
    x_B, y_B = source.samples(np.arange(40)).batch(np.arange(40))
    want = WINDOWS.astype(np.float64)
    if normalise == "channel":
        want = (want - want.mean((0, 2), keepdims=True)) / want.std((0, 2), keepdims=True)
    np.testing.assert_allclose(x_B.numpy(), want, atol=1e-4)
    np.testing.assert_array_equal(y_B, LABELS)
    np.testing.assert_array_equal(data.x, WINDOWS, err_msg="the data stay as they are")


def test_token_numbers_reach_the_network_as_they_are(prepare):
    token = RANDOM.integers(0, 99, (40, 20))
    source = SampleSource(npz(prepare, x=token), load_config().data, torch.device("cpu"))
    x_B, _ = source.samples(np.arange(40)).batch(np.arange(5, 9))
    assert x_B.dtype == torch.int32
    np.testing.assert_array_equal(x_B, token[5:9])


TABLE = "size;kind;weight;writer\n1;cat;2.5;ann\n2;dog;-3e2;bob\n3;cat;0;ann\n"


def test_a_table_with_a_column_of_labels_and_one_of_writers(prepare):
    Path("own.csv").write_text(TABLE)
    said = prepare("own", "--source", "own.csv", "--label", "kind")
    assert "3 float32 samples of 2 (3 train, 0 test), 2 classes, 2 writers" in said
    data = opened("own")
    np.testing.assert_array_equal(data.x, np.array([[1, 2.5], [2, -300], [3, 0]], np.float32))
    assert (data.class_names, data.y.tolist()) == (("cat", "dog"), [0, 1, 0])
    assert data.writer_ids is not None
    assert data.writer_ids.tolist() == [0, 1, 0]


def test_one_of_a_kind_is_in_the_singular(prepare):
    Path("own.csv").write_text("a,writer,y\n1,ann,0\n")
    said = prepare("own", "--source", "own.csv")
    assert "1 float32 sample of 1 (1 train, 0 test), 1 class, 1 writer, from own.csv" in said


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        (TABLE, (), "own.csv: name the column of labels with --label; it has size, kind, weight, writer"),
        (
            TABLE,
            ("--label", "kin"),
            "own.csv has no such column; it has size, kind, weight, writer (nearest: kind)",
        ),
        ("a,y\n1,0\nx,1\n", (), "own.csv: row 2 has 'x' in column a; it must be a number that is"),
        ("a,y\n1,0\n,1\n", (), "own.csv: row 2 has '' in column a"),
        ("a,y\n1,0\nnan,1\n", (), "own.csv: row 2 has 'nan' in column a"),
        ("a,y\n1e39,0\n1,1\n", (), "own.csv: row 1 has '1e39' in column a"),
        ("a,y\n1,0\n1\n", (), "own.csv: row 2 has 1 values, the header 2"),
        ("a,y\n", (), "own.csv has no samples"),
        ("y\n1\n", (), "own.csv has labels, but no further columns"),
        ("a,y\n1,0\n", ("--size", "8"), "--size 8: only for images"),
        ("a,y\n1,0\n", ("--layout", "nchw"), "--layout nchw: only with --source FILE.npz"),
    ],
)
def test_a_wrong_table(prepare, text, options, says):
    Path("own.csv").write_text(text)
    prepare("own", "--source", "own.csv", *options, code=2, says=says)


def test_a_name_that_exists_is_of_the_same_source(hpcfl):
    """Otherwise a user who edits a file, or mistakes a name, would train on the old samples."""

    def said(code: int, source: Path, *more: str) -> str:
        done = hpcfl("data", "prepare", "own", "--root=root", "--label=kind", "--source", str(source), *more)
        assert done.exit_code == code, done.output
        return done.output

    file = Path("own.csv")
    file.write_text(TABLE)
    said(0, file)
    assert "root/own.h5 is there already: 3 float32" in said(0, file)
    Path("elsewhere").mkdir()
    moved = file.rename("elsewhere/own.csv")
    otherwise = hpcfl("data", "prepare", "own", "--root=root", "--label=a", "--source", "elsewhere/own.csv")
    assert otherwise.exit_code == 2
    assert "prepared otherwise: 3 float32" in otherwise.output
    assert otherwise.output.endswith("; give another name, or --fresh to make it again\n")
    assert "there is no such file" in said(2, file)
    assert "root/own.h5 is there already: 3 float32" in said(0, moved)
    moved.write_text(TABLE.replace("cat", "cow"))
    assert "root/own.h5 is there already, made from other data: 3 float32" in said(2, moved)
    said(0, moved, "--fresh")


def test_a_torch_dataset_from_python():
    inputs, y = torch.from_numpy(WINDOWS), torch.from_numpy(LABELS)
    path = api.prepare("a", WINDOWS, LABELS, test=(WINDOWS[:3], LABELS[:3]))
    assert path == api.prepare("a", inputs, y, test=(inputs[:3], y[:3])), "the same samples: it stays"
    other = api.prepare("b", TensorDataset(inputs, y), test=TensorDataset(inputs[:3], y[:3]))
    assert open_prepared(path).checksum == open_prepared(other).checksum
    assert open_prepared(path).num_train == 40
    with pytest.raises(BadInput, match=r"a.h5 is there already, with other samples: fresh=True replaces it"):
        api.prepare("a", WINDOWS[:5], LABELS[:5])
    api.prepare("a", WINDOWS[:5], LABELS[:5], fresh=True)
    assert len(open_prepared(path).y) == 5


def test_an_exception_in_a_torch_dataset_shows_the_line():
    class Wrong(TensorDataset):
        def __getitem__(self, i):
            return {"key": 0}["no such key"]

    line = Wrong.__getitem__.__code__.co_firstlineno + 1
    says = rf"^sample 0 of the train part cannot be read \(KeyError: 'no such key', {__file__}:{line}\)$"
    with pytest.raises(BadInput, match=says):
        api.prepare("a", Wrong(torch.from_numpy(WINDOWS)))


def test_images_of_a_torch_dataset_are_channels_first():
    images = layouts.images(6, 8)
    dataset = TensorDataset(torch.from_numpy(images.transpose(0, 3, 1, 2).copy()), torch.arange(6) % 2)
    data = open_prepared(
        api.prepare("a", dataset, writer=["x", "x", "y", "y", "z", "z"], names=["no", "yes"])
    )
    np.testing.assert_array_equal(data.x, images)
    assert data.class_names == ("no", "yes")
    assert data.writer_ids is not None
    assert data.writer_ids.tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("a", 3), "give arrays x and y, or a torch Dataset with a length, not int"),
        (("a", [[1.0], [2.0]], [1]), "y must be one integer or word for each of the 2 samples"),
        (("a", [[1.0], [2.0, 3.0]], [1, 2]), "x is not an array"),
        (("a", [[1.0]], [1], [1, 2]), "writer must be one integer or word for each of the 1 samples"),
        (("a", [([1.0, float("nan")], 0)]), "hpcfl.prepare: sample 0 has values that are not finite"),
        (("a", [(1.0, [0, 1])]), "hpcfl.prepare: sample 0 is float64 1; it must be numbers"),
        (("fmnist", [[1.0]], [1]), "fmnist is the name of a published dataset"),
        (("synthetic", [[1.0]], [1]), "'synthetic' cannot be a dataset's name"),
    ],
)
def test_wrong_data_from_python(arguments, says):
    with pytest.raises(BadInput, match=says):
        api.prepare(*arguments)


def test_a_wrong_layout_from_python():
    with pytest.raises(BadInput, match="layout = 'chw': must be 'nhwc' or 'nchw'"):
        api.prepare("a", [[1.0]], [1], layout="chw")  # type: ignore[arg-type]


def test_labels_and_writers_of_pandas_are_words():
    words = np.array(["no", "yes", "no"], dtype=object)
    data = open_prepared(api.prepare("a", [[1.0], [2.0], [3.0]], words, words))
    assert (data.class_names, data.y.tolist()) == (("no", "yes"), [0, 1, 0])


@pytest.mark.parametrize("source", ["mine.npz", "mine.csv", "torchvision:FashionMNIST", "htfllib:dir"])
def test_own_data_cannot_pretend_to_be_a_published_dataset(prepare, source):
    says = f"--source {source}: that is your own data, fmnist the name of a published dataset"
    prepare("fmnist", "--source", source, code=2, says=says)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["train.augment=['flip']"], "only images can be augmented, own has float32 samples of 9×12"),
        (["data.normalise=half"], "data.normalise = 'half': is for the bytes of images; for the float32"),
    ],
)
def test_what_only_images_have_is_refused_for_others(prepare, settings, says):
    npz(prepare, x=WINDOWS)
    with pytest.raises(BadInput, match=says.replace("(", r"\(")):
        plan_run(load_config(None, ["data.name=own", "data.root=root", *settings]))


def test_token_numbers_need_a_network_that_embeds_them(prepare):
    npz(prepare, x=RANDOM.integers(0, 99, (40, 20)))
    with pytest.raises(BadInput, match=r"20 token numbers \(int32\), which mlp_64 cannot embed"):
        plan_run(load_config(None, ["data.name=own", "data.root=root"]))
