"""`hpcfl train`, but one rank fails at a chosen place: python -m tests.mpi.failing RANK PLACE OUT.

At the place `cell` it is `hpcfl study run` of study.toml beside OUT.
"""

import sys
import time
from pathlib import Path

from hpcfl.comm.launcher import launcher
from hpcfl.engine import assemble as conduct
from hpcfl.engine import launch as job
from hpcfl.study.run import run as study


def fail(*_: object, **__: object) -> None:
    print(f"failing at {time.time()}", file=sys.stderr, flush=True)
    raise ZeroDivisionError("made to fail")


def main(rank: int, place: str, out: str) -> int:
    found = launcher()
    assert found is not None
    if found.rank == rank:
        if place == "start":
            conduct._federate = fail  # type: ignore[assignment]
        elif place == "plan":
            job.plan = fail  # type: ignore[assignment]
        elif place == "cell":
            from hpcfl.engine.worker import Worker

            original = Worker.update
            Worker.update = lambda self, t, i, target: (fail if t else original)(self, t, i, target)  # type: ignore
        else:
            from hpcfl.engine.server import Server

            Server.refine = fail  # type: ignore[method-assign, assignment]
    if place == "cell":
        beside = Path(out).parent
        return study(str(beside / "study.toml"), "full", [], str(beside), [])
    return job.train(None, ["federation.rounds=50"], out, False)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
