"""Reads .npz files of plain arrays, without unpickling."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from hpcfl.errors import BadInput


def read_npz(path: str | Path, what: str) -> dict[str, np.ndarray]:
    """Returns the arrays of an .npz file, with checksums verified; `what` names the file in errors."""
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except OSError as error:
        raise BadInput(f"{what}: {error.strerror or 'not a whole .npz'}") from None
    except zipfile.BadZipFile as error:
        raise BadInput(f"{what}: a damaged .npz ({error})") from None
    except (ValueError, EOFError, KeyError, AttributeError, TypeError):
        raise BadInput(f"{what}: not an .npz of plain arrays, as numpy.savez writes it") from None
