"""A rank's part of a checkpoint: clients' vectors go to disk beside the work of the next round."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from torch import Tensor

from hpcfl.checkpoint.store import digest, vector_file_name
from hpcfl.comm.metrics_codec import SavedClient
from hpcfl.errors import Fatal


class CheckpointWriter:
    """Writes what changed since the last checkpoint, each client before it is trained again.

    Whoever trains a client in the round after the checkpoint saves its old vector first; of the others every
    rank saves its share when its work is done. A thread waits for the disk, so that no round does.
    """

    def __init__(self, directory: Path, rank: int, token: str, vector: Callable[[int], Tensor]):
        self.directory, self.rank, self.token, self.vector = directory, rank, token, vector
        self.changed: set[int] = set()
        self.pending: set[int] = set()
        self.round = -1
        self.file: BinaryIO | None = None
        self.written: list[SavedClient] = []
        self.flushing: threading.Thread | None = None
        self.problem: OSError | None = None

    def mark_changed(self, clients: Iterable[int]) -> None:
        """Remembers whose vectors change in this round."""
        self.changed |= set(clients)

    def begin(self, t: int) -> None:
        """Begins the checkpoint of round t: what changed up to now is to be saved as it is now."""
        self.round, self.pending, self.changed = t, self.changed, set()

    def save_before_change(self, i: int) -> None:
        """Saves a client that is about to change, if it must be."""
        if i not in self.pending:
            return
        self.pending.discard(i)
        data = self.vector(i).numpy().data
        try:
            if self.file is None:
                name = vector_file_name(self.round, str(self.rank), self.token)
                self.file = open(self.directory / name, "wb")  # noqa: SIM115  # closed by the thread
            at = self.file.tell()
            self.file.write(data)
        except OSError as error:
            self._fail(error)
        self.written.append(SavedClient(i, at, data.nbytes, digest(data)))

    def save_rest(self, mine: Iterable[int], chosen: Iterable[int]) -> None:
        """Saves this rank's share of those that nobody trains; the disk may then take its time."""
        if not self.pending and self.file is None:
            return
        others = set(chosen)
        for i in mine:
            if i not in others:
                self.save_before_change(i)
        self.pending.clear()
        if self.file is not None:
            self.flushing = threading.Thread(target=self._flush, args=(self.file,), daemon=True)
            self.flushing.start()
            self.file = None

    def take_saved(self, wait: bool = False) -> list[SavedClient]:
        """Returns what has come to disk since the last call; with `wait`, all that is on its way."""
        if self.flushing is None or (self.flushing.is_alive() and not wait):
            return []
        self.flushing.join()
        self.flushing = None
        if self.problem is not None:
            self._fail(self.problem)
        taken, self.written = self.written, []
        return taken

    def _flush(self, file: BinaryIO) -> None:
        try:
            with file:
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            self.problem = error

    def _fail(self, error: OSError) -> None:
        raise Fatal(
            f"cannot save to {self.directory}: {error.strerror}; what was saved before is kept, and the same "
            "command continues from there"
        )
