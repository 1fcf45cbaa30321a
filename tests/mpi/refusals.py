"""Tries many runs that must be refused, in one MPI start; the argument lists them as JSON."""

import json
import sys

from hpcfl.comm.communicator import open_communicator
from hpcfl.comm.launcher import find_launcher
from hpcfl.engine import launch


def main(attempts: list) -> None:
    comm = open_communicator(find_launcher())
    leave, comm.close = comm.close, comm.release  # type: ignore[method-assign]
    launch.open_communicator = lambda launcher: comm
    for config, settings, out, fresh in attempts:
        codes = comm.allgather_object(launch.launch_train(config, settings, out, fresh))
        if comm.is_server:
            print(f"codes {codes}", file=sys.stderr, flush=True)
    leave()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
