"""Logs and signs made by hand, and a view of them in words."""

from __future__ import annotations

from pathlib import Path

from hpcfl.log.heartbeat import Heartbeat
from hpcfl.log.writer import LogWriter
from hpcfl.watch.render import rows
from hpcfl.watch.status import RunStatus
from tests.log.test_log import row

SIGN = Heartbeat(time=1e9, round=7, part="train", missing=(2, 4, 5, 6), since=1e9 - 30)


def add(log: LogWriter, accuracy: float = 0.5, **more: object) -> None:
    """Adds a row and writes it."""
    given = {f"/{name.replace('__', '/')}": value for name, value in more.items()}
    log.append(row(log.rounds_done) | {"/round/accuracy": accuracy} | given, {})
    log.write()


def words(view: RunStatus) -> str:
    return "\n".join(f"{label} {text}" for label, text, _ in rows(view, Path("run.h5"), 60))
