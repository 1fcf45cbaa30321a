"""Bounds the disk that checkpoints take: what is still needed of files mostly out of date is saved again.

For clients that did not change, a checkpoint refers to files of earlier ones, and such a file stays as long
as one of its states is needed. Clients that are saved again are written like those that changed; the file
that they leave is removed when no manifest refers to it any more. The last two checkpoints are kept: on disk
are the files of the one before, which `most` bounds, and what the newest has written, each client once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from hpcfl.checkpoint.store import FileRange


def clients_to_save_again(
    clients: Sequence[FileRange | None],
    file_bytes: Mapping[str, int],
    changed: Collection[int],
    size_M: Sequence[int],
    most: float,
) -> set[int]:
    """Returns unchanged clients such that the files of the next checkpoint take at most so many bytes.

    `clients` says where the last checkpoint has them, and `size_M` the bytes of their states. The files with
    the smallest share of needed bytes are left first. `most` must be at least the sum of `size_M`.
    """
    needed: dict[str, list[int]] = {}
    for i, range_ in enumerate(clients):
        if range_ and i not in changed:
            needed.setdefault(range_.file, []).append(i)
    needed_bytes = {name: sum(size_M[i] for i in kept) for name, kept in needed.items()}
    total = sum(size_M[i] for i in changed) + sum(file_bytes[name] for name in needed)
    again: set[int] = set()
    for name in sorted(needed, key=lambda name: needed_bytes[name] / file_bytes[name]):
        if total <= most:
            break
        total += needed_bytes[name] - file_bytes[name]
        again |= set(needed[name])
    return again


def file_sizes(directory: Path, clients: Sequence[FileRange | None]) -> dict[str, int]:
    """Returns the bytes of the files that hold these states."""
    names = {range_.file for range_ in clients if range_}
    return {name: (directory / name).stat().st_size for name in names}
