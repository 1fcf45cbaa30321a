"""Random generators by key: each depends only on (seed, purpose, client, round, …), not on earlier draws.

Any rank can make any generator, so results do not depend on which rank does the work, or in which order.
"""

from __future__ import annotations

import hashlib

import numpy as np


def key(seed: int, purpose: str, *ids: int) -> int:
    """Returns 64 bits, a hash of all arguments."""
    text = "\0".join([str(seed), purpose, *map(str, ids)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def generator(seed: int, purpose: str, *ids: int) -> np.random.Generator:
    """Returns a new generator for this key."""
    return np.random.Generator(np.random.PCG64(key(seed, purpose, *ids)))


def uniforms(key_: int, items: np.ndarray, number: int) -> np.ndarray:
    """Returns `number` values in [0, 1) for each item, [items, number]; they depend only on key and item.

    Computed for all items at once: SplitMix64's output function, applied to a counter.
    """
    with np.errstate(over="ignore"):
        counter = items.astype(np.uint64)[:, None] * np.uint64(number) + np.arange(number, dtype=np.uint64)
        z: np.ndarray = np.uint64(key_) + (counter + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
        return (z >> np.uint64(11)) * 2.0**-53
