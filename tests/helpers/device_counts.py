"""What a whole run asks of a stand-in device: python -m tests.helpers.device_counts METHOD …"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

from hpcfl.bench.stand_in import Counts, counted, stand_in_devices
from hpcfl.engine.launch import launch_train
from tests.helpers.cases import CASES


def count_run(method: str) -> Counts:
    """Returns the counts of three rounds of a method, with two clients each, on one rank."""
    found = Counts()
    quiet, directory = redirect_stderr(StringIO()), tempfile.TemporaryDirectory()
    with stand_in_devices(1), quiet, directory, counted(found):
        code = launch_train(None, CASES[method], str(Path(directory.name, "run.h5")), False)
    assert code == 0, method
    return found


def main(methods: Sequence[str]) -> None:
    for method in methods:
        found = count_run(method)
        print(f"{method}: {found.syncs} waits, {found.kernels} kernels", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
