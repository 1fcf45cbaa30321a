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


def uniforms(key_: int, items: np.ndarray, number: int) -> np.ndarray:
    """Returns `number` values in [0, 1) for each item, a function of key and item alone: [items, number].

    SplitMix64's output function of a counter, for all items at once.
    """
    with np.errstate(over="ignore"):
        counter = items.astype(np.uint64)[:, None] * np.uint64(number) + np.arange(number, dtype=np.uint64)
        z: np.ndarray = np.uint64(key_) + (counter + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
        return (z >> np.uint64(11)) * 2.0**-53
