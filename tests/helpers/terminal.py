"""Commands run on a terminal of their own."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
from pathlib import Path


def on_a_terminal(command: list[str], directory: Path, columns: int) -> str:
    """Returns what a command writes to a terminal of its own."""
    theirs, ours = pty.openpty()[::-1]
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environ = os.environ | {"TERM": "xterm"}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, cwd=directory, env=environ):
        os.close(theirs)
        seen = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
            seen += part
    os.close(ours)
    return seen.decode()
