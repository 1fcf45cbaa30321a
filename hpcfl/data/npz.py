"""Reads .npz files of plain arrays, without unpickling."""

from __future__ import annotations

import math
import os
import struct
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np

from hpcfl.errors import BadInput
from hpcfl.utils.hdf5_file import open_regular

SIGNATURE = b"PK"
MAX_RATIO = 1032
"""Largest ratio that deflate can reach; a member that claims more is not of the size that it declares."""
END_RECORD = struct.Struct("<4s4H2LH")
"""The end of a zip file, before its comment; field 4 is the number of members."""
MAX_MEMBERS = 0xFFFF
"""Number that stands there for so many members or more."""
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
"""Readers of an array's header, by the version of the format."""


def read_npz(path: str | Path, what: str) -> dict[str, np.ndarray]:
    """Returns the arrays of an .npz file, with checksums verified; `what` names the file in errors."""
    try:
        with open(open_regular(Path(path)), "rb") as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy warns of files that Python 2 wrote
            if stream.read(len(SIGNATURE)) != SIGNATURE:
                raise ValueError("not a zip file")
            with zipfile.ZipFile(stream) as archive:
                members = archive.infolist()
                if sum(member.compress_size for member in members) > os.fstat(stream.fileno()).st_size:
                    raise zipfile.BadZipFile("its members are larger than the file")
                if min(len(members), MAX_MEMBERS) != _declared_members(stream, archive):
                    raise zipfile.BadZipFile("its directory has another number of members")
                arrays = [(member.filename, _read_array(archive, member)) for member in members]
                return {name.removesuffix(".npy"): array for name, array in arrays}
    except OSError as error:
        raise BadInput(f"{what}: {error.strerror or 'not a whole .npz'}") from None
    except MemoryError:
        raise BadInput(f"{what}: its arrays do not fit in memory") from None
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise BadInput(f"{what}: a damaged .npz ({error})") from None
    except Exception:  # zipfile and numpy raise RuntimeError, KeyError, SyntaxError, struct.error and more
        raise BadInput(f"{what}: not an .npz of plain arrays, as numpy.savez writes it") from None


def _declared_members(stream: IO[bytes], archive: zipfile.ZipFile) -> int:
    """Returns the number of members at the end of a zip file, which `zipfile` does not compare.

    A wrong length of a member's name or comment in the directory hides the members after it.
    """
    stream.seek(-END_RECORD.size - len(archive.comment), os.SEEK_END)
    return int(END_RECORD.unpack(stream.read(END_RECORD.size))[4])


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """Returns one array; checks the size that its header declares before memory is allocated for it."""
    if member.flag_bits & 1:
        raise zipfile.BadZipFile(f"{member.filename!r} is encrypted")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError("numpy does not compress this way")
    with archive.open(member) as file:
        shape, _, dtype = HEADERS[np.lib.format.read_magic(file)](file)
        size = file.tell() + math.prod(shape) * dtype.itemsize
    if dtype.hasobject or dtype.itemsize == 0:
        raise ValueError("not numbers or words")
    if size != member.file_size or size > member.compress_size * MAX_RATIO:
        raise zipfile.BadZipFile(f"{member.filename!r} declares an array of another size")
    with archive.open(member) as file:
        return np.lib.format.read_array(file, allow_pickle=False)
