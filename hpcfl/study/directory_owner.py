"""Which study a directory belongs to: written when the directory is made, and never changed."""

from __future__ import annotations

import json

from hpcfl.errors import BadInput
from hpcfl.log.reader import as_bad_input, study_title
from hpcfl.study.run_store import RunStore
from hpcfl.study.study_file import Study
from hpcfl.utils.files import fsync, rename_if_free, temporary_path
from hpcfl.utils.hdf5_file import open_hdf5, read_regular

MERGED = "study.h5"
"""Name of the merged file, which names its study too."""
OWNER = "study.json"
"""Name of the file that says whose directory it is."""


def claim_directory(study: Study, store: RunStore) -> None:
    """Creates the directory for a study; raises if it is that of another one, or of another scale.

    Of two studies that start together, the first one gets it: the owner's file is put in place only if there
    is none.
    """
    store.make()
    check_directory_owner(study, store)
    path = store.path / OWNER
    try:
        with temporary_path(path) as temporary:
            with open(temporary, "x") as file:
                json.dump({"study": study.name, "scale": study.scale}, file)
            fsync(temporary)
            rename_if_free(temporary, path)
    except FileExistsError:
        check_directory_owner(study, store)
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}") from None


def check_directory_owner(study: Study, store: RunStore) -> None:
    """Raises if the directory is that of another study, or of another scale."""
    title = _owner(store)
    if title not in ("", study.title):
        raise BadInput(f"{store.path} is the directory of the study {title}; choose another --out")


def _owner(store: RunStore) -> str:
    """Returns the title of the study that has the directory; an empty string if there is none."""
    path, merged = store.path / OWNER, store.path / MERGED
    try:
        owner = json.loads(read_regular(path))
        return study_title(str(owner["study"]), str(owner["scale"]))
    except (FileNotFoundError, NotADirectoryError):
        pass  # new, or made by an older version
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise BadInput(f"cannot read {path}: not the file that names the study ({error})") from None
    try:
        with as_bad_input(merged), open_hdf5(merged) as file:
            return study_title(str(file.attrs["study"]), str(file.attrs["scale"]))
    except BadInput:  # none, or a damaged file, which is written again from the logs
        return ""
