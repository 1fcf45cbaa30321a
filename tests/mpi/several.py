"""Runs all cases, one of them in all ways, in one MPI start: python -m tests.mpi.several DIRECTORY DATA."""

import sys
from pathlib import Path

from hpcfl import job
from hpcfl.comm.launcher import launcher
from hpcfl.comm.link import open_link
from tests.mpi.cases import runs


def main(directory: Path, root: str) -> None:
    link = open_link(launcher())
    leave, link.close = link.close, lambda: None  # type: ignore[method-assign]
    job.open_link = lambda found: link
    codes = {}
    for name, settings in runs(link.size).items():
        codes[name] = job.train(None, [*settings, f"data.root={root}"], str(directory / f"{name}.h5"), False)
    if link.is_server:
        print("codes", codes)
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
