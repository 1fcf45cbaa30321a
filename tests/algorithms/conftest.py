"""Fixtures of the tests of algorithms."""

from __future__ import annotations

import pytest
import torch

from hpcfl.engine.worker import Worker


@pytest.fixture
def sent(monkeypatch) -> list[dict[str, torch.Tensor]]:
    """What the server sends, by broadcast."""
    found: list[dict[str, torch.Tensor]] = []
    receive = Worker.receive

    def recording(self, download):
        found.append({name: value.clone() for name, value in download.items()})
        receive(self, download)

    monkeypatch.setattr(Worker, "receive", recording)
    return found
