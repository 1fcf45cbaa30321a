"""The seconds of rank 0 that `hpcfl plan --calibrate` tries."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hpcfl.config.loading import load_config
from hpcfl.federation.run_plan import plan_run
from hpcfl.methods.catalogue import CATALOGUE
from hpcfl.plan.timing import time_server
from tests.helpers.cases import OWN


def seconds(*settings: str) -> float | None:
    plan = plan_run(load_config(None, ["data.samples_per_class=200", "models.list=['mlp_64']", *settings]))
    return time_server(plan, range(4))


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_method(name):
    """Factors of FedKD have no shape before they are made."""
    took = seconds("federation.rounds=60", f"method.name={name}", *OWN.get(name, []))
    assert (took is None) == (name == "fedkd")
    assert took is None or took > 0


def test_server_epochs_are_multiplied(monkeypatch):
    """The clock advances a second at each look, and one epoch is tried."""
    ticks = iter(range(100))
    monkeypatch.setattr("hpcfl.plan.timing.time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    assert seconds("method.name=fedtgp", "method.server_epochs=7") == 7
