"""Randomness by key: a generator is a function of (seed, purpose, client, round, …), never of the past.

Any rank can make any generator, so results do not depend on who does the work or in which order.
"""

from __future__ import annotations

import hashlib

import numpy as np


def key(seed: int, purpose: str, *where: int) -> int:
    """Returns 64 bits that depend on every part of the key."""
    text = "\0".join([str(seed), purpose, *map(str, where)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def generator(seed: int, purpose: str, *where: int) -> np.random.Generator:
    """Returns a fresh generator for this key."""
    return np.random.Generator(np.random.PCG64(key(seed, purpose, *where)))


def participants(seed: int, round_: int, clients: int, number: int) -> np.ndarray:
    """Returns the sorted ids of the clients that take part in a round; every rank computes the same."""
    drawn = generator(seed, "participants", round_).choice(clients, size=number, replace=False)
    return np.sort(drawn)
