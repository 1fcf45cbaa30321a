import math

import pytest
import torch

from hpcfl.methods.metrics import prototype_metrics
from hpcfl.methods.prototypes import Prototypes
from hpcfl.methods.sphere import simplex_bound


def test_by_hand():
    """(3, 0), (0, 4) and (−5, 0): pairs are 5, 8 and √41 apart, their cosines 0, −1 and 0.

    Directions are √2, 2 and √2 apart, so the energy is −2 log √2 − log 2 = −2 log 2.
    """
    value_KD = torch.tensor([[3.0, 0], [0, 4], [-5, 0], [9, 9]])
    got = prototype_metrics(Prototypes(value_KD, torch.tensor([True, True, True, False])))
    assert got["margin"][:3].tolist() == pytest.approx([5, 5, math.sqrt(41)])
    assert got["margin_normalised"][:3].tolist() == pytest.approx([5 / 41**0.5, 5 / 41**0.5, 1])
    assert got["distance"] == pytest.approx([5, (5 + 8 + math.sqrt(41)) / 3, 8])
    assert got["cosine"] == pytest.approx([-1, -1 / 3, 0])
    assert got["energy"] == pytest.approx(-2 * math.log(2))
    assert got["energy_bound"] == simplex_bound(3) == pytest.approx(-1.5 * math.log(3))
    assert got["unreachable"][:3].tolist() == [0, 0, 1]
    assert got["margin"][3].isnan()
    assert got["unreachable"][3].isnan()


@pytest.mark.parametrize("present", [[], [1], [0]])
def test_fewer_than_two_classes_have_no_pairs(present):
    """Class 0 is present and zero: it has no direction."""
    prototypes = Prototypes(torch.tensor([[0.0, 0], [1, -1]]), torch.tensor([k in present for k in range(2)]))
    got = prototype_metrics(prototypes)
    assert all(
        math.isnan(value) for value in (*got["distance"], *got["cosine"], got["energy"], got["energy_bound"])
    )
    assert got["unreachable"].nansum().item() == pytest.approx(0.5 * (present == [1]))
