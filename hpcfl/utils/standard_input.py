"""Standard input as text, also where the launcher does not pass on its end."""

from __future__ import annotations

import os
import select
import sys

FIRST = 30.0
"""Seconds that a rank of Open MPI waits for the first input."""
SILENCE = 3.0
"""Seconds without further input that count as its end there."""


def read_standard_input() -> bytes:
    """Returns all of standard input; under mpirun it comes to rank 0 alone.

    The mpirun of Open MPI 5 passes input on, but not its end: github.com/openpmix/openpmix/pull/4024.
    """
    if "PMIX_RANK" not in os.environ:
        return sys.stdin.buffer.read()
    return _read_until_silence(sys.stdin.fileno())


def _read_until_silence(descriptor: int) -> bytes:
    """Returns what comes until the end of a file or until nothing comes any more."""
    text, patience = b"", FIRST
    while select.select([descriptor], [], [], patience)[0]:
        chunk = os.read(descriptor, 1 << 16)
        if not chunk:
            break
        text, patience = text + chunk, SILENCE
    return text
