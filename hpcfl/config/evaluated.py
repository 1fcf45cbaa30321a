"""Which clients are evaluated: all, or with `log.evaluate_clients` a fixed sample of them."""

from __future__ import annotations

import numpy as np

from hpcfl.config.schema import Config
from hpcfl.utils.seeds import generator


def evaluated_clients(config: Config) -> np.ndarray:
    """Returns for each client whether it is evaluated; the same in all rounds and for all methods."""
    clients, number = config.federation.clients, config.log.evaluate_clients
    if number is None:
        return np.ones(clients, dtype=bool)
    chosen_M = np.zeros(clients, dtype=bool)
    chosen_M[generator(config.seed, "evaluated clients").choice(clients, number, replace=False)] = True
    return chosen_M
