"""Rank 0's part of a checkpoint: starts it when due, collects what ranks saved, writes the manifest."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hpcfl.checkpoint.compaction import clients_to_save_again, file_sizes
from hpcfl.checkpoint.saved_client import SavedClient
from hpcfl.checkpoint.store import CheckpointStore, FileRange, Manifest, state_file_name
from hpcfl.config.schema import RuntimeConfig
from hpcfl.errors import Fatal


@dataclass
class CheckpointCoordinator:
    """Tracks where each client state was saved last, and which have changed since."""

    store: CheckpointStore
    runtime: RuntimeConfig
    identity: str
    channels_last: tuple[str, ...]
    token: str
    clients: list[FileRange | None]
    """Where the newest checkpoint has each client's state; None: not saved yet."""
    size_M: Sequence[int]
    """Bytes of each client's state."""

    def __post_init__(self) -> None:
        self.changed: set[int] = set()
        self.file_bytes = file_sizes(self.store.path, self.clients)
        self.expected: set[int] = set()
        self.saved: dict[int, FileRange] = {}
        self.server: FileRange | None = None
        self.round = -1
        self.last_begin, self.rounds_since = time.monotonic(), 0

    @property
    def is_open(self) -> bool:
        """Whether a checkpoint has begun and its manifest is not yet written."""
        return self.server is not None

    def mark_changed(self, participants: Iterable[int]) -> None:
        """Records the clients that change in this round."""
        self.changed |= set(participants)
        self.rounds_since += 1

    def is_due(self) -> bool:
        """Returns whether a checkpoint should begin after this round."""
        if self.is_open:
            return False
        minutes, rounds = self.runtime.checkpoint_minutes, self.runtime.checkpoint_rounds
        by_time = bool(minutes) and time.monotonic() - self.last_begin >= 60 * minutes
        return by_time or (bool(rounds) and self.rounds_since >= rounds)

    def choose_again(self) -> set[int]:
        """Returns the clients that the next checkpoint saves although they did not change."""
        most = (self.runtime.checkpoint_disk - 1) * sum(self.size_M)
        return clients_to_save_again(self.clients, self.file_bytes, self.changed, self.size_M, most)

    def begin(self, t: int, again: Collection[int], state: Mapping[str, np.ndarray]) -> None:
        """Begins the checkpoint of round t by writing the server's state; clients `again` are saved, too."""
        self.round, self.last_begin, self.rounds_since = t, time.monotonic(), 0
        self.expected, self.changed = self.changed.union(again), set()
        self.saved = {}
        try:
            self.server = self.store.write_arrays(state_file_name(t, "server", self.token), state)
        except OSError as error:
            raise _save_error(self.store, error) from None

    def add_saved(
        self, saved_by_rank: Sequence[Sequence[SavedClient]], before_commit: Callable[[], None]
    ) -> bool:
        """Adds the clients that each rank has saved and returns whether the checkpoint is complete.

        If it is, calls `before_commit` and then writes the manifest.
        """
        for rank, entries in enumerate(saved_by_rank):
            name = state_file_name(self.round, str(rank), self.token)
            self.saved |= {e.client: FileRange(name, e.at, e.nbytes, e.digest) for e in entries}
        if self.server is None or self.saved.keys() != self.expected:
            return False
        for i, range_ in self.saved.items():
            self.clients[i] = range_
            self.file_bytes[range_.file] = self.file_bytes.get(range_.file, 0) + range_.nbytes
        manifest = Manifest(self.round, self.identity, self.channels_last, tuple(self.clients), self.server)
        referenced = manifest.files
        self.file_bytes = {name: size for name, size in self.file_bytes.items() if name in referenced}
        before_commit()
        try:
            self.store.write(manifest)
        except OSError as error:
            raise _save_error(self.store, error) from None
        self.server = None
        return True


def _save_error(store: CheckpointStore, error: OSError) -> Fatal:
    return Fatal(
        f"cannot save to {store.path}: {error.strerror}; what was saved before is kept, and the same command "
        "continues from there"
    )
