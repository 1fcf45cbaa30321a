"""Selects the clients that take part in a round."""

from __future__ import annotations

import numpy as np

from hpcfl.utils.seeds import generator


def select_participants(seed: int, round_: int, clients: int, number: int) -> np.ndarray:
    """Returns the sorted ids of a round's participants; every rank computes the same."""
    selected = generator(seed, "participants", round_).choice(clients, size=number, replace=False)
    return np.sort(selected)
