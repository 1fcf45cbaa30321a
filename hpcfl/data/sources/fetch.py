"""Where a source's files are: given by the user, fetched before, or fetched now; never used unverified."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import tarfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import IO

from hpcfl.errors import BadInput
from hpcfl.utils.files import move_into_place, part_file

CHUNK = 1 << 20
TIMEOUT = 60
"""Seconds without a byte after which a download is given up."""
BROKEN = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError, ValueError)
"""What unpacking a damaged archive raises."""

Progress = Callable[[str, int, int | None], None]
"""(what, done, total): shown while bytes or images pass by."""


@dataclass(frozen=True)
class PublishedFile:
    """A file that a source publishes."""

    name: str
    urls: tuple[str, ...]
    md5: str

    @property
    def advice(self) -> str:
        return f"fetch {self.urls[0]}"


@dataclass
class SourceFiles:
    """Finds, verifies, downloads and unpacks the files of one source."""

    source: Path | None
    """What the user gave: then nothing is downloaded."""
    keep: Path
    """Where downloads are kept."""
    scratch: Path
    """A directory for unpacked files, which goes when all is read."""
    show: Progress
    system: Path | None = None
    """Where a package of the operating system puts the files."""
    system_md5: dict[str, str] = field(default_factory=dict)
    """The package's own checksums, by name: it may have packed the files anew."""
    used: list[str] = field(default_factory=list)
    """What was read, in words, for the prepared file."""

    @property
    def directories(self) -> list[Path]:
        if self.source is not None:
            return [self.source if self.source.is_dir() else self.source.parent]
        return [self.keep, *([self.system] if self.system else [])]

    def find(self, name: str, *below: str) -> Path | None:
        """Returns the file or directory of this name in a given place, or in one of the folders `below`."""
        for directory in self.directories:
            for folder in ("", *below):
                if (path := directory / folder / name).exists():
                    return path
        return None

    def get(self, file: PublishedFile, *below: str) -> Path:
        """Returns the file, verified; downloads it if it is not there and the user gave no place."""
        path = self.find(file.name, *below)
        if path is None:
            if self.source is not None:
                raise BadInput(f"{self.source} has no {file.name}: {file.advice} and put it there")
            return self._download(file)
        self.show(f"checking {file.name}", 0, None)
        got = md5(path)
        if got not in (file.md5, self.system_md5.get(file.name)):
            raise BadInput(
                f"{path} is damaged: its md5 is {got}, not {file.md5}; {file.advice} again and put it there"
            )
        self.used.append(f"{path} (md5 {got})")
        return path

    def given(self, path: Path) -> None:
        """Notes a file whose checksum nobody published."""
        self.used.append(f"{path.resolve()} (md5 {md5(path)})")

    def extracted(self, name: str, *below: str) -> Path | None:
        """Returns a file or directory that was unpacked before, for which no checksum is published."""
        if path := self.find(name, *below):
            self.used.append(f"{path} (unpacked before)")
        return path

    def unpack(self, archive: Path) -> Path:
        """Returns a scratch directory with what the archive holds."""
        self.show(f"unpacking {archive.name}", 0, None)
        try:
            if zipfile.is_zipfile(archive):
                with zipfile.ZipFile(archive) as packed:
                    packed.extractall(self.scratch)
            else:
                with tarfile.open(archive) as tar:
                    tar.extraction_filter = getattr(tarfile, "data_filter", None)  # none lands outside
                    tar.extractall(self.scratch)
        except BROKEN as error:
            raise BadInput(f"{archive} cannot be unpacked ({error}); fetch it again") from None
        return self.scratch

    def link(self, path: Path, name: str) -> None:
        """Gives a file a name in the scratch directory, without copying it."""
        there = self.scratch / name
        there.parent.mkdir(parents=True, exist_ok=True)
        there.symlink_to(path.resolve())

    def gunzip(self, packed: IO[bytes], what: Path, name: str) -> None:
        """Unpacks a compressed stream to a name in the scratch directory."""
        there = self.scratch / name
        there.parent.mkdir(parents=True, exist_ok=True)
        try:
            with gzip.open(packed) as stream, open(there, "wb") as file:
                shutil.copyfileobj(stream, file, CHUNK)
        except BROKEN as error:
            raise BadInput(f"{what} cannot be unpacked ({error}); fetch it again") from None

    def _download(self, file: PublishedFile) -> Path:
        path = self.keep / file.name
        self.keep.mkdir(parents=True, exist_ok=True)
        for url in file.urls:
            try:
                with part_file(path) as part:
                    got = self._stream(url, part, file.name)
                    if got != file.md5:
                        raise ValueError(f"its md5 is {got}, not {file.md5}")
                    move_into_place(part, path)
                self.used.append(f"{url} (md5 {got})")
                return path
            except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError, ValueError) as error:
                reason = str(getattr(error, "reason", error))
        raise BadInput(
            f"cannot download {file.urls[-1]} ({reason}); "
            f"{file.advice} by other means, put it into {self.keep} and run this again"
        )

    def _stream(self, url: str, part: Path, name: str) -> str:
        """Downloads to a file and returns the md5 of what came."""
        digest, done = hashlib.md5(usedforsecurity=False), 0
        request = urllib.request.Request(url, headers={"User-Agent": "hpcfl"})
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer, open(part, "wb") as out:
            total = answer.length
            while chunk := answer.read(CHUNK):
                digest.update(chunk)
                out.write(chunk)
                done += len(chunk)
                self.show(f"downloading {name}", done, total)
        return digest.hexdigest()


def md5(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
