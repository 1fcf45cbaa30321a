from itertools import product

import numpy as np
import pytest

from hpcfl.config.loading import load_config
from hpcfl.data.dataset import Dataset
from hpcfl.data.load import load_dataset
from hpcfl.errors import BadInput
from hpcfl.federation.run_plan import plan_run


def dataset(**settings: object) -> Dataset:
    return load_dataset(load_config({"data": {"name": "synthetic", **settings}}).data)


@pytest.mark.parametrize(("shape", "classes"), [*product([[28, 28, 1], [16, 8, 3], [1, 3, 2]], [2, 62])])
def test_images_have_the_shape_and_number_of_classes_that_are_set(shape, classes):
    data = dataset(shape=shape, classes=classes, samples_per_class=3)
    assert data.x.dtype == np.uint8
    assert data.x.shape == (3 * classes, *shape)
    assert data.shape == (shape[2], *shape[:2]), "as networks take it"
    np.testing.assert_array_equal(data.y, np.repeat(np.arange(classes), 3))
    pixels = data.x.reshape(-1, shape[2]) / 255
    np.testing.assert_allclose(data.mean_C, pixels.mean(0), rtol=1e-12)
    np.testing.assert_allclose(data.std_C, pixels.std(0), rtol=1e-9)


def test_the_bits_are_those_of_any_machine():
    assert dataset(samples_per_class=4).checksum == "45390ff7cce02cc3369f14e4be4b5da2"


def test_more_classes_and_samples_only_add_images():
    small = dataset(shape=[8, 8, 3], classes=3, samples_per_class=5).x.reshape(3, 5, -1)
    large = dataset(shape=[8, 8, 3], classes=4, samples_per_class=9).x.reshape(4, 9, -1)
    np.testing.assert_array_equal(large[:3, :5], small)


def test_classes_can_be_told_apart_by_the_nearest_class_mean():
    data = dataset(shape=[16, 16, 3], classes=20, samples_per_class=40)
    x = data.x.reshape(20, 40, -1) / 255.0
    mean_KF = x[:, :20].mean(1)
    distance = ((x[:, 20:, None] - mean_KF) ** 2).sum(-1)
    accuracy = (distance.argmin(-1) == np.arange(20)[:, None]).mean()
    assert accuracy > 0.5
    assert accuracy < 1.0, "shifts make it a task"


def test_images_that_fill_the_memory_of_ranks_are_refused():
    with pytest.raises(BadInput, match=r"200 classes × 1000 .* GiB on every rank.*samples_per_class"):
        dataset(shape=[224, 224, 3], classes=200, samples_per_class=1000)


@pytest.mark.parametrize("clients", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_the_quick_start_has_a_split_for_many_clients(clients):
    plan = plan_run(load_config(None, [f"federation.clients={clients}"]))
    assert len(plan.clients) == clients
    assert min(len(client.train) + len(client.test) for client in plan.clients) >= 10


@pytest.mark.parametrize(
    ("settings", "number"),
    [
        ({}, 1000),
        ({"federation.clients": 20}, 1000),
        ({"federation.clients": 3}, 1000),
        ({"federation.clients": 100}, 5000),
        ({"federation.clients": 1000}, 50_000),
        ({"federation.clients": 100, "data.samples_per_class": 1000}, 1000),
        ({"data.name": "synthetic"}, 600),
        ({"data.name": "synthetic", "data.classes": 200}, 30),
        ({"data.name": "synthetic", "data.classes": 200, "federation.clients": 100}, 150),
    ],
)
def test_built_in_data_grow_with_the_clients_unless_their_size_is_given(settings, number):
    config = load_config(settings)
    assert config.data.samples_per_class == number
    assert load_config(config) == config
