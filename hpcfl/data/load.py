"""How a configuration finds its dataset."""

from __future__ import annotations

import hashlib

from hpcfl.config.schema import DataConfig
from hpcfl.data.dataset import Dataset
from hpcfl.data.prepared_file import is_prepared, open_prepared, prepared_names, prepared_path
from hpcfl.data.sources.registry import KNOWN_DATASETS
from hpcfl.data.spiral import CLASSES, spiral
from hpcfl.errors import BadInput, nearest


def load_dataset(settings: DataConfig) -> Dataset:
    """Returns the dataset that the configuration names; images themselves are not read yet."""
    if settings.name == "spiral":
        x, y = spiral(settings)
        arms = tuple(f"arm {k}" for k in range(CLASSES))
        return Dataset(x, y, arms, len(y), hashlib.blake2b(x.tobytes(), digest_size=16).hexdigest())

    path = prepared_path(settings.root, settings.name)
    if is_prepared(path):
        return open_prepared(path)
    root = f"{settings.root} (data.root)"
    if settings.name in KNOWN_DATASETS:
        raise BadInput(
            f"data.name = {settings.name!r}: not prepared in {root}; "
            f"run once, where there is internet: hpcfl data prepare {settings.name} --root {settings.root}"
        )
    there = prepared_names(settings.root)
    choice = ["spiral", *there, *KNOWN_DATASETS]
    raise BadInput(
        f"data.name = {settings.name!r}: no such dataset; built in: spiral; prepared in {root}: "
        f"{', '.join(there) or 'none'}; hpcfl data list shows more{nearest(settings.name, choice)}"
    )
