"""States of clients that this rank trained last, kept on its device."""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor


class StateCache:
    """Saves copies of states from the arena, which stays the truth: an entry counts only if it is as new.

    Another rank may have trained a client since, so records carry the number of times that they were stored.
    """

    def __init__(self, limit: int):
        """`limit` is the most bytes that it holds."""
        self.limit, self.nbytes = limit, 0
        self.entries: OrderedDict[int, tuple[int, Tensor]] = OrderedDict()

    def get(self, client: int, stored: int) -> Tensor | None:
        """Returns a client's state, if it is here and was stored so many times."""
        number, state = self.entries.get(client, (-1, None))
        if number == stored:
            return state
        self.drop(client)
        return None

    def put(self, client: int, stored: int, state: Tensor) -> None:
        """Keeps a copy of a state; the clients that were trained longest ago make room."""
        self.drop(client)
        if state.nbytes > self.limit:
            return
        while self.nbytes + state.nbytes > self.limit:
            self.drop(next(iter(self.entries)))
        self.entries[client] = stored, state.clone()
        self.nbytes += state.nbytes

    def drop(self, client: int) -> None:
        """Forgets a client."""
        if client in self.entries:
            self.nbytes -= self.entries.pop(client)[1].nbytes
