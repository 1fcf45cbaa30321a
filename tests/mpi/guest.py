"""`hpcfl.train` as a guest of somebody else's MPI program; every rank calls `visit`."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import hpcfl
from hpcfl.config.loading import load_config
from hpcfl.engine.worker import Worker
from tests.helpers.cases import SAVED
from tests.helpers.pages import examples


def visit(comm: Any, directory: Path) -> dict[str, Any]:
    """Returns what each rank saw, by what was tried."""
    handler = signal.getsignal(signal.SIGTERM)
    seen: dict[str, Any] = {}
    run = hpcfl.train(load_config(None, SAVED), comm, out=directory / "guest.h5")
    seen["returned"] = run.rounds_done if run else None
    everybody = hpcfl.train(None, settings=SAVED, out=directory / "everybody.h5")  # all ranks of the launcher
    seen["everybody"] = everybody.rounds_done if everybody else None
    assert signal.getsignal(signal.SIGTERM) == handler
    os.chdir(directory)
    exec(examples("python.md")[1], {})  # two federations at the same time
    seen["bad"] = _raised(lambda: hpcfl.train({"train": {"lr": 0.0}}, comm))
    diverging = [*SAVED, "train.lr=1e30", "federation.rounds=1"]
    seen["diverged"] = _raised(lambda: hpcfl.train(None, comm, settings=diverging, out=directory / "d.h5"))
    original = Worker.train_client

    def update(self: Worker, t: int, *more: Any) -> Any:
        assert signal.getsignal(signal.SIGTERM) == handler
        if t == 1 and comm.rank == 1:
            raise ZeroDivisionError("made to fail")
        return original(self, t, *more)

    Worker.train_client = update  # type: ignore
    out, pinned = directory / "failing.h5", [*SAVED, "runtime.placement=pinned"]  # so that rank 1 has clients
    seen["failed"] = _raised(lambda: hpcfl.train(None, comm, settings=pinned, out=out))
    Worker.train_client = original  # type: ignore[method-assign]
    run = hpcfl.train(None, comm, settings=SAVED, out=out)
    seen["continued"] = run.rounds_done if run else None
    return {what: comm.allgather(mine) for what, mine in seen.items()}


def _raised(call: Any) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"
