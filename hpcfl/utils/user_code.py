"""A user's own code, named by import path: how it is loaded, and the checksums that make it part of a run."""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hpcfl.errors import BadInput

IMPORT_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
"""An import path: `mypackage.nets:tiny`."""


def import_object(key: str, path: str) -> Any:
    """Returns the object of an import path; the working directory is searched too.

    What goes wrong is BadInput with the line of the user's file.
    """
    module, _, name = path.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError as error:
        if error.name == name:
            raise BadInput(f"{key}: {module} has no {name}") from None
        raise _bad_import(key, path, error) from None
    except (Exception, SystemExit) as error:
        raise _bad_import(key, path, error) from None


def _bad_import(key: str, path: str, error: BaseException) -> BadInput:
    """Returns the error for a module that cannot be imported, with the last line of the user's own."""
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if not frame.filename.startswith("<") and not _is_installed(Path(frame.filename)):
            place = f", {frame.filename}:{frame.lineno}"
    return BadInput(f"{key}: {path} cannot be imported ({type(error).__name__}: {error}{place})")


def source_checksums(paths: Iterable[str]) -> dict[str, str]:
    """Returns a checksum of each module outside the installed packages that import paths load, by name.

    These are the modules themselves, their packages, and what their source imports, anywhere in it.
    """
    found: dict[str, str] = {}
    waiting = [name for path in paths for name in _with_packages(path.partition(":")[0])]
    while waiting:
        name = waiting.pop()
        file = _source(name)
        if name in found or file is None or _is_installed(file):
            continue
        code = file.read_bytes()
        found[name] = hashlib.blake2b(code, digest_size=16).hexdigest()
        if file.suffix == ".py":
            waiting += _imports(code, name, is_package=file.name == "__init__.py")
    return dict(sorted(found.items()))


def _source(module: str) -> Path | None:
    """Returns the file of a module, also of one that is not loaded yet; None: it has none."""
    try:
        spec = sys.modules[module].__spec__ if module in sys.modules else importlib.util.find_spec(module)
    except (ImportError, AttributeError, ValueError):
        return None
    if spec is None or spec.origin is None or not os.path.isfile(spec.origin):
        return None
    return Path(spec.origin).resolve()


def _is_installed(file: Path) -> bool:
    """Returns whether a file belongs to hpcfl, to Python or to an installed package."""
    roots = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    roots |= {str(Path(__file__).parents[1]), sys.base_prefix + "/lib"}
    return any(file.resolve().is_relative_to(Path(root).resolve()) for root in roots)


def _imports(code: bytes, module: str, is_package: bool) -> Iterator[str]:
    """Yields the names of all modules that a source may import; some may be names within a module."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_packages(alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = (
                ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            )
            origin = ".".join(filter(None, (base, node.module)))
            for name in (origin, *(f"{origin}.{alias.name}" for alias in node.names)):
                yield from _with_packages(name)


def _with_packages(module: str) -> Iterator[str]:
    """Yields a module and the packages that it lies in."""
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        yield ".".join(parts[:end])
