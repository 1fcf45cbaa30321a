"""Class-wise prototype sparsification (CPS): the mask of dimensions of each class. Does not import torch.

The sparse-prototype paper's Eq. (7), (8): m_j ∈ {0, 1}^d, known to server and clients. A mask consists of
blocks of consecutive dimensions, so that K·B bits describe all masks.
"""

from __future__ import annotations

from math import comb

import numpy as np

from hpcfl.methods.constant_weight_code import constant_weight_code
from hpcfl.utils.seeds import generator


def num_blocks(classes: int, features: int) -> int:
    """Returns B = min(K, d), the number of blocks; block sizes differ by at most one."""
    return min(classes, features)


def blocks_per_class(classes: int, features: int, sparsity: int | float) -> int:
    """Returns w = round(s·B/d), 1 … B: the blocks per class. `sparsity` is s (int) or s/d (float)."""
    share = sparsity if isinstance(sparsity, float) else sparsity / features
    total = num_blocks(classes, features)
    return min(max(int(share * total + 0.5), 1), total)


def disjoint(classes: int, features: int, sparsity: int | float) -> bool:
    """Returns whether no two classes share a dimension."""
    return bool(sparsity) and blocks_per_class(classes, features, sparsity) == 1 and classes <= features


def masks(classes: int, features: int, sparsity: int | float, seed: int) -> np.ndarray:
    """Returns the mask of each class, [K, D] bool: disjoint if possible, else with little overlap.

    If there are fewer different masks than classes, masks are reused; their numbers of classes differ by at
    most one.
    """
    total, each = num_blocks(classes, features), blocks_per_class(classes, features, sparsity)
    rng = generator(seed, "masks")
    distinct = min(classes, comb(total, each))
    word_WB = np.eye(total, dtype=bool) if each == 1 else constant_weight_code(distinct, total, each, rng)
    block_D = np.repeat(np.arange(total), [len(part) for part in np.array_split(np.arange(features), total)])
    return word_WB[np.arange(classes) % len(word_WB)][:, block_D]


def bytes_of_masks(classes: int, features: int) -> int:
    """Returns the bytes that describe all masks to a client: a bit per class and block."""
    return -(-classes * num_blocks(classes, features) // 8)
