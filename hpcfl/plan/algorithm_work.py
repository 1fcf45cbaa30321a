"""FLOPs of a round beside passes through the clients' networks: what an algorithm itself computes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hpcfl.algorithms.algorithm import Algorithm


def algorithm_flops(algorithm: Algorithm, participants: Sequence[np.ndarray]) -> tuple[float, float]:
    """Returns the mean FLOPs over rounds with these participants: of all of them together, and of rank 0."""
    rounds = [selected.tolist() for selected in participants]
    clients = [sum(map(algorithm.client_flops, selected)) for selected in rounds]
    return float(np.mean(clients)), float(np.mean([*map(algorithm.server_flops, rounds)]))
