"""Checkpoints on disk: files of client states, and one manifest per checkpoint that refers to them.

A checkpoint exists once its manifest does, which is renamed into place after all that it refers to is on
disk. Nothing in these files is ever executed (no pickles).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
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
from hpcfl.utils.files import sync_directory, write_atomically
from hpcfl.utils.hdf5_file import open_regular, read_regular

FORMAT = 1
KEEP = 2
"""Number of checkpoints to keep: if the newest is damaged, the one before is used."""
DIGEST_BYTES = 16
FILE_NAME = re.compile(r"[0-9]+-[0-9a-z]+-[0-9a-f]+\.(bin|npz)")
"""Valid names of the files that a manifest refers to."""
TEMPORARY_NAME = re.compile(rf"({FILE_NAME.pattern}|manifest-[0-9]+\.json)\..+\.part")
"""Names of files that a killed run did not complete."""
MAX_INTEGER = 2**50
"""Upper bound of the integers in a manifest."""


class DamagedCheckpoint(Exception):
    """A checkpoint cannot be used; the message says why."""


@dataclass(frozen=True)
class FileRange:
    """A byte range of a file in the checkpoint directory, and its checksum."""

    file: str
    at: int
    nbytes: int
    digest: str


@dataclass(frozen=True)
class Manifest:
    """Refers to all that a run needs to continue after `round` (counted from 0)."""

    round: int
    identity: str
    """Hash of the run's configuration, data and split."""
    channels_last: tuple[str, ...]
    """Architectures whose kernels are in channels-last memory format."""
    clients: tuple[FileRange | None, ...]
    """None: a client that was never trained, whose state is that at the start."""
    server: FileRange

    @property
    def files(self) -> set[str]:
        """The names of all files that it refers to."""
        return {range_.file for range_ in (*self.clients, self.server) if range_}


def digest(data: Any) -> str:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def checkpoint_directory(log: Path) -> Path:
    """Returns the directory of a run's checkpoints, beside its log."""
    return log.with_name(f"{log.name}.ckpt")


def free_backup_path(log: Path) -> Path:
    """Returns the first of `run~1.h5`, `run~2.h5`, … at which there is neither a log nor checkpoints.

    The names of a study's cells have no ~, so that a log kept aside never takes the place of a cell's.
    """
    for number in itertools.count(1):
        path = log.with_name(f"{log.stem}~{number}{log.suffix}")
        if not os.path.lexists(path) and not os.path.lexists(checkpoint_directory(path)):
            return path
    raise AssertionError("numbers do not end")


def state_file_name(round_: int, what: str, token: str) -> str:
    """Returns the name of the file of a rank or of the server; `token` is unique to this start of the run."""
    return f"{round_}-{what}-{token}.{'npz' if what == 'server' else 'bin'}"


