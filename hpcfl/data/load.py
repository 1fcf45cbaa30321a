"""Loads the dataset that a configuration names."""

from __future__ import annotations

import hashlib
import shlex

import numpy as np

from hpcfl.config.data import DataConfig
from hpcfl.data.dataset import Dataset
from hpcfl.data.prepared_file import is_prepared, open_prepared, prepared_names, prepared_path
from hpcfl.data.sources.registry import KNOWN_DATASETS, PUBLISHED_FORMS, prepare_command
from hpcfl.data.spiral import CLASSES, spiral
from hpcfl.data.synthetic import synthetic
from hpcfl.errors import BadInput, nearest

BUILT_IN = ("spiral", "synthetic")
"""Datasets that are generated, without a file."""


def load_dataset(settings: DataConfig) -> Dataset:
    """Returns the dataset that the configuration names; images are memory-mapped, not read."""
    if settings.name == "spiral":
        x, y = spiral(settings)
        return Dataset(x, y, tuple(f"arm {k}" for k in range(CLASSES)), len(y), _checksum(x))
    if settings.name == "synthetic":
        x, y, statistics = synthetic(settings)
        names = tuple(f"class {k}" for k in range(settings.classes))
        return Dataset(x, y, names, len(y), _checksum(x), mean_C=statistics.mean_C, std_C=statistics.std_C)

    path = prepared_path(settings.root, settings.name)
    if is_prepared(path):
        return open_prepared(path)
    root = f"{settings.root} (data.root)"
    if arguments := prepare_command(settings.name):
        command = f"hpcfl data prepare {arguments} --root {shlex.quote(settings.root)}"
        raise BadInput(
            f"data.name = {settings.name!r}: not prepared in {root}; "
            f"run once, where there is internet: {command}"
        )
    prepared = prepared_names(settings.root)
    choices = [*BUILT_IN, *prepared, *KNOWN_DATASETS, *PUBLISHED_FORMS]
    raise BadInput(
        f"data.name = {settings.name!r}: no such dataset; built in: {', '.join(BUILT_IN)}; "
        f"prepared in {root}: {', '.join(prepared) or 'none'}; hpcfl data list shows more"
        f"{nearest(settings.name, choices)}"
    )


def _checksum(x: np.ndarray) -> str:
    return hashlib.blake2b(x.data, digest_size=16).hexdigest()
