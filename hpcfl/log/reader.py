"""Reads a log; a file that is no log, or a damaged one, is bad input."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hpcfl.config import Config
from hpcfl.configfile import parse
from hpcfl.errors import BadInput
from hpcfl.log.schema import ENTRIES, STRING, VERSION


@dataclass(frozen=True)
class Run:
    """A log in memory: `run["/round/accuracy"]` is an array."""

    path: Path
    attributes: dict[str, Any]
    config: Config
    datasets: dict[str, np.ndarray]

    def __getitem__(self, path: str) -> np.ndarray:
        return self.datasets[path]

    @property
    def rounds_done(self) -> int:
        return int(self.attributes["rounds_done"])

    @property
    def status(self) -> str:
        return str(self.attributes["status"])


def read(path: str | Path) -> Run:
    """Returns the log in a file."""
    path = Path(path)
    try:
        with open(path, "rb"):  # h5py's own words for a missing file are not for users
            pass
        with h5py.File(path, "r", locking=False) as file:
            attributes = dict(file.attrs)
            if "schema" not in attributes or "config" not in attributes:
                raise BadInput(f"{path} is an HDF5 file, but not a log of hpcfl")
            if attributes["schema"] != VERSION:
                raise BadInput(
                    f"{path} has schema {attributes['schema']}; this version of hpcfl reads {VERSION}"
                )
            datasets = {
                entry.path: file[entry.path].asstr()[()] if entry.dtype == STRING else file[entry.path][()]
                for entry in ENTRIES
            }
            return Run(path, attributes, parse(attributes["config"]), datasets)
    except BadInput:
        raise
    except OSError as error:
        reason = error.strerror or "not an HDF5 file, or a damaged one"
        raise BadInput(f"cannot read {path}: {reason}") from None
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise BadInput(f"cannot read {path}: not a whole log of hpcfl ({error})") from None
