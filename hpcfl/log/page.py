"""The table of all metrics in docs/log.md, as `hpcfl catalog --metrics` prints it."""

from __future__ import annotations

from hpcfl.log.schema import BASE_METRICS, OPTIONAL_METRICS
from hpcfl.methods.baseline_metrics import BASELINE_METRICS
from hpcfl.methods.declared_metrics import PROTOTYPE_METRICS

TYPES = {"f8": "float64", "f4": "float32", "i8": "int64", "i4": "int32", "?": "bool", "string": "string"}
TABLES = {
    "Every run": BASE_METRICS,
    "Prototype methods": PROTOTYPE_METRICS,
    "Baselines": BASELINE_METRICS,
    **OPTIONAL_METRICS,
}


def metrics_tables() -> str:
    """Returns a table for every run, for what methods add, and for what is on request, in Markdown."""
    parts = []
    for title, metrics in TABLES.items():
        rows = [
            f"| `{m.path}` | {' × '.join(m.dims)} | {TYPES[m.dtype]} | {m.kind} | {m.about} |"
            for m in metrics
        ]
        heading = "| path | dimensions | type | kind | what |\n" + "|---" * 5 + "|"
        parts.append("\n".join([f"### {title}", heading, *rows]))
    return "\n\n".join(parts)
