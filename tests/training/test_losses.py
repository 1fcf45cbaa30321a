"""Losses that are still on the device: read at once, or fetched with something else."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from hpcfl.bench.stand_in import Counts, counted, is_possible, stand_in_devices
from hpcfl.training.losses import PendingLosses


def pending(device: str) -> PendingLosses:
    def compute(on_host: Sequence[Tensor]) -> dict[str, float]:
        return {"loss": float(on_host[0].sum()), "ce": float(on_host[1])}

    parts = [torch.tensor([1.0, 2.0]).to(device), torch.tensor(0.5).to(device)]
    return PendingLosses(("loss", "ce"), parts, compute)


def test_an_algorithm_may_read_them_and_add_its_own():
    losses = pending("cpu")
    assert losses["loss"] == 3
    assert losses | {"more": 7.0} == {"loss": 3.0, "ce": 0.5, "more": 7.0}
    assert dict(pending("cpu")) == {"loss": 3.0, "ce": 0.5}


@pytest.mark.skipif(not is_possible(), reason="this torch has no backends in Python")
def test_the_device_is_waited_for_once_or_not_at_all():
    with stand_in_devices(1):
        read, fetched = pending("standin"), pending("standin")
        of_read, of_fetched = Counts(), Counts()
        with counted(of_read):
            assert (read["loss"], read["ce"]) == (3, 0.5)
        with counted(of_fetched):
            assert "loss" in fetched
            assert list(fetched) == ["loss", "ce"]
            fetched.finish([torch.tensor([4.0]), torch.tensor(0.25)])
            assert (fetched["loss"], fetched["ce"]) == (4, 0.25)
    assert (of_read.syncs, of_fetched.syncs) == (1, 0)