class CheckpointStore:
    """The directory of a run's checkpoints."""

    def __init__(self, path: Path):
        self.path = path

    def check(self) -> None:
        """Raises BadInput if the directory is a link: what is deleted there could be somebody else's."""
        if self.path.is_symlink():
            raise BadInput(f"cannot write {self.path}: it is a symbolic link; checkpoints need a directory")

    def prepare(self, last_round: int, backup_log: Path | None) -> None:
        """Makes the directory without checkpoints of later rounds; those of a log kept aside go with it."""
        try:
            if backup_log and os.path.lexists(self.path):
                os.rename(self.path, checkpoint_directory(backup_log))
            self.path.mkdir(exist_ok=True)
        except OSError as error:
            raise BadInput(f"cannot write {self.path}: {error.strerror}") from None
        self.remove_after(last_round)

    def manifests(self) -> list[Path]:
        """Returns the manifests, newest first."""
        found = [path for path in self.path.glob("manifest-*.json") if path.stem[9:].isdecimal()]
        return sorted(found, key=lambda path: int(path.stem[9:]), reverse=True)

    def write(self, manifest: Manifest) -> None:
        """Writes a manifest atomically, then removes older ones and the files that only they refer to."""
        body = json.dumps(asdict(manifest), sort_keys=True)
        text = json.dumps({"format": FORMAT, "digest": digest(body.encode()), "manifest": body})
        path = self.path / f"manifest-{manifest.round}.json"
        write_atomically(path, text.encode())
        sync_directory(self.path)
        self.remove_unused(manifest.round)

    def remove_after(self, round_: int) -> None:
        """Removes manifests of later rounds, which were not usable, and all files without a manifest."""
        for path in self.manifests():
            if int(path.stem[9:]) > round_:
                _remove(path)
        self.remove_unused()

    def remove_unused(self, upto: int | None = None) -> None:
        """Removes all but the newest manifests, and unreferenced files of rounds up to `upto` (None: all)."""
        referenced = set()
        for number, path in enumerate(self.manifests()):
            if number >= KEEP:
                _remove(path)
                continue
            with contextlib.suppress(DamagedCheckpoint):
                referenced |= read_manifest(path).files
        for path in self.path.iterdir():
            is_ours = FILE_NAME.fullmatch(path.name)
            is_old = is_ours and (upto is None or int(path.name.split("-")[0]) <= upto)
            if is_old and path.name not in referenced:
                _remove(path)
            if upto is None and TEMPORARY_NAME.fullmatch(path.name):
                _remove(path)

    def read(self, range_: FileRange) -> np.ndarray:
        """Returns the bytes of a range; raises DamagedCheckpoint if their checksum differs."""
        try:
            with open(open_regular(self.path / range_.file), "rb") as file:
                if range_.at + range_.nbytes > os.fstat(file.fileno()).st_size:
                    raise DamagedCheckpoint(f"{range_.file} is shorter than what was written")
                file.seek(range_.at)
                data = np.fromfile(file, dtype=np.uint8, count=range_.nbytes)
        except OSError as error:
            raise DamagedCheckpoint(f"{range_.file}: {error.strerror}") from None
        if data.nbytes != range_.nbytes or digest(data) != range_.digest:
            raise DamagedCheckpoint(f"{range_.file} is not what was written")
        return data

    def write_arrays(self, name: str, values: Mapping[str, np.ndarray]) -> FileRange:
        """Writes plain arrays to an .npz and returns its range, once it is on disk."""
        file = io.BytesIO()
        np.savez(file, **dict(values))  # type: ignore[arg-type]
        data = file.getvalue()
        write_atomically(self.path / name, data)
        return FileRange(name, 0, len(data), digest(data))

    def read_arrays(self, range_: FileRange) -> dict[str, np.ndarray]:
        """Returns the arrays of an .npz; raises DamagedCheckpoint if its checksum differs."""
        self.read(range_)
        try:
            return read_npz(self.path / range_.file, range_.file)
        except BadInput as error:
            raise DamagedCheckpoint(str(error)) from None


def read_manifest(path: Path) -> Manifest:
    """Returns the manifest in a file; raises DamagedCheckpoint if it is anything else."""
    try:
        outer = json.loads(read_regular(path).decode())
        if outer["format"] != FORMAT or digest(outer["manifest"].encode()) != outer["digest"]:
            raise ValueError("its checksum is another")
        inner = json.loads(outer["manifest"])
        clients = tuple(entry if entry is None else _file_range(entry) for entry in inner["clients"])
        names, round_, identity = inner["channels_last"], inner["round"], inner["identity"]
        if not all(isinstance(name, str) for name in [*names, identity]) or not _is_valid_integer(round_):
            raise ValueError("not the types of a manifest")
        return Manifest(round_, identity, tuple(names), clients, _file_range(inner["server"]))
    except OSError as error:
        raise DamagedCheckpoint(f"{path.name}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedCheckpoint(f"{path.name} is no manifest ({type(error).__name__}: {error})") from None


def _file_range(entry: Any) -> FileRange:
    range_ = FileRange(entry["file"], entry["at"], entry["nbytes"], entry["digest"])
    if not FILE_NAME.fullmatch(range_.file) or not all(map(_is_valid_integer, (range_.at, range_.nbytes))):
        raise ValueError("not a part of a file")
    if not re.fullmatch(f"[0-9a-f]{{{2 * DIGEST_BYTES}}}", range_.digest):
        raise ValueError("not a checksum")
    return range_


def _is_valid_integer(number: Any) -> bool:
    return type(number) is int and 0 <= number < MAX_INTEGER


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def usable_manifests(
    store: CheckpointStore, identity: str, rows: int, rounds: int
) -> Iterator[tuple[Manifest | None, str]]:
    """Yields (manifest, "") newest first, or (None, why it cannot be used).

    `rows` is the number of rows in the log, `rounds` the number of rounds of the run. A manifest of the last
    round is not used, because that round is always evaluated: a run that was killed between this checkpoint
    and the end of its log repeats the round.
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
