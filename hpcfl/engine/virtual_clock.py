"""Rank 0's virtual clock: which uploads of a run count in which round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hpcfl.algorithms.algorithm import Algorithm
from hpcfl.exchange.codec import ClientUpload, Codec, decode_uploads, encode_uploads
from hpcfl.system.clock import Clock
from hpcfl.system.events import Round
from hpcfl.system.system import System


class VirtualClock:
    """Computes the events of each round, and keeps late uploads until they count."""

    def __init__(
        self, system: System, codec: Codec, algorithm: Algorithm, wanted: int, flops_M: Sequence[int]
    ):
        """`wanted` is the number of uploads that a round needs, `flops_M` a forward pass of one sample."""
        self.clock = Clock(system, wanted)
        self.system, self.codec, self.algorithm, self.flops_M = system, codec, algorithm, flops_M
        self.messages: dict[tuple[int, int], np.ndarray] = {}
        """Late uploads by client and round."""
        self.once_M = np.zeros(len(flops_M), dtype=np.int64)
        """Bytes of a download that travels once, at the start of the next round."""

    def close_round(
        self,
        t: int,
        selected_M: np.ndarray,
        idle_M: np.ndarray,
        gone_M: np.ndarray,
        bytes_down_M: np.ndarray,
        uploads: Sequence[ClientUpload],
    ) -> tuple[list[ClientUpload], dict[str, Any]]:
        """Returns the uploads that count in round t, in client order, and values of the log.

        `idle_M` had diverged for good before the round, `gone_M` have after it.
        """
        bytes_up_M, diverged_M = np.zeros(len(idle_M), dtype=np.int64), np.zeros_like(idle_M)
        for upload in uploads:
            size = self.codec.nbytes(upload.payload)
            bytes_up_M[upload.client] = size.counted + size.side
            diverged_M[upload.client] = upload.diverged
        flops_M = [self.algorithm.samples_passed(t, i) * flops for i, flops in enumerate(self.flops_M)]
        round_ = Round(
            selected_M,
            idle_M,
            diverged_M,
            self.system.failure_M(t),
            bytes_down_M + self.once_M,
            np.array(flops_M, dtype=np.float64),
            bytes_up_M,
        )
        closed = self.clock.close(t, round_, gone_M)
        self.once_M[:] = 0
        self.algorithm.receive_late([upload for upload in uploads if upload.client in closed.missed])
        own = {upload.client: upload for upload in uploads}
        counted = [
            own[i] if made == t else decode_uploads(self.codec, [self.messages[i, made]])[0]
            for i, made in closed.counted.items()
        ]
        self.messages = {
            (i, made): encode_uploads(self.codec, [own[i]]) if made == t else self.messages[i, made]
            for i, made in self._under_way()
        }
        return counted, dict(closed.values)

    def _under_way(self) -> list[tuple[int, int]]:
        return [(late.client, late.round) for late in self.clock.late]

    def state(self) -> dict[str, np.ndarray]:
        """Returns the arrays to checkpoint."""
        messages = [self.messages[key] for key in self._under_way()]
        return self.clock.state() | {
            "once": self.once_M,
            "sizes": np.array([message.size for message in messages], dtype=np.int64),
            "messages": np.concatenate([np.zeros(0, dtype=np.uint8), *messages]),
        }

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Restores a checkpointed state."""
        self.clock.load(state)
        self.once_M = state["once"]
        messages = np.split(state["messages"], np.cumsum(state["sizes"])[:-1])
        self.messages = dict(zip(self._under_way(), messages, strict=False))
