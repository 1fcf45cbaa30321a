"""Selects the clients that take part in a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hpcfl.utils.seeds import generator

if TYPE_CHECKING:
    from hpcfl.federation.run_plan import RunPlan


def select_participants(
    seed: int, round_: int, clients: int, number: int, available_M: np.ndarray | None = None
) -> np.ndarray:
    """Returns the sorted ids of a round's participants; every rank computes the same.

    If fewer clients are available than are wanted, all of them take part.
    """
    candidates = np.arange(clients) if available_M is None else np.flatnonzero(available_M)
    size = min(number, len(candidates))
    return np.sort(generator(seed, "participants", round_).choice(candidates, size=size, replace=False))


@dataclass(frozen=True)
class Selection:
    """The participants of a round, and those of them that train; the others fail and lose their training."""

    participants: np.ndarray
    trained: np.ndarray


def select_round(plan: RunPlan, t: int) -> Selection:
    """Returns the participants of round t (from 0)."""
    config, system = plan.config, plan.system
    clients, number = config.federation.clients, config.federation.per_round
    if system is None:
        participants = select_participants(config.seed, t, clients, number)
        return Selection(participants, participants)
    number += config.system.extra
    participants = select_participants(config.seed, t, clients, number, system.available_M(t))
    return Selection(participants, participants[np.isnan(system.failure_M(t)[participants])])
