"""`hpcfl train`, but one rank fails at a chosen place: python -m tests.mpi.failing RANK PLACE OUT.

At the place `cell` it is `hpcfl study run` of study.toml beside OUT.
"""

import sys
import time
from pathlib import Path

from hpcfl.comm.launcher import find_launcher
from hpcfl.engine import launch, run
from hpcfl.study.run import run_study


def fail(*_: object, **__: object) -> None:
    print(f"failing at {time.time()}", file=sys.stderr, flush=True)
    raise ZeroDivisionError("made to fail")


def main(rank: int, place: str, out: str) -> int:
    found = find_launcher()
    assert found is not None
    if found.rank == rank:
        if place == "start":
            run._run = fail  # type: ignore[assignment]
        elif place == "plan":
            launch.plan_run = fail  # type: ignore[assignment]
        elif place == "cell":
            from hpcfl.engine.worker import Worker

            original = Worker.train_client
            Worker.train_client = lambda self, t, i: (fail if t else original)(self, t, i)  # type: ignore
        else:
            from hpcfl.engine.server import Server

            Server.aggregate = fail  # type: ignore[method-assign]
    if place == "cell":
        beside = Path(out).parent
        return run_study(str(beside / "study.toml"), "full", [], str(beside), [])
    return launch.launch_train(None, ["federation.rounds=50"], out, False)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
