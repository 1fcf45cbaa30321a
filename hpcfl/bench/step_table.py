"""Figures of `hpcfl bench step`: written to a file, read back, and printed beside older ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from hpcfl.errors import BadInput
from hpcfl.utils.files import move_into_place, temporary_path
from hpcfl.utils.formatting import console, plural

PLAIN, OURS = "plain loop", "hpcfl"
ALL_TOGETHER = "all together"


def write_figures(path: str, figures: dict[str, Any]) -> None:
    try:
        with temporary_path(Path(path)) as part:
            part.write_text(json.dumps(figures, indent=1))
            move_into_place(part, Path(path))
    except OSError as error:
        raise BadInput(f"--json {path}: {error.strerror}") from None


def read_figures(path: str) -> dict[str, Any]:
    """Returns figures from a file that `write_figures` wrote."""
    try:
        figures = json.loads(Path(path).read_text())
        lists = [times for by_label in figures["seconds"].values() for times in by_label.values()]
        if {len([float(time) for time in times]) for times in lists} != {figures["repeats"]}:
            raise ValueError
        figures["config"].splitlines()
    except OSError as error:
        raise BadInput(f"--baseline {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise BadInput(f"--baseline {path}: not a file that hpcfl bench step --json wrote") from None
    return figures


def seconds(figures: dict[str, Any], name: str, label: str) -> np.ndarray:
    """Returns seconds by repeat of an architecture, or of all together."""
    names = list(figures["seconds"]) if name == ALL_TOGETHER else [name]
    return np.sum([figures["seconds"][each][label] for each in names], axis=0)


def ratios(figures: dict[str, Any], name: str, label: str) -> np.ndarray:
    """Returns by repeat the seconds ÷ those of the plain loop."""
    return seconds(figures, name, label) / seconds(figures, name, PLAIN)


def shares(figures: dict[str, Any], name: str, label: str) -> np.ndarray:
    """Returns by repeat the FLOP/s ÷ those of a matrix product on this machine."""
    names = list(figures["seconds"]) if name == ALL_TOGETHER else [name]
    flops = sum(figures["flops"][each] for each in names)
    return flops / seconds(figures, name, label) / np.array(figures["limits"]["gemm"])


def print_figures(figures: dict[str, Any], old: dict[str, Any] | None) -> None:
    """Prints medians over repeats, with minimum and maximum of the ratios."""
    gemm, memory = (np.array(figures["limits"][name]) / 1e9 for name in ("gemm", "memory"))
    screen = console()
    screen.print(
        f"{plural(figures['ranks'], 'rank')} on {figures['device']} ({figures['instructions']}), each alike: "
        f"matrix product {_spread(gemm, '.0f')} GFLOP/s, memory {_spread(memory, '.1f')} GB/s; "
        f"{figures['samples']} samples, medians of {plural(figures['repeats'], 'repeat')}; "
        f"plain loop: torch's own, float32; hpcfl: {figures['step']}"
    )
    table = Table("architecture", "", box=None, pad_edge=False)
    for head in ("ms per sample", "÷ plain", "least", "most", "of GEMM limit", "loss"):
        table.add_column(head, justify="right")
    if old:
        table.add_column("÷ plain before", justify="right")
        table.add_column("now ÷ before", justify="right")
    names = [*figures["seconds"], *([ALL_TOGETHER] if len(figures["seconds"]) > 1 else [])]
    for name in names:
        for label in next(iter(figures["seconds"].values())):
            ratio_T = ratios(figures, name, label)
            row = [
                name,
                label,
                f"{1e3 * np.median(seconds(figures, name, label)) / figures['samples']:.3f}",
                f"{np.median(ratio_T):.3f}",
                f"{ratio_T.min():.3f}",
                f"{ratio_T.max():.3f}",
                f"{100 * np.median(shares(figures, name, label)):.0f}%",
                "" if name == ALL_TOGETHER else f"{figures['losses'][name][label]:.5f}",
            ]
            comparable = old and (name != ALL_TOGETHER or old["seconds"].keys() == figures["seconds"].keys())
            now = float(np.median(ratio_T))
            table.add_row(*row, *(_compare(old if comparable else None, name, label, now) if old else ()))
    screen.print(table)
    if old and old["config"] != figures["config"]:
        screen.print("before: another configuration")


def _compare(old: dict[str, Any] | None, name: str, label: str, now: float) -> tuple[str, str]:
    if old is None:
        return "–", "–"
    seconds_by_label = old["seconds"].values() if name == ALL_TOGETHER else [old["seconds"].get(name, {})]
    if not all(label in labels and PLAIN in labels for labels in seconds_by_label):
        return "–", "–"
    before = float(np.median(ratios(old, name, label)))
    return f"{before:.3f}", f"{now / before:.3f}"


def _spread(values: np.ndarray, form: str) -> str:
    low, middle, high = (format(value, form) for value in (values.min(), np.median(values), values.max()))
    return f"{middle} ({low}–{high})"
