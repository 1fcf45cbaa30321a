"""Class-wise prototype sparsification (CPS): which dimensions of its prototype a class keeps. No torch here.

The sparse-prototype paper's Eq. (7), (8): m_j ∈ {0, 1}^d, known to server and clients. Masks are made of
blocks of neighbouring dimensions, so that K·B bits tell all of them.
"""

from __future__ import annotations

from math import comb

import numpy as np

from hpcfl.methods.equal_weight_code import equal_weight_code
from hpcfl.utils.seeds import generator


def blocks(classes: int, features: int) -> int:
    """Returns B = min(K, d), the number of blocks; their sizes differ by at most one."""
    return min(classes, features)


def blocks_of_class(classes: int, features: int, sparsity: int | float) -> int:
    """Returns w = round(s·B/d), 1 … B: the blocks that a class owns. `sparsity` is s, or a share of d."""
    share = sparsity if isinstance(sparsity, float) else sparsity / features
    number = blocks(classes, features)
    return min(max(int(share * number + 0.5), 1), number)


def disjoint(classes: int, features: int, sparsity: int | float) -> bool:
    """Says whether no two classes share a dimension."""
    return bool(sparsity) and blocks_of_class(classes, features, sparsity) == 1 and classes <= features


def masks(classes: int, features: int, sparsity: int | float, seed: int) -> np.ndarray:
    """Returns the dimensions of each class, [K, D] bool: disjoint where possible, else far apart.

    Where there are fewer different sets than classes, each set is given out equally often, but for one.
    """
    number, own = blocks(classes, features), blocks_of_class(classes, features, sparsity)
    draw = generator(seed, "masks")
    distinct = min(classes, comb(number, own))
    word_WB = np.eye(number, dtype=bool) if own == 1 else equal_weight_code(distinct, number, own, draw)
    block_D = np.repeat(
        np.arange(number), [len(part) for part in np.array_split(np.arange(features), number)]
    )
    return word_WB[np.arange(classes) % len(word_WB)][:, block_D]


def bytes_of_masks(classes: int, features: int) -> int:
    """Returns what it costs to tell a client all masks: a bit per class and block."""
    return -(-classes * blocks(classes, features) // 8)
