"""`hpcfl train`, but one rank fails at a chosen place: python -m tests.mpi.failing RANK PLACE OUT."""

import sys
import time

from hpcfl import job
from hpcfl.comm.launcher import launcher


def fail(*_: object, **__: object) -> None:
    print(f"failing at {time.time()}", file=sys.stderr, flush=True)
    raise ZeroDivisionError("made to fail")


def main(rank: int, place: str, out: str) -> int:
    found = launcher()
    assert found is not None
    if found.rank == rank:
        if place == "start":
            job._federate = fail  # type: ignore[assignment]
        elif place == "plan":
            job.plan = fail  # type: ignore[assignment]
        elif place == "train":
            from hpcfl.worker import Worker

            original = Worker.update
            Worker.update = lambda self, t, i, target: (fail if t else original)(self, t, i, target)  # type: ignore
        else:
            from hpcfl.server import Server

            Server.refine = fail  # type: ignore[method-assign, assignment]
    return job.train(None, ["federation.rounds=50"], out, False)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
