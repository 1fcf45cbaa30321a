"""Tries many settings that must be refused, in one MPI start: python -m tests.mpi.refusals SETTING…"""

import sys

from hpcfl import job
from hpcfl.comm.launcher import launcher
from hpcfl.comm.link import open_link


def main(settings: list[str]) -> None:
    link = open_link(launcher())
    leave, link.close = link.close, lambda: None  # type: ignore[method-assign]
    job.open_link = lambda found: link
    for setting in settings:
        if link.is_server:
            print(f"setting {setting}", file=sys.stderr, flush=True)
        codes = link.facts(job.train(None, [setting], None, False))
        if link.is_server:
            print(f"codes {codes}", file=sys.stderr, flush=True)
    leave()


if __name__ == "__main__":
    main(sys.argv[1:])
