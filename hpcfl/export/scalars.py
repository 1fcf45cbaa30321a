"""What trackers show of a run: its configuration, and the values of each round."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from importlib.util import find_spec

import numpy as np

from hpcfl.config.identity import settings
from hpcfl.errors import BadInput
from hpcfl.log.reader import Run


def require(package: str) -> None:
    """Raises BadInput unless the package that an export needs is installed."""
    if find_spec(package) is None:
        raise BadInput(f"--to {package} needs a package that is not installed: pip install {package}")


def rounds(run: Run) -> Iterator[tuple[int, float, dict[str, float]]]:
    """Yields for each round its number from 1, when it ended, and its values without NaN and infinity."""
    ends = start_time(run) + np.cumsum(run["/round/seconds"])
    paths = [metric.path for metric in run.metrics.values() if metric.dims == ("round",)]
    for t, end in enumerate(ends.tolist()):
        values = {path[1:]: float(run[path][t]) for path in paths}
        yield t + 1, end, {name: value for name, value in values.items() if math.isfinite(value)}


def start_time(run: Run) -> float:
    """Returns when the run started, in seconds since 1970."""
    return datetime.fromisoformat(str(run.attributes["start"])).timestamp()


def parameters(run: Run) -> dict[str, str | int | float | bool]:
    """Returns the configuration by key, with seeds, and the state of the run."""
    values = settings(run.config) | {
        "seed": run.config.seed,
        "partition.seed": run.config.partition.seed,
        "status": run.status,
    }
    return {
        key: value if isinstance(value, str | int | float | bool) else str(value)
        for key, value in values.items()
        if value is not None
    }


def run_id(run: Run) -> str:
    """Returns the id of a run, so that a second export of it is the same run; old logs have none."""
    return str(run.attributes.get("run_id") or f"{int(1000 * start_time(run)):x}")[:16]
