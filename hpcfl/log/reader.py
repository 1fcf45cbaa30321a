"""Reads a log; a file that is no log, or a damaged one, is bad input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from hpcfl.config.loading import parse_config
from hpcfl.config.schema import Config
from hpcfl.errors import BadInput
from hpcfl.log.schema import BY_PATH, STRING, VERSION

if TYPE_CHECKING:
    import pandas

EVERYTHING = dict.fromkeys(BY_PATH, slice(None))
"""All rows of all datasets."""


class NotALog(BadInput):
    """A whole file that is something else than a log, or another version's."""


@dataclass(frozen=True, repr=False)
class Run:
    """A log in memory: `run["/round/accuracy"]` is an array."""

    path: Path
    attributes: dict[str, Any]
    config: Config
    datasets: dict[str, np.ndarray]

    def __getitem__(self, path: str) -> np.ndarray:
        return self.datasets[path]

    def __repr__(self) -> str:
        what, rounds = self.config, f"{self.rounds_done} of {self.config.federation.rounds} rounds"
        return f"<Run {self.path}: {what.method.name} on {what.data.name}, {self.status}, {rounds}>"

    @property
    def rounds_done(self) -> int:
        return int(self.attributes["rounds_done"])

    @property
    def status(self) -> str:
        return str(self.attributes["status"])

    @property
    def study(self) -> str:
        """The study that it is a cell of, with its scale; empty: none."""
        said = self.attributes
        return study_title(str(said["study"]), str(said["scale"])) if "study" in said else ""

    def frame(self, name: str = "rounds") -> pandas.DataFrame:
        """Returns a table as a pandas frame: rounds, clients, classes, client_table or client_classes."""
        from hpcfl.log.tables import frame

        return frame(self, name)


def study_title(study: str, scale: str) -> str:
    """Returns a study's name, marked unless its scale is the full one."""
    return study if scale == "full" else f"{study} ({scale} scale)"


def read_log(path: str | Path, rows: Mapping[str, slice] = EVERYTHING) -> Run:
    """Returns the log in a file; `rows` chooses the datasets, and what of each.

    HDF5 opens the file itself: handed Python's, it may call Python after its end, and crash.
    """
    path = Path(path)
    with as_bad_input(path), open(path, "rb"), h5py.File(path, "r", locking=False) as file:
        attributes = dict(file.attrs)
        if "schema" not in attributes or "config" not in attributes:
            raise NotALog(f"{path} is an HDF5 file, but not a log of hpcfl")
        if attributes["schema"] != VERSION:
            raise NotALog(f"{path} has schema {attributes['schema']}; this version of hpcfl reads {VERSION}")
        datasets = {
            name: file[name].asstr()[part] if BY_PATH[name].dtype == STRING else file[name][part]
            for name, part in rows.items()
        }
        run = Run(path, attributes, parse_config(attributes["config"]), datasets)
        _check(run, rows)
        return run


def _check(run: Run, rows: Mapping[str, slice]) -> None:
    """Raises unless the parts of a log fit together, which a late file system may not show."""
    done = run.rounds_done
    if not {"status", "start", "restarts"} <= run.attributes.keys() or any(
        len(run[path]) != (done if part.start is None else min(done, -part.start))
        for path, part in rows.items()
        if BY_PATH[path].dims[0] == "round"
    ):
        raise ValueError("its parts do not fit together")


@contextmanager
def as_bad_input(path: Path) -> Iterator[None]:
    """Turns what may go wrong with a file, and with what was read of it, into a sentence about it."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or "not an HDF5 file, or a damaged one"
        raise BadInput(f"cannot read {path}: {reason}") from None
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError) as error:
        raise BadInput(f"cannot read {path}: not a whole log of hpcfl ({error})") from None
