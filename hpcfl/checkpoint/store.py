"""A saved run on disk: vectors in files, and one manifest that names them. Nothing in them is ever run.

The manifest is the checkpoint: it gets its name when all that it names is on disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hpcfl.data.npz import read_npz
from hpcfl.errors import BadInput
from hpcfl.utils.files import move_into_place, part_file

FORMAT = 1
KEEP = 2
"""Checkpoints that are kept: a damaged one falls back to the one before."""
DIGEST = 16
NAME = re.compile(r"[0-9]+-[0-9a-z]+-[0-9a-f]+\.(bin|npz)")
"""What a file of vectors or of the server may be called."""
LARGEST = 2**50


class DamagedCheckpoint(Exception):
    """A checkpoint that cannot be used, and why."""


@dataclass(frozen=True)
class FileRange:
    """Bytes of a file."""

    file: str
    at: int
    nbytes: int
    digest: str


@dataclass(frozen=True)
class Manifest:
    """All that a run needs to go on after a round (counted from 0)."""

    round: int
    identity: str
    """Of the configuration, data and split that it belongs to."""
    channels_last: tuple[str, ...]
    """Networks whose kernels lie in memory with the channels last."""
    clients: tuple[FileRange, ...]
    server: FileRange


def digest(data: Any) -> str:
    return hashlib.blake2b(data, digest_size=DIGEST).hexdigest()


def checkpoint_directory(log: Path) -> Path:
    """Returns where the checkpoints of a run lie: beside its log."""
    return log.with_name(f"{log.name}.ckpt")


def vector_file_name(round_: int, what: str, token: str) -> str:
    """Returns the name of a rank's, or the server's, file; `token` tells this start of a run from others."""
    return f"{round_}-{what}-{token}.{'npz' if what == 'server' else 'bin'}"


class CheckpointStore:
    """The directory of a run's checkpoints."""

    def __init__(self, path: Path):
        self.path = path

    def manifests(self) -> list[Path]:
        """Returns the manifests, newest first."""
        found = [path for path in self.path.glob("manifest-*.json") if path.stem[9:].isdecimal()]
        return sorted(found, key=lambda path: int(path.stem[9:]), reverse=True)

    def write(self, manifest: Manifest) -> None:
        """Puts a manifest in place; older ones and what only they name are then removed."""
        body = json.dumps(asdict(manifest), sort_keys=True)
        text = json.dumps({"format": FORMAT, "digest": digest(body.encode()), "manifest": body})
        path = self.path / f"manifest-{manifest.round}.json"
        with part_file(path) as part:
            part.write_text(text)
            move_into_place(part, path)
        _sync_directory(self.path)
        self.remove_unused(manifest.round)

    def remove_after(self, round_: int) -> None:
        """Removes manifests of later rounds, which could not be used, and what none of the others names."""
        for path in self.manifests():
            if int(path.stem[9:]) > round_:
                _remove(path)
        self.remove_unused()

    def remove_unused(self, upto: int | None = None) -> None:
        """Removes all manifests but the newest, and files of rounds up to `upto` that none of them names."""
        named = set()
        for number, path in enumerate(self.manifests()):
            if number >= KEEP:
                _remove(path)
                continue
            with contextlib.suppress(DamagedCheckpoint):
                manifest = read_manifest(path)
                named |= {part.file for part in (*manifest.clients, manifest.server)}
        for path in self.path.iterdir():
            old = upto is None or (NAME.fullmatch(path.name) and int(path.name.split("-")[0]) <= upto)
            if NAME.fullmatch(path.name) and path.name not in named and old:
                _remove(path)
            if upto is None and path.suffix == ".part":
                _remove(path)

    def read(self, part: FileRange) -> np.ndarray:
        """Returns a part's bytes, checked."""
        try:
            with open(self.path / part.file, "rb") as file:
                file.seek(part.at)
                data = np.fromfile(file, dtype=np.uint8, count=part.nbytes)
        except OSError as error:
            raise DamagedCheckpoint(f"{part.file}: {error.strerror}") from None
        if data.nbytes != part.nbytes or digest(data) != part.digest:
            raise DamagedCheckpoint(f"{part.file} is not what was written")
        return data

    def write_arrays(self, name: str, values: Mapping[str, np.ndarray]) -> FileRange:
        """Writes plain arrays and returns their part, once it is on disk."""
        path = self.path / name
        with part_file(path) as part:
            with open(part, "wb") as file:
                np.savez(file, **dict(values))  # type: ignore[arg-type]
            data = part.read_bytes()
            move_into_place(part, path)
        return FileRange(name, 0, len(data), digest(data))

    def read_arrays(self, part: FileRange) -> dict[str, np.ndarray]:
        """Returns the arrays of a part, checked."""
        self.read(part)
        try:
            return read_npz(self.path / part.file, part.file)
        except BadInput as error:
            raise DamagedCheckpoint(str(error)) from None


def read_manifest(path: Path) -> Manifest:
    """Returns the manifest in a file; whatever is not exactly one is damaged."""
    try:
        outer = json.loads(path.read_bytes().decode())
        if outer["format"] != FORMAT or digest(outer["manifest"].encode()) != outer["digest"]:
            raise ValueError("its checksum is another")
        inner = json.loads(outer["manifest"])
        clients = tuple(_file_range(entry) for entry in inner["clients"])
        names, round_, identity = inner["channels_last"], inner["round"], inner["identity"]
        if not all(isinstance(name, str) for name in [*names, identity]) or not _whole(round_):
            raise ValueError("not the types of a manifest")
        return Manifest(round_, identity, tuple(names), clients, _file_range(inner["server"]))
    except OSError as error:
        raise DamagedCheckpoint(f"{path.name}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedCheckpoint(f"{path.name} is no manifest ({type(error).__name__}: {error})") from None


def _file_range(entry: Any) -> FileRange:
    part = FileRange(entry["file"], entry["at"], entry["nbytes"], entry["digest"])
    if not NAME.fullmatch(part.file) or not _whole(part.at) or not _whole(part.nbytes):
        raise ValueError("not a part of a file")
    if not re.fullmatch(f"[0-9a-f]{{{2 * DIGEST}}}", part.digest):
        raise ValueError("not a checksum")
    return part


def _whole(number: Any) -> bool:
    return type(number) is int and 0 <= number < LARGEST


def _sync_directory(path: Path) -> None:
    """Returns when the names in a directory are on disk, where the file system knows how."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def usable_manifests(
    store: CheckpointStore, identity: str, rows: int, rounds: int
) -> Iterator[tuple[Manifest | None, str]]:
    """Yields the manifests of a run, newest first, or why one cannot be used; `rows` are those of its log.

    `rounds` are all that the run is to have. The last is never taken for one in between (it is evaluated in
    any case): a run that was killed after it, before its log said so, does it once more.
    """
    for path in store.manifests():
        try:
            manifest = read_manifest(path)
        except DamagedCheckpoint as error:
            yield None, str(error)
            continue
        if manifest.identity != identity:
            yield None, f"{path.name} belongs to another run"
        elif manifest.round >= rows:
            yield None, f"{path.name} is of round {manifest.round + 1}, the log has {rows}"
        elif manifest.round + 1 >= rounds:
            yield None, f"{path.name} is of the last round, after which the run did not come to its end"
        else:
            yield manifest, ""
