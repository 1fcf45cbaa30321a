"""Short digests of values, for names and comparisons."""

from __future__ import annotations

import hashlib


def digest_of(value: object, size: int) -> str:
    """Returns a digest of a value's `repr` with so many bytes, as hex digits."""
    return hashlib.blake2b(repr(value).encode(), digest_size=size).hexdigest()
