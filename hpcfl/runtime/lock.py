"""A lock file beside each log, so that only one run writes it; a dead owner's lock is released."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import platform
import stat
import time
from pathlib import Path

from hpcfl.errors import BadInput

PROBE_WAIT = 1.0
"""Seconds to wait for a lock that `is_locked` of another process may be holding for an instant."""
RESTART_WAIT = 120.0
"""Seconds after which a file server has released the lock of a dead owner."""


class LockHeld(BadInput):
    """Another job holds the lock."""


def was_restarted() -> bool:
    """Returns whether Slurm or a jobs/ script restarted this job; its old lock may then still be held."""
    return any(os.environ.get(name, "0") != "0" for name in ("SLURM_RESTART_COUNT", "HPCFL_RESTARTS"))


def is_locked(log: Path) -> bool:
    """Returns whether a running process holds the lock of this log, as far as the file system knows."""
    try:
        handle = _open(f"{log}.lock", os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EAGAIN, errno.EACCES)
    finally:
        os.close(handle)
    return False


def _open(path: str | Path, flags: int) -> int:
    """Returns a handle of a lock file; raises OSError where a link, a pipe or a device has its name."""
    handle = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    status = os.fstat(handle)
    if stat.S_ISREG(status.st_mode) and status.st_nlink < 2:
        return handle
    os.close(handle)
    is_regular = stat.S_ISREG(status.st_mode)
    raise OSError(errno.EINVAL, f"it is {'a hard link' if is_regular else 'not a regular file'}")


class RunLock:
    """A lock that the operating system releases when this process ends, however it ends."""

    def __init__(self, log: Path):
        self.path = Path(f"{log}.lock")
        self.handle = -1

    def acquire(self, timeout: float | None = None) -> None:
        """Acquires the lock, or raises LockHeld, which names its owner, after `timeout` seconds.

        By default a restarted job waits RESTART_WAIT: a node that went down may still hold the lock.
        """
        timeout = RESTART_WAIT if timeout is None and was_restarted() else timeout or PROBE_WAIT
        end = time.monotonic() + timeout
        while True:
            try:
                return self._try_acquire()
            except LockHeld:
                if time.monotonic() >= end:
                    raise
            time.sleep(PROBE_WAIT / 4)

    def _try_acquire(self) -> None:
        try:
            handle = _open(self.path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            reason = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
            raise BadInput(f"cannot write {self.path}: {reason}") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not self._is_current(handle):  # its owner has just deleted the file
                os.close(handle)
                self._try_acquire()
                return
        except OSError as error:
            owner = os.read(handle, 200).decode(errors="replace").strip() or "another job"
            os.close(handle)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise LockHeld(f"{self.path} is held by {owner}: two jobs cannot write one log") from None
            return  # no locks here; a new log still gets its name only if that is free
        self.handle = handle
        job = os.environ.get("SLURM_JOB_ID") or os.environ.get("PBS_JOBID") or os.environ.get("LSB_JOBID")
        owner = f"process {os.getpid()} on {platform.node()}" + (f", job {job}" if job else "")
        try:
            os.ftruncate(handle, 0)
            os.write(handle, owner.encode())
        except OSError as error:
            self.release()
            raise BadInput(f"cannot write {self.path}: {error.strerror}") from None

    def _is_current(self, handle: int) -> bool:
        """Returns whether the path still names the locked file."""
        try:
            return os.path.samestat(os.fstat(handle), os.lstat(self.path))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Releases the lock and deletes its file; one that cannot be deleted is no lock without its owner."""
        if self.handle >= 0:
            with contextlib.suppress(OSError):
                if self._is_current(self.handle):
                    self.path.unlink()
            os.close(self.handle)
            self.handle = -1
