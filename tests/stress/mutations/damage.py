"""Ways in which a file is damaged, by a random generator."""

from __future__ import annotations

import io
import os
import random
import zipfile
from pathlib import Path

import numpy as np

ZIP_HEADERS = {b"PK\x03\x04": 30, b"PK\x01\x02": 46, b"PK\x05\x06": 22}
"""Signatures of the headers of a member, of its entry in the directory, and of the directory; their bytes."""
ZIP_FLAGS = {b"PK\x03\x04": 6, b"PK\x01\x02": 8}
"""Where the flags are in these headers: bit 0 means encryption."""
ABSURD = (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Returns the bytes of a file with flipped bits, a cut, bytes inserted, or a block of zeros."""
    damaged, place = bytearray(data), rng.randrange(len(data))
    how = rng.choice(["flip", "flip", "cut", "insert", "zeros"])
    if how == "flip":
        for _ in range(rng.choice([1, 1, 1, 2, 8])):
            damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif how == "cut":
        del damaged[rng.choice([place, len(data) - 1 - place % 200]) :]
    elif how == "insert":
        damaged[place:place] = rng.randbytes(rng.choice([1, 8, 512]))
    else:
        size = rng.choice([8, 64, 4096])
        damaged[place : place + size] = bytes(len(damaged[place : place + size]))
    return bytes(damaged)


def damage_file(path: Path, rng: random.Random) -> None:
    path.write_bytes(mutate(path.read_bytes(), rng))


def damage_npz(path: Path, rng: random.Random) -> None:
    """Damages an .npz, compressed or not, anywhere, or one of its headers, or makes a hostile one of it."""
    arrays = dict(np.load(path))
    if rng.random() < 0.5:
        np.savez_compressed(path, **arrays)
    how = rng.choice(["anywhere", "header", "header", "hostile"])
    if how == "anywhere":
        damage_file(path, rng)
    elif how == "header":
        path.write_bytes(mutate_zip_header(path.read_bytes(), rng))
    else:
        path.write_bytes(hostile_npz(arrays, rng))


def mutate_zip_header(data: bytes, rng: random.Random) -> bytes:
    """Returns a zip file with encryption flags, an absurd number, or another byte in its headers."""
    damaged = bytearray(data)
    headers = [(at, sign) for sign in ZIP_HEADERS for at in range(len(data)) if data.startswith(sign, at)]
    how = rng.choice(["encrypted", "number", "byte"])
    if how == "encrypted":
        for at, signature in headers:
            if signature in ZIP_FLAGS:
                damaged[at + ZIP_FLAGS[signature]] |= rng.choice([0x01, 0x41])
        return bytes(damaged)
    for at, signature in rng.sample(headers, rng.choice([1, 1, 2])):
        if how == "number":
            place = at + rng.randrange(4, ZIP_HEADERS[signature] - 3)
            damaged[place : place + 4] = rng.choice(ABSURD).to_bytes(4, "little")
        else:
            damaged[at + rng.randrange(ZIP_HEADERS[signature])] = rng.randrange(256)
    return bytes(damaged)


class Executed:
    """An object that makes a directory when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("executed",)


def hostile_npz(arrays: dict[str, np.ndarray], rng: random.Random) -> bytes:
    """Returns an .npz, with right checksums, of an array that has objects or declares an absurd size."""
    name = rng.choice(sorted(arrays))
    stream, member = io.BytesIO(), io.BytesIO()
    if rng.random() < 0.5:
        np.lib.format.write_array(member, np.array([Executed()] * len(arrays[name]), dtype=object))
    else:
        shape = tuple(rng.choice([-1, 0, 2**31, 2**63, 10**14, 10**30]) for _ in range(rng.randint(1, 3)))
        header = {"shape": shape, "descr": rng.choice(["|u1", "<i8", "<U0", "|O"]), "fortran_order": False}
        np.lib.format.write_array_header_1_0(member, header)
        member.write(arrays[name].tobytes())
    with zipfile.ZipFile(stream, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
        for each, values in arrays.items():
            if each == name:
                archive.writestr(f"{each}.npy", member.getvalue())
            else:
                with archive.open(f"{each}.npy", "w") as file:
                    np.lib.format.write_array(file, values)
    return stream.getvalue()


def damage_checkpoint(path: Path, rng: random.Random) -> None:
    """Damages a file of a checkpoint, deletes it, or gives it the content of another; sometimes of two."""
    others = sorted(path.parent.iterdir())
    for each in (path, *rng.sample(others, rng.choice([0, 0, 0, 1]))):
        how = rng.choice(["mutate", "mutate", "mutate", "mutate", "delete", "replace"])
        if how == "delete":
            each.unlink(missing_ok=True)
        elif how == "replace":
            each.write_bytes(rng.choice([other for other in others if other.exists()]).read_bytes())
        elif each.exists():
            damage_file(each, rng)
