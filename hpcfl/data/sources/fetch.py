"""Finds or downloads the files of a source, and verifies their checksums."""

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
from hpcfl.utils.files import move_into_place, temporary_path

CHUNK = 1 << 20
TIMEOUT = 60
"""Seconds without data after which a download fails."""
UNPACK_ERRORS = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError, ValueError)
"""Exceptions that a damaged archive raises."""

ProgressCallback = Callable[[str, int, int | None], None]
"""Called with (what, done, total) while bytes are downloaded or images are written."""


@dataclass(frozen=True)
class PublishedFile:
    """A file on the internet, with its published checksum."""

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
    """File or directory that the user gave; then nothing is downloaded."""
    downloads: Path
    """Directory where downloads are kept."""
    scratch: Path
    """Temporary directory for unpacked files."""
    report_progress: ProgressCallback
    system: Path | None = None
    """Directory where a package of the operating system installs the files."""
    system_md5: dict[str, str] = field(default_factory=dict)
    """That package's own checksums by file name: it may have compressed the files again."""
    used: list[str] = field(default_factory=list)
    """Descriptions of the files that were read, for the provenance in the prepared file."""

    @property
    def directories(self) -> list[Path]:
        if self.source is not None:
            return [self.source if self.source.is_dir() else self.source.parent]
        return [self.downloads, *([self.system] if self.system else [])]

    def find(self, name: str, *subfolders: str) -> Path | None:
        """Returns the file or directory of this name in `directories` or their `subfolders`; None: none."""
        for directory in self.directories:
            for folder in ("", *subfolders):
                if (path := directory / folder / name).exists():
                    return path
        return None

    def get(self, file: PublishedFile, *subfolders: str) -> Path:
        """Returns the verified file; downloads it if it is missing and the user gave no `source`."""
        path = self.find(file.name, *subfolders)
        if path is None:
            if self.source is not None:
                raise BadInput(f"{self.source} has no {file.name}: {file.advice} and put it there")
            return self._download(file)
        self.report_progress(f"checking {file.name}", 0, None)
        got = md5(path)
        if got not in (file.md5, self.system_md5.get(file.name)):
            raise BadInput(
                f"{path} is damaged: its md5 is {got}, not {file.md5}; {file.advice} again and put it there"
            )
        self.used.append(f"{path} (md5 {got})")
        return path

    def record(self, path: Path) -> None:
        """Adds a file without a published checksum to `used`."""
        self.used.append(f"{path.resolve()} (md5 {md5(path)})")

    def find_unpacked(self, name: str, *subfolders: str) -> Path | None:
        """Returns a file or directory that the user unpacked, and adds it to `used`; it has no checksum."""
        if path := self.find(name, *subfolders):
            self.used.append(f"{path} (unpacked before)")
        return path

    def unpack(self, archive: Path) -> Path:
        """Unpacks an archive to the scratch directory and returns that directory."""
        self.report_progress(f"unpacking {archive.name}", 0, None)
        try:
            if zipfile.is_zipfile(archive):
                with zipfile.ZipFile(archive) as packed:
                    packed.extractall(self.scratch)
            else:
                with tarfile.open(archive) as tar:
                    # refuses paths outside the directory
                    tar.extraction_filter = getattr(tarfile, "data_filter", None)
                    tar.extractall(self.scratch)
        except UNPACK_ERRORS as error:
            raise BadInput(f"{archive} cannot be unpacked ({error}); fetch it again") from None
        return self.scratch

    def link(self, path: Path, name: str) -> None:
        """Makes a symbolic link to a file in the scratch directory."""
        target = self.scratch / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(path.resolve())

    def gunzip(self, packed: IO[bytes], archive: Path, name: str) -> None:
        """Decompresses a stream to a file in the scratch directory; `archive` is named in errors."""
        target = self.scratch / name
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with gzip.open(packed) as stream, open(target, "wb") as file:
                shutil.copyfileobj(stream, file, CHUNK)
        except UNPACK_ERRORS as error:
            raise BadInput(f"{archive} cannot be unpacked ({error}); fetch it again") from None

    def _download(self, file: PublishedFile) -> Path:
        path = self.downloads / file.name
        self.downloads.mkdir(parents=True, exist_ok=True)
        for url in file.urls:
            try:
                with temporary_path(path) as temporary:
                    got = self._stream(url, temporary, file.name)
                    if got != file.md5:
                        raise ValueError(f"its md5 is {got}, not {file.md5}")
                    move_into_place(temporary, path)
                self.used.append(f"{url} (md5 {got})")
                return path
            except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError, ValueError) as error:
                reason = str(getattr(error, "reason", error))
        raise BadInput(
            f"cannot download {file.urls[-1]} ({reason}); "
            f"{file.advice} by other means, put it into {self.downloads} and run this again"
        )

    def _stream(self, url: str, path: Path, name: str) -> str:
        """Downloads to a file and returns its md5."""
        digest, done = hashlib.md5(usedforsecurity=False), 0
        request = urllib.request.Request(url, headers={"User-Agent": "hpcfl"})
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response, open(path, "wb") as out:
            total = response.length
            while chunk := response.read(CHUNK):
                digest.update(chunk)
                out.write(chunk)
                done += len(chunk)
                self.report_progress(f"downloading {name}", done, total)
        return digest.hexdigest()


def md5(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
