"""One process: server and clients in turn, nothing travels."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import numpy as np

from hpcfl.comm.link import Link, Word


class Solo(Link):
    def __init__(self) -> None:
        super().__init__(rank=0, size=1, local_rank=0, library="none")

    def broadcast(self, word: Word, body: np.ndarray) -> tuple[Word, np.ndarray]:
        return word, body

    def gather(self, word: Word, body: np.ndarray) -> tuple[Word, list[np.ndarray]]:
        return word, [body]

    def facts(self, mine: Any) -> list[Any]:
        return [mine]

    def close(self) -> None:
        pass

    def abort(self, code: int) -> NoReturn:
        sys.exit(code)
