"""Reads a log; raises BadInput for a file that is damaged or not a log."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from hpcfl.config.evaluated import evaluated_clients
from hpcfl.config.loading import parse_config
from hpcfl.config.schema import Config
from hpcfl.errors import BadInput, nearest
from hpcfl.log.schema import BY_PATH, COMPONENT_NAMES, OLDEST, VERSION
from hpcfl.log.target import ToTarget, to_target
from hpcfl.metrics.metric import ROUNDS_OF, STRING, Metric
from hpcfl.utils.formatting import plural
from hpcfl.utils.hdf5_file import DAMAGED, open_hdf5

if TYPE_CHECKING:
    import pandas


MAX_MISSING = 1 << 27
"""Largest number of NaN values for a metric that a file lacks."""
CORE = {
    *("/round/accuracy", "/round/loss", "/round/participants", "/round/seconds", "/round/bytes_up"),
    *(
        "/client/accuracy",
        "/client/loss",
        "/client/diverged",
        "/clients/architecture",
        "/clients/test_samples",
    ),
}
"""Datasets that logs of all versions have."""


class NotALog(BadInput):
    """An undamaged HDF5 file that is not a log, or has another schema version."""


@dataclass(frozen=True, repr=False)
class Run:
    """A log in memory: `run["/round/accuracy"]` is an array."""

    path: Path
    attributes: dict[str, Any]
    config: Config
    datasets: dict[str, np.ndarray]
    metrics: dict[str, Metric]
    """What the datasets are."""
    lacking: frozenset[str] = frozenset()
    """Known metrics that the file does not have: its method or its version of hpcfl did not log them."""

    def __getitem__(self, path: str) -> np.ndarray:
        if path in self.lacking and path not in self.datasets:
            raise BadInput(f"{self.path} has no {path}: its method, or the version of hpcfl, did not log it")
        if path not in self.datasets:
            raise BadInput(f"{self.path} has no {path}{nearest(path, self.datasets)}")
        return self.datasets[path]

    def __repr__(self) -> str:
        config = self.config
        rounds = f"{self.rounds_done} of {plural(config.federation.rounds, 'round')}"
        return f"<Run {self.path}: {config.method.name} on {config.data.name}, {self.status}, {rounds}>"

    @property
    def rounds_done(self) -> int:
        return int(self.attributes["rounds_done"])

    @property
    def evaluated_tests(self) -> np.ndarray:
        """The number of test samples of each client that is evaluated, 0 of the others."""
        tests_M = self["/clients/test_samples"]
        if self.config.log.evaluate_clients is None:
            return tests_M
        return tests_M * evaluated_clients(self.config)

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

    def to_target(self, accuracy: float, path: str = "/round/accuracy") -> ToTarget | None:
        """Returns rounds, bytes and seconds until an accuracy (0 … 1) was reached; None: it was not."""
        return to_target(self, accuracy, path)

    def frame(self, name: str = "rounds") -> pandas.DataFrame:
        """Returns a table as a pandas DataFrame: rounds, clients, classes, client_table or client_classes."""
        from hpcfl.log.tables import frame

        return frame(self, name)


SMALL_SCALE_NOTE = "small scale shows that everything works; its numbers mean nothing"


def study_title(study: str, scale: str) -> str:
    """Returns a study's name, followed by its scale unless that is `full`."""
    return study if scale == "full" else f"{study} ({scale} scale)"


def is_study(name: str) -> bool:
    """Returns whether a path is a study's directory, or the merged file in it."""
    return Path(name).is_dir() or is_merged_file(name)


def is_merged_file(name: str) -> bool:
    """Returns whether a path is the merged file of a study, `study.h5`."""
    path = Path(name)
    try:
        with as_bad_input(path), open_hdf5(path) as file:
            return str(file.attrs.get("kind")) == "study"
    except BadInput:
        return False


