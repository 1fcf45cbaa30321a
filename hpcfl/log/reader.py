"""Reads a log; raises BadInput for a file that is damaged or not a log."""

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

ALL_ROWS = dict.fromkeys(BY_PATH, slice(None))
"""All rows of all datasets."""


class NotALog(BadInput):
    """An undamaged HDF5 file that is not a log, or has another schema version."""


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
        config, rounds = self.config, f"{self.rounds_done} of {self.config.federation.rounds} rounds"
        return f"<Run {self.path}: {config.method.name} on {config.data.name}, {self.status}, {rounds}>"

    @property
    def rounds_done(self) -> int:
        return int(self.attributes["rounds_done"])

    @property
    def status(self) -> str:
        return str(self.attributes["status"])

    @property
    def study(self) -> str:
        """Title of the study that the run belongs to; empty: none."""
        attributes = self.attributes
        if "study" not in attributes:
            return ""
        return study_title(str(attributes["study"]), str(attributes["scale"]))

    def frame(self, name: str = "rounds") -> pandas.DataFrame:
        """Returns a table as a pandas DataFrame: rounds, clients, classes, client_table or client_classes."""
        from hpcfl.log.tables import frame

        return frame(self, name)


def study_title(study: str, scale: str) -> str:
    """Returns a study's name, followed by its scale unless that is `full`."""
    return study if scale == "full" else f"{study} ({scale} scale)"


def read_log(path: str | Path, rows: Mapping[str, slice] = ALL_ROWS) -> Run:
    """Returns the log in a file; `rows` maps the paths of the datasets to read to the rows of each.

    HDF5 opens the file by name: given a Python file object, it may call Python after its exit, and crash.
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
    """Raises ValueError if attributes or rows are missing, which a file system with stale caches may show."""
    done = run.rounds_done
    if not {"status", "start", "restarts"} <= run.attributes.keys() or any(
        len(run[path]) != (done if part.start is None else min(done, -part.start))
        for path, part in rows.items()
        if BY_PATH[path].dims[0] == "round"
    ):
        raise ValueError("its parts do not fit together")


@contextmanager
def as_bad_input(path: Path) -> Iterator[None]:
    """Turns the errors of reading a file into BadInput with its path."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or "not an HDF5 file, or a damaged one"
        raise BadInput(f"cannot read {path}: {reason}") from None
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError) as error:
        raise BadInput(f"cannot read {path}: not a whole log of hpcfl ({error})") from None
