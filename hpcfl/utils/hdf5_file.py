"""Opens HDF5 files only after a check: HDF5 itself can crash or spin on a damaged file.

Each file that hpcfl writes ends with a trailer, a digest of the bytes before it, which HDF5 ignores. Writers
add it with `sealed` or `append_trailer`; readers use `open_hdf5`, which checks it before HDF5 opens the file.
A program that changes the file through HDF5 removes the trailer. A file without one, or with one of another
version, is read by a child process first (`hdf5_check`).
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import h5py

from hpcfl.utils import hdf5_check

SIGNATURE = b"\x89HDF\r\n\x1a\n"
MAGIC, END = b"\x89hpcfl<2", b"2>hpcfl\n"
"""First and last bytes of a trailer; one of them suffices to know that there should be one."""
TRAILER = struct.Struct("<8sQQQ32s8s")
"""MAGIC, length of the file before the trailer, start and end of its images, digest of the rest, END."""
CHUNK = 1 << 20
"""Bytes that get a digest of their own, so that threads share the work; the trailer has one of these."""
MAX_THREADS = 4
"""Most threads that make digests; not more than this process has cores."""
CHECK_SECONDS = 60.0
"""Time after which a child process that waits for the file system is ended."""
DAMAGED = "not an HDF5 file, or a damaged one"
_CHECKED: dict[tuple[int, int], tuple[tuple[int, ...], str]] = {}
"""By device and inode, the files that this process has checked: times and size, and what is wrong with it."""


def sealed(image: bytes) -> bytes:
    """Returns a whole HDF5 file, made in memory, with its trailer: `part.write_bytes(sealed(image))`."""
    view = memoryview(image)
    return image + _trailer(lambda size, position: view[position : position + size], len(image), 0, 0)


def append_trailer(path: Path, start: int = 0, stop: int = 0) -> None:
    """Appends the trailer to a closed HDF5 file, before it is flushed and renamed into place.

    Its images, the bytes from `start` to `stop`, are left out: they are large and have their own checksum.
    """
    with open(path, "r+b") as file:
        length = file.seek(0, os.SEEK_END)
        file.write(_trailer(partial(os.pread, file.fileno()), length, start, stop))


@contextmanager
def open_hdf5(path: Path) -> Iterator[h5py.File]:
    """Yields an HDF5 file for reading; raises OSError, with a reason, if it is damaged or refers to others.

    HDF5 opens the file by name: given a Python file object, it may call Python after its exit, and crash.
    """
    with ExitStack() as stack:
        while True:
            descriptor = open_regular(path)
            stack.callback(os.close, descriptor)
            status = os.fstat(descriptor)
            _check(path, descriptor, status)
            file = stack.enter_context(h5py.File(path, "r", locking=False))
            if os.path.samestat(status, os.fstat(file.id.get_vfd_handle())):
                break
            stack.pop_all().close()  # replaced by another file between the two opens
        try:
            hdf5_check.check_structure(file, status.st_size)
        except ValueError as error:
            raise _refusal(path, str(error)) from None
        yield file


def open_regular(path: Path) -> int:
    """Returns a descriptor of a file; raises OSError if it is something else, without waiting for a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise _refusal(path, "not a regular file")


def read_regular(path: Path) -> bytes:
    """Returns the bytes of a file; raises OSError if it is something else, without waiting for a pipe."""
    with open(open_regular(path), "rb") as file:
        return file.read()


def is_hdf5(path: Path) -> bool:
    """Returns whether a file begins as HDF5 files do; it may be damaged after that."""
    try:
        descriptor = open_regular(path)
    except OSError:
        return False
    try:
        return _has_signature(descriptor)
    finally:
        os.close(descriptor)


def _has_signature(descriptor: int) -> bool:
    return os.pread(descriptor, len(SIGNATURE), 0) == SIGNATURE


def _check(path: Path, descriptor: int, status: os.stat_result) -> None:
    """Raises OSError if something is wrong with a file; each is checked once."""
    key = (status.st_dev, status.st_ino)
    version = (status.st_mtime_ns, status.st_ctime_ns, status.st_size)
    checked, problem = _CHECKED.get(key, ((), ""))
    if checked != version:
        problem = _problem(path, descriptor, status.st_size)
        _CHECKED[key] = version, problem
    if problem:
        raise _refusal(path, problem)


def _problem(path: Path, descriptor: int, size: int) -> str:
    """Returns what is wrong: the file differs from its digest, or has none and a child cannot read it."""
    if not _has_signature(descriptor):
        return DAMAGED
    end = os.pread(descriptor, TRAILER.size, max(0, size - TRAILER.size))
    if len(end) == TRAILER.size and (MAGIC in end or END in end):
        length = size - TRAILER.size
        start, stop = TRAILER.unpack(end)[2:4]
        read = partial(os.pread, descriptor)
        is_whole = start <= stop <= length and end == _trailer(read, length, start, stop)
        return "" if is_whole else "damaged: its bytes do not match its digest"
    return _problem_in_child(path)


def _problem_in_child(path: Path) -> str:
    """Reads a file in a process with limits on time and memory; returns what is wrong with it."""
    program = [sys.executable, "-P", hdf5_check.__file__, os.path.abspath(path)]
    try:
        done = subprocess.run(
            program,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=CHECK_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return DAMAGED
    reason = done.stdout.decode(errors="replace").strip()
    return "" if done.returncode == 0 else reason if done.returncode == hdf5_check.REFUSED else DAMAGED


def _trailer(read: Callable[[int, int], bytes | memoryview], length: int, start: int, stop: int) -> bytes:
    """Returns the trailer of a file of `length` bytes, without its images from `start` to `stop`.

    `read(size, position)` returns bytes of the file. SHA-256, as most processors have instructions for it.
    """
    chunks = [
        (min(CHUNK, end - position), position)
        for begin, end in ((0, start), (stop, length))
        for position in range(begin, end, CHUNK)
    ]
    threads = max(1, min(MAX_THREADS, len(os.sched_getaffinity(0)), len(chunks)))

    def digests(first: int) -> list[bytes]:
        return [hashlib.sha256(read(*chunk)).digest() for chunk in chunks[first::threads]]

    digest = hashlib.sha256(f"{length} {start} {stop} ".encode())
    if threads == 1:
        digest.update(b"".join(digests(0)))
    else:
        with ThreadPoolExecutor(threads) as pool:
            by_thread = list(pool.map(digests, range(threads)))
        digest.update(b"".join(by_thread[i % threads][i // threads] for i in range(len(chunks))))
    return TRAILER.pack(MAGIC, length, start, stop, digest.digest(), END)


def _refusal(path: Path, reason: str) -> OSError:
    return OSError(errno.EBADMSG, reason, str(path))
