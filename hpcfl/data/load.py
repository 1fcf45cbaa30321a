"""Loads the dataset that a configuration names."""

from __future__ import annotations

import hashlib
import shlex

from hpcfl.config.schema import DataConfig
from hpcfl.data.dataset import Dataset
from hpcfl.data.prepared_file import is_prepared, open_prepared, prepared_names, prepared_path
from hpcfl.data.sources.registry import KNOWN_DATASETS, PUBLISHED_FORMS, prepare_command
from hpcfl.data.spiral import CLASSES, spiral
from hpcfl.errors import BadInput, nearest


def load_dataset(settings: DataConfig) -> Dataset:
    """Returns the dataset that the configuration names; images are memory-mapped, not read."""
    if settings.name == "spiral":
        x, y = spiral(settings)
        class_names = tuple(f"arm {k}" for k in range(CLASSES))
        checksum = hashlib.blake2b(x.tobytes(), digest_size=16).hexdigest()
        return Dataset(x, y, class_names, len(y), checksum)

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
    choices = ["spiral", *prepared, *KNOWN_DATASETS, *PUBLISHED_FORMS]
    raise BadInput(
        f"data.name = {settings.name!r}: no such dataset; built in: spiral; prepared in {root}: "
        f"{', '.join(prepared) or 'none'}; hpcfl data list shows more{nearest(settings.name, choices)}"
    )