def read_log(path: str | Path, rows: Mapping[str, slice] | None = None, saved: bool = True) -> Run:
    """Returns the log in a file.

    `rows` maps the datasets to read to the rows of each; without, all are read, or with `saved = False` all
    but those of saved and chosen rounds, which are large. Known metrics that the file lacks are NaN if they
    are floats.
    """
    path = Path(path)
    with as_bad_input(path), open_hdf5(path) as file:
        attributes = dict(file.attrs)
        if "schema" not in attributes or "config" not in attributes:
            raise NotALog(f"{path} is an HDF5 file, but not a log of hpcfl")
        if not OLDEST <= attributes["schema"] <= VERSION:
            raise NotALog(
                f"{path} has schema {attributes['schema']}; this version of hpcfl reads {OLDEST} to {VERSION}"
            )
        present = [dataset.name for group in file.values() for dataset in group.values()]
        if len(present) != attributes.get("datasets", len(present)):
            raise ValueError(f"{len(present)} of {attributes['datasets']} datasets are there")
        if damaged := CORE - set(present):
            raise ValueError(f"{min(damaged)} is missing")
        wanted = dict.fromkeys([*BY_PATH, *present], slice(None)) if rows is None else dict(rows)
        metrics = {name: _metric(file[name]) for name in wanted if name in present}
        lacking = frozenset(BY_PATH.keys() - set(present))
        metrics |= {name: BY_PATH[name] for name in wanted if name in lacking and BY_PATH[name].is_float}
        if not saved:
            metrics = {name: metric for name, metric in metrics.items() if metric.dims[0] not in ROUNDS_OF}
        sizes = _sizes(file) if lacking & metrics.keys() else {}
        datasets = {
            name: _nan(metric, sizes)[wanted[name]] if name in lacking else _values(file[name], wanted[name])
            for name, metric in metrics.items()
        }
        run = Run(path, attributes, parse_config(attributes["config"]), datasets, metrics, lacking)
        _check(run, wanted)
        return run


def _metric(dataset: h5py.Dataset) -> Metric:
    """Returns the declaration of a dataset, as the file has it."""
    is_string = h5py.check_string_dtype(dataset.dtype) is not None
    dtype = STRING if is_string else dataset.dtype.str[1:].replace("b1", "?")
    about = {name: str(dataset.attrs[name]) for name in ("dims", "kind", "about")}
    kind: Any = about["kind"]
    return Metric(dataset.name, tuple(about["dims"].split()), dtype, kind, about["about"])


def _values(dataset: h5py.Dataset, rows: slice) -> np.ndarray:
    return dataset.asstr()[rows] if h5py.check_string_dtype(dataset.dtype) else dataset[rows]


def _sizes(file: h5py.File) -> dict[str, int]:
    """Returns the length of each dimension that the datasets of a file have."""
    sizes = {dim: len(names) for dim, names in COMPONENT_NAMES.items()}
    for group in file.values():
        for dataset in group.values():
            sizes |= dict(zip(str(dataset.attrs["dims"]).split(), dataset.shape, strict=True))
    return sizes


def _nan(metric: Metric, sizes: Mapping[str, int]) -> np.ndarray:
    """Returns NaN for a metric that the file lacks; `sizes` gives the length of each dimension."""
    shape = [sizes.get(dim, 0) for dim in metric.dims]
    if math.prod(shape) > MAX_MISSING:
        raise ValueError(f"{metric.path} would have {math.prod(shape)} values")
    return np.full(shape, np.nan, dtype=metric.dtype)


def _check(run: Run, rows: Mapping[str, slice]) -> None:
    """Raises ValueError if attributes or rows are missing, which a file system with stale caches may show."""
    done = run.rounds_done
    if not {"status", "start", "restarts"} <= run.attributes.keys() or any(
        len(run[path]) != (done if rows[path].start is None else min(done, -rows[path].start))
        for path, metric in run.metrics.items()
        if metric.dims[0] == "round"
    ):
        raise ValueError("its parts do not fit together")
    for dim in ROUNDS_OF:
        if len({len(run[path]) for path, metric in run.metrics.items() if metric.dims[0] == dim}) > 1:
            raise ValueError(f"its {dim} rounds do not fit together")


@contextmanager
def as_bad_input(path: Path) -> Iterator[None]:
    """Turns the errors of reading a file into BadInput with its path."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or DAMAGED
        raise BadInput(f"cannot read {path}: {reason}") from None
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError) as error:
        reason = " ".join(str(error).split())
        raise BadInput(f"cannot read {path}: not a whole log of hpcfl ({reason})") from None
    except MemoryError:
        raise BadInput(f"cannot read {path}: it does not fit in memory") from None
