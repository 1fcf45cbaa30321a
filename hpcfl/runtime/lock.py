"""One run per log: a lock beside it that dies with its owner."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import time
from pathlib import Path

from hpcfl.errors import BadInput

MOMENT = 1.0
"""Seconds that a lock may be held by somebody who only looks at it."""
PATIENCE = 120.0
"""Seconds after which a file server has noticed that a lock's owner is gone."""


class LockHeld(BadInput):
    """Another job has the lock."""


def was_restarted() -> bool:
    """Says whether this job was started again, by Slurm or jobs/: a lock may be its own, not let go yet."""
    return any(os.environ.get(name, "0") != "0" for name in ("SLURM_RESTART_COUNT", "HPCFL_RESTARTS"))


def is_locked(log: Path) -> bool:
    """Says whether a run that writes this log is alive, as far as the file system knows."""
    try:
        handle = os.open(f"{log}.lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EAGAIN, errno.EACCES)
    finally:
        os.close(handle)
    return False


class RunLock:
    """Held while this process lives; the system lets go of it when the process ends, however it ends."""

    def __init__(self, log: Path):
        self.path = Path(f"{log}.lock")
        self.handle = -1

    def acquire(self, patience: float | None = None) -> None:
        """Acquires the lock, or raises BadInput naming its owner.

        A job that the batch system has started again waits for a while: a node that went down may hold it.
        """
        patience = PATIENCE if patience is None and was_restarted() else patience or MOMENT
        until = time.monotonic() + patience
        while True:
            try:
                return self._try()
            except LockHeld:
                if time.monotonic() >= until:
                    raise
            time.sleep(MOMENT / 4)

    def _try(self) -> None:
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise BadInput(f"cannot write {self.path}: {error.strerror}") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not self._is_ours(handle):  # its owner has just taken it away
                os.close(handle)
                self._try()
                return
        except OSError as error:
            owner = os.read(handle, 200).decode(errors="replace").strip() or "another job"
            os.close(handle)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise LockHeld(f"{self.path} is held by {owner}: two jobs cannot write one log") from None
            return  # a file system without locks: the log's own name still protects it
        os.ftruncate(handle, 0)
        job = os.environ.get("SLURM_JOB_ID") or os.environ.get("PBS_JOBID") or os.environ.get("LSB_JOBID")
        said = f"process {os.getpid()} on {platform.node()}" + (f", job {job}" if job else "")
        os.write(handle, said.encode())
        self.handle = handle

    def _is_ours(self, handle: int) -> bool:
        """Says whether the name still leads to the file that is locked."""
        try:
            return os.path.samestat(os.fstat(handle), os.stat(self.path))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Lets go, and takes the file away."""
        if self.handle >= 0:
            self.path.unlink(missing_ok=True)
            os.close(self.handle)
            self.handle = -1
