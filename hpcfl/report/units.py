"""What published numbers measure, and their units."""

from __future__ import annotations

from typing import Literal

from hpcfl.log.summary import INFERENCES

Measure = Literal[
    "accuracy", "accuracy_clients", "best", "clients_best", "selected", "head", "global", "local", "trained",
    "silhouette", "personalisation", "bytes_up", "bytes_down", "bytes", "bytes_client", "flops", "seconds",
]  # fmt: skip
Unit = Literal["%", "1", "B", "kB", "MB", "GB", "k floats", "M floats", "G", "s"]
SIZES = {
    "%": 0.01, "1": 1.0, "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "k floats": 4e3, "M floats": 4e6,
    "G": 1e9, "s": 1.0,
}  # fmt: skip
"""Units of published numbers, in those of a log."""
BYTES = ("B", "kB", "MB", "GB", "k floats", "M floats")
UNITS = dict.fromkeys(("bytes_up", "bytes_down", "bytes", "bytes_client"), BYTES) | {
    "silhouette": ("1",), "personalisation": ("1",), "seconds": ("s",), "flops": ("G",),
}  # fmt: skip
"""Units that a measure may have; others are accuracies."""
BY_ROUND = {
    "accuracy": "/round/accuracy", "accuracy_clients": "/round/accuracy_mean",
    "bytes_up": "/round/bytes_up", "bytes_down": "/round/bytes_down",
    **{name: f"/client/accuracy_{name}" for name in INFERENCES},
    "silhouette": "/round/silhouette_pooled", "personalisation": "/round/personalisation",
}  # fmt: skip
"""Measures that can be those after a given round, and their datasets."""
