"""A run as a TensorBoard event file: scalars by round, the clients' accuracies, the configuration."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hpcfl.export.scalars import start_time
from hpcfl.log.reader import Run

HISTOGRAM = "/client/accuracy"
"""Dataset that is shown as a histogram over clients."""


def write(run: Run, directory: Path) -> Iterator[str]:
    """Writes the event file of a run and yields its name; steps are rounds, counted from 1."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    name = f"events.out.tfevents.{time.time_ns() // 10**9:010d}.hpcfl"
    with open(directory / name, "wb") as file:
        writer = RecordWriter(file)
        for event in _events(run):
            writer.write(event.SerializeToString())
    yield name


def _events(run: Run) -> Iterator[Any]:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.text.summary_v2 import text_pb

    start = start_time(run)
    yield Event(wall_time=start, file_version="brain.Event:2")
    texts = {"config": run.attributes["config"], "method": run.attributes.get("method", "")}
    if run.study:
        texts["study"] = run.study
    for name, text in texts.items():
        words = "\n".join(f"    {line}" for line in str(text).splitlines())
        yield Event(wall_time=start, step=0, summary=text_pb(name, words))
    ends = start + np.cumsum(run["/round/seconds"])
    for t, end in enumerate(ends.tolist()):
        yield Event(wall_time=end, step=t + 1, summary=_summary(run, t))


def _summary(run: Run, t: int) -> Any:
    """Returns a round; NaN is left out, so that lines connect the values that were measured."""
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.histogram.summary_v2 import histogram_pb
    from tensorboard.plugins.scalar.summary_v2 import scalar_pb

    parts = []
    with np.errstate(over="ignore"):  # TensorBoard stores float32: too large values become inf
        for metric in run.metrics.values():
            if metric.dims == ("round",) and not math.isnan(value := float(run[metric.path][t])):
                parts.append(scalar_pb(metric.path[1:], value, metric.about))
    finite_M = run[HISTOGRAM][t][np.isfinite(run[HISTOGRAM][t])]
    if len(finite_M):
        parts.append(histogram_pb(HISTOGRAM[1:], finite_M, description="one value for each client"))
    return Summary(value=[value for part in parts for value in part.value])
