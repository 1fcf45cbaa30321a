"""Imports what a rank imports and prints its memory: `python -m hpcfl.plan.memory_probe [images]`.

It prints the private bytes of the process, and those that it shares with other ranks of its node.
"""

from __future__ import annotations

import sys

import hpcfl.engine.launch
import hpcfl.engine.rounds
import hpcfl.log.create  # noqa: F401
from hpcfl.comm.mpi_library import find_mpi_library
from hpcfl.utils.torchvision_loader import load_torchvision


def main() -> None:
    """Prints the two numbers; fails on a system that does not provide them."""
    find_mpi_library()
    if "images" in sys.argv[1:]:
        load_torchvision()
    with open("/proc/self/smaps_rollup") as file:
        rows = [line.split() for line in file]
    nbytes = {row[0]: 1024 * int(row[1]) for row in rows if len(row) == 3}
    print(nbytes["Anonymous:"], nbytes["Rss:"] - nbytes["Anonymous:"])


if __name__ == "__main__":
    main()
