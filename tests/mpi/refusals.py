"""Tries many runs that must be refused, in one MPI start; the argument lists them as JSON."""

import json
import sys

from hpcfl.comm.communicator import open_link
from hpcfl.comm.launcher import launcher
from hpcfl.engine import launch as job


def main(attempts: list) -> None:
    link = open_link(launcher())
    leave, link.close = link.close, link.release  # type: ignore[method-assign]
    job.open_link = lambda found: link
    for config, settings, out, fresh in attempts:
        codes = link.facts(job.train(config, settings, out, fresh))
        if link.is_server:
            print(f"codes {codes}", file=sys.stderr, flush=True)
    leave()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
