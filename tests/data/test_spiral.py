import numpy as np
import pytest

from hpcfl.config.schema import DataConfig
from hpcfl.data.spiral import CLASSES, spiral


def points(style: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    return spiral(DataConfig.model_validate({"samples_per_class": n, "style": style}))


@pytest.mark.parametrize("style", ["fednh", "supplement"])
def test_six_arms_of_equal_size_standardised(style):
    x, y = points(style, 500)
    assert x.dtype == np.float32
    np.testing.assert_array_equal(np.bincount(y), np.full(CLASSES, 500))
    np.testing.assert_allclose(x.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(x.std(0), 1, atol=1e-5)


def test_fednh_arm_k_turns_from_k_to_k_plus_1_sixths_with_half_a_radian_of_noise():
    """Angle of point i on arm k: 2π(k + i/(n−1))/6 + U(0, 0.5); the mean offset is 0.25."""
    n = 2000
    x, _ = points("fednh", n)
    angle = np.arctan2(x[:, 0], x[:, 1]).reshape(CLASSES, n)
    want = 2 * np.pi * (np.arange(CLASSES)[:, None] + np.linspace(0, 1, n)) / CLASSES
    offset = (angle - want + np.pi) % (2 * np.pi) - np.pi
    assert offset.min() > -0.05  # the two axes are standardised apart, which bends angles a little
    assert offset.max() < 0.55
    assert abs(offset.mean() - 0.25) < 0.02


def test_points_do_not_depend_on_when_they_are_drawn():
    np.testing.assert_array_equal(points("fednh", 50)[0], points("fednh", 50)[0])
