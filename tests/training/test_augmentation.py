"""Augmentation: every sample's change depends on the key and the sample, on nothing else."""

import numpy as np
import pytest
import torch

from hpcfl.config.schema import DataConfig
from hpcfl.data.dataset import Dataset
from hpcfl.training.augmentation import PADDING, Augmentation, crop_and_flip, randaugment
from hpcfl.training.samples import SampleSource
from hpcfl.utils.torchvision_loader import load_torchvision

SIDE = 12


def images(number: int, channels: int = 3) -> torch.Tensor:
    values = np.random.default_rng(number).integers(1, 256, (number, SIDE, SIDE, channels), dtype=np.uint8)
    return torch.from_numpy(values)


def source(channels: int = 3, normalise: str = "channel") -> SampleSource:
    x = images(40, channels).numpy()
    pixels = x.reshape(-1, channels) / 255
    names = tuple("abcd")
    data = Dataset(x, np.arange(40) % 4, names, 40, "", mean_C=pixels.mean(0), std_C=pixels.std(0))
    return SampleSource(data, DataConfig.model_validate({"normalise": normalise}), torch.device("cpu"))


def test_moved_is_padding_and_cropping_written_out():
    """Pad with black, cut out a window of the image's size, then flip it."""
    x = images(5)
    shift = np.array([[-4, 4], [0, 0], [1, -2], [4, 4], [-3, 0]])
    mirror = np.array([True, True, False, False, True])
    got = crop_and_flip(x, shift, mirror)
    for b in range(5):
        padded = torch.zeros(SIDE + 2 * PADDING, SIDE + 2 * PADDING, 3, dtype=torch.uint8)
        padded[PADDING:-PADDING, PADDING:-PADDING] = x[b]
        top, left = shift[b] + PADDING
        want = padded[top : top + SIDE, left : left + SIDE]
        assert torch.equal(got[b], want.flip(1) if mirror[b] else want)


@pytest.mark.parametrize("steps", [["crop"], ["flip"], ["crop", "flip"], ["crop", "flip", "randaugment"]])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_view_of_a_sample_does_not_depend_on_its_batch(steps, channels):
    x, sample = images(30, channels), np.arange(100, 130)
    view = Augmentation(5, steps)
    whole = view(x, sample)
    assert whole.shape == x.shape
    assert whole.dtype == torch.uint8
    order = np.random.default_rng(0).permutation(30)
    for part in np.array_split(order, 7):
        assert torch.equal(view(x[part], sample[part]), whole[part])
    assert not torch.equal(Augmentation(6, steps)(x, sample), whole)
    assert torch.equal(x, images(30, channels)), "the dataset itself was changed"


def test_crops_and_flips_occur_as_often_as_they_should():
    x = images(1).repeat(2000, 1, 1, 1)
    flipped = Augmentation(1, ["flip"])(x, np.arange(2000))
    share = (flipped == x).all(3).all(2).all(1).double().mean()
    assert abs(share - 0.5) < 0.04
    cropped = Augmentation(1, ["crop"])(x, np.arange(2000))
    still = (cropped == x).all(3).all(2).all(1).double().mean()
    assert abs(still - 1 / 81) < 0.01


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("sign", [True, False])
def test_randaugment_is_torchvisions_at_magnitude_9(channels, sign):
    """All fourteen operations against RandAugment's own, whose older functions round a level differently."""
    load_torchvision()
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms.autoaugment import RandAugment, _apply_op

    x = images(14, channels).permute(0, 3, 1, 2).contiguous()
    got = randaugment(x, (np.arange(14) + 0.5) / 14, np.full(14, sign))
    space = RandAugment(2, 9)._augmentation_space(31, (SIDE, SIDE))
    assert len(space) == 14
    for number, (name, (magnitudes, signed)) in enumerate(space.items()):
        strength = float(magnitudes[9]) if magnitudes.ndim else 0.0
        strength *= -1 if signed and not sign else 1
        want = _apply_op(x[number], name, strength, InterpolationMode.NEAREST, None)
        assert (got[number].int() - want.int()).abs().max() <= 1, name


def test_batches_are_normalised_per_channel():
    """(x/255 − μ)/σ, channels first."""
    samples = source().samples(np.arange(5, 25))
    which = np.array([3, 0, 19])
    x_B, y_B = samples.batch(which)
    raw = samples.source.x[which + 5].double() / 255
    want = (raw - raw.new_tensor(images(40).numpy().reshape(-1, 3).mean(0) / 255)) / raw.new_tensor(
        images(40).numpy().reshape(-1, 3).std(0) / 255
    )
    torch.testing.assert_close(x_B.double(), want.permute(0, 3, 1, 2), rtol=1e-5, atol=1e-5)
    assert x_B.is_contiguous()
    assert y_B.tolist() == [(5 + i) % 4 for i in which]


def test_half_is_what_the_papers_code_does():
    x_B, _ = source(1, "half").samples(np.arange(40)).batch(np.arange(4))
    want = (images(40, 1)[:4].float() / 255 - 0.5) / 0.5
    torch.testing.assert_close(x_B, want.permute(0, 3, 1, 2), rtol=1e-5, atol=1e-5)


def test_a_view_sees_the_samples_place_in_the_dataset():
    """Two clients that share a sample see it alike under the same key, whatever its place in their lists."""
    whole = source()
    one, two = whole.samples(np.array([7, 8, 9])), whole.samples(np.array([9, 1]))
    view = Augmentation(3, ["crop", "flip"])
    assert torch.equal(one.batch(np.array([2]), view)[0], two.batch(np.array([0]), view)[0])
