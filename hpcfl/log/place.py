"""Where a run's log goes, and what is done about a file that is already there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from hpcfl.config import Config
from hpcfl.configfile import difference, fingerprint
from hpcfl.errors import BadInput
from hpcfl.federation import Federation
from hpcfl.log.reader import read


def default_path(config: Config) -> Path:
    """Returns a name that the same configuration always gets, and no other."""
    return Path(f"{config.method.name}-{config.data.name}-{fingerprint(config)}.h5")


def settle(path: Path, fed: Federation, fresh: bool, note: Callable[[str], None]) -> bool:
    """Says whether this run is finished already; raises if it may not start. No run is ever overwritten."""
    config = fed.config
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise BadInput(f"cannot write {path}: {path.parent} is not a directory that can be written to")
    if not os.path.lexists(path):
        return False
    if not path.is_file() and not path.is_dir():
        raise BadInput(f"cannot write {path}: it is not a file")
    old = read(path)
    if fresh:
        note(f"{path} will be kept under another name")
        return False
    if change := difference(old.config, config):
        raise BadInput(f"{path} is a run of another configuration ({change}); choose another --out")
    for what, checksum in fed.checksums.items():
        if old.attributes.get(f"checksum_{what}") != checksum:
            raise BadInput(
                f"{path} is a run with other content of the same name ({what}); choose another --out"
            )
    if old.status == "finished":
        note(f"{path} is finished: {old.rounds_done} rounds; --fresh keeps it aside and runs again")
        return True
    raise BadInput(
        f"{path} is an unfinished run of this configuration ({old.rounds_done} of "
        f"{config.federation.rounds} rounds, {old.status}); --fresh keeps it aside and runs again"
    )
