"""Records of runs made by hand, for the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hpcfl.config.loading import load_config
from hpcfl.log.reader import Run
from hpcfl.log.schema import BY_PATH
from hpcfl.log.summary import Summary
from hpcfl.report.records import RunRecord, own_inference

TESTS_M = (100, 300)
"""Test samples of the two clients of a record."""


def record(
    method: str,
    accuracy: dict[str, tuple[float, float]],
    *settings: str,
    slots: str = "infer head",
    status: str = "finished",
    rounds: tuple[float, ...] = (0.5, 0.6),
    **attributes: Any,
) -> RunRecord:
    """Returns the record of a run of two clients; `accuracy` is theirs, by inference."""
    config = load_config(None, [f"method.name={method}", *settings])
    datasets = {
        "/round/accuracy": np.array(rounds),
        "/round/bytes_up": np.full(len(rounds), 40),
        "/round/bytes_down": np.full(len(rounds), 60),
        "/round/seconds": np.full(len(rounds), 0.5),
        "/clients/test_samples": np.array(TESTS_M),
    }
    attributes = {"method": slots, "status": status, "rounds_done": len(rounds), **attributes}
    metrics = {path: BY_PATH[path] for path in datasets}
    run = Run(Path(f"{method}.h5"), attributes, config, datasets, metrics)
    accuracy_M = {name: np.array(values) for name, values in accuracy.items()}
    summary = Summary(accuracy=rounds[-1], bytes_up=40.0, bytes_down=60.0, seconds=0.5)
    return RunRecord(run, summary, accuracy_M, own_inference(run))
