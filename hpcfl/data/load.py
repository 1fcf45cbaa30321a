"""How a configuration finds its dataset."""

from __future__ import annotations

import hashlib

from hpcfl.config.schema import Data
from hpcfl.data.dataset import Dataset
from hpcfl.data.prepared_file import is_there, locate, open_prepared, prepared
from hpcfl.data.sources.registry import KNOWN
from hpcfl.data.spiral import CLASSES, spiral
from hpcfl.errors import BadInput, nearest


def read(settings: Data) -> Dataset:
    """Returns the dataset that the configuration names; images themselves are not read yet."""
    if settings.name == "spiral":
        x, y = spiral(settings)
        arms = tuple(f"arm {k}" for k in range(CLASSES))
        return Dataset(x, y, arms, len(y), hashlib.blake2b(x.tobytes(), digest_size=16).hexdigest())

    path = locate(settings.root, settings.name)
    if is_there(path):
        return open_prepared(path)
    root = f"{settings.root} (data.root)"
    if settings.name in KNOWN:
        raise BadInput(
            f"data.name = {settings.name!r}: not prepared in {root}; "
            f"run once, where there is internet: hpcfl data prepare {settings.name} --root {settings.root}"
        )
    there = prepared(settings.root)
    choice = ["spiral", *there, *KNOWN]
    raise BadInput(
        f"data.name = {settings.name!r}: no such dataset; built in: spiral; prepared in {root}: "
        f"{', '.join(there) or 'none'}; hpcfl data list shows more{nearest(settings.name, choice)}"
    )
