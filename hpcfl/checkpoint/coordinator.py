"""Rank 0's part of a checkpoint: when one is due, who has saved what, and the manifest at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hpcfl.checkpoint.store import CheckpointStore, FileRange, Manifest, vector_file_name
from hpcfl.comm.metrics_codec import SavedClient
from hpcfl.config.schema import RuntimeConfig
from hpcfl.errors import Fatal


@dataclass
class CheckpointCoordinator:
    """Knows where every client was saved last, and who has changed since."""

    store: CheckpointStore
    runtime: RuntimeConfig
    identity: str
    channels_last: tuple[str, ...]
    token: str
    clients: list[FileRange | None]
    """Of every client, in the newest checkpoint."""

    def __post_init__(self) -> None:
        self.changed = {i for i, saved in enumerate(self.clients) if saved is None}
        self.expected: set[int] = set()
        self.arrived: dict[int, FileRange] = {}
        self.server: FileRange | None = None
        self.round = -1
        self.last, self.rounds = time.monotonic(), 0

    @property
    def is_open(self) -> bool:
        return self.server is not None

    def mark_changed(self, participants: Iterable[int]) -> None:
        """Remembers who changes in this round."""
        self.changed |= set(participants)
        self.rounds += 1

    def is_due(self) -> bool:
        """Says whether a checkpoint should begin after this round."""
        if self.is_open:
            return False
        minutes, rounds = self.runtime.checkpoint_minutes, self.runtime.checkpoint_rounds
        by_time = bool(minutes) and time.monotonic() - self.last >= 60 * minutes
        return by_time or (bool(rounds) and self.rounds >= rounds)

    def begin(self, t: int, state: Mapping[str, np.ndarray]) -> None:
        """Begins the checkpoint of round t with the server's own state."""
        self.round, self.last, self.rounds = t, time.monotonic(), 0
        self.expected, self.changed = self.changed, set()
        self.arrived = {}
        try:
            self.server = self.store.write_arrays(vector_file_name(t, "server", self.token), state)
        except OSError as error:
            raise _failure(self.store, error) from None

    def add_saved(
        self, saved_by_rank: Sequence[Sequence[SavedClient]], before_commit: Callable[[], None]
    ) -> bool:
        """Adds what each rank has on disk; once all is there, calls `before_commit` and writes the manifest.

        Says whether the checkpoint is complete.
        """
        for rank, entries in enumerate(saved_by_rank):
            name = vector_file_name(self.round, str(rank), self.token)
            self.arrived |= {e.client: FileRange(name, e.at, e.nbytes, e.digest) for e in entries}
        if self.server is None or self.arrived.keys() != self.expected:
            return False
        for i, saved in self.arrived.items():
            self.clients[i] = saved
        clients = tuple(saved for saved in self.clients if saved is not None)
        assert len(clients) == len(self.clients)
        before_commit()
        try:
            self.store.write(Manifest(self.round, self.identity, self.channels_last, clients, self.server))
        except OSError as error:
            raise _failure(self.store, error) from None
        self.server = None
        return True


def _failure(store: CheckpointStore, error: OSError) -> Fatal:
    return Fatal(
        f"cannot save to {store.path}: {error.strerror}; what was saved before is kept, and the same command "
        "continues from there"
    )
