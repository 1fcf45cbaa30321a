"""A rank's part of a checkpoint: writes client states to disk during the next round."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import BinaryIO, NoReturn

from torch import Tensor

from hpcfl.checkpoint.saved_client import SavedClient
from hpcfl.checkpoint.store import digest, state_file_name
from hpcfl.errors import Fatal


class CheckpointWriter:
    """Writes the client states that changed since the last checkpoint, each before it changes again.

    In the round after the checkpoint, the rank that trains a client first saves its old state; each rank
    saves its share of the other clients after its own work. A thread calls fsync, so that no round waits.
    """

    def __init__(self, directory: Path, rank: int, token: str, client_state: Callable[[int], Tensor]):
        self.directory, self.rank, self.token, self.client_state = directory, rank, token, client_state
        self.changed: set[int] = set()
        self.pending: set[int] = set()
        self.round = -1
        self.file: BinaryIO | None = None
        self.written: list[SavedClient] = []
        self.flush_thread: threading.Thread | None = None
        self.problem: OSError | None = None

    def mark_changed(self, clients: Iterable[int]) -> None:
        """Records the clients that change in this round."""
        self.changed |= set(clients)

    def begin(self, t: int, again: Collection[int] = ()) -> None:
        """Begins the checkpoint of round t: all changed so far, and `again`, are saved as they are now."""
        self.round, self.pending, self.changed = t, self.changed.union(again), set()

    def save_before_change(self, i: int) -> None:
        """Saves a client that is about to change, if it is pending."""
        if i not in self.pending:
            return
        self.pending.discard(i)
        data = self.client_state(i).numpy().data
        try:
            if self.file is None:
                name = state_file_name(self.round, str(self.rank), self.token)
                self.file = open(self.directory / name, "xb")  # noqa: SIM115  # closed by the thread
            at = self.file.tell()
            self.file.write(data)
        except OSError as error:
            self._fail(error)
        self.written.append(SavedClient(i, at, data.nbytes, digest(data)))

    def save_rest(self, own_share: Iterable[int], participants: Iterable[int]) -> None:
        """Saves the pending clients of this rank's share that no rank trains, then flushes in a thread."""
        if not self.pending and self.file is None:
            return
        trained = set(participants)
        for i in own_share:
            if i not in trained:
                self.save_before_change(i)
        self.pending.clear()
        if self.file is not None:
            self.flush_thread = threading.Thread(target=self._flush, args=(self.file,), daemon=True)
            self.flush_thread.start()
            self.file = None

    def pop_saved(self, wait: bool = False) -> list[SavedClient]:
        """Returns the clients flushed to disk since the last call; with `wait`, first waits for the flush."""
        if self.flush_thread is None or (self.flush_thread.is_alive() and not wait):
            return []
        self.flush_thread.join()
        self.flush_thread = None
        if self.problem is not None:
            self._fail(self.problem)
        saved, self.written = self.written, []
        return saved

    def _flush(self, file: BinaryIO) -> None:
        try:
            with file:
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            self.problem = error

    def _fail(self, error: OSError) -> NoReturn:
        raise Fatal(
            f"cannot save to {self.directory}: {error.strerror}; what was saved before is kept, and the same "
            "command continues from there"
        )
