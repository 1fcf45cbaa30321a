"""A user's own code, named by import path: how it is loaded, and the checksums that make it part of a run."""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from hpcfl.errors import BadInput, nearest
from hpcfl.utils.files import preserve_working_directory

IMPORT_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
"""An import path: `mypackage.nets:tiny`."""
MAX_MESSAGE = 300
"""Characters of a user's own error message that are shown."""


def import_object(key: str, path: str) -> Any:
    """Returns the object of an import path; the working directory is searched too.

    What goes wrong is BadInput with the line of the user's file.
    """
    name, _, attribute = path.partition(":")
    _search_working_directory()
    try:
        with preserve_working_directory():
            module = importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise BadInput(f"{key}: {path} cannot be imported ({describe_error(error)})") from None
    try:
        return getattr(module, attribute)
    except AttributeError:
        file = f" ({module.__file__})" if getattr(module, "__file__", None) else ""
        suggestion = nearest(attribute, [each for each in dir(module) if not each.startswith("_")])
        raise BadInput(f"{key}: {name}{file} has no {attribute}{suggestion}") from None


def place(found: object) -> str:
    """Returns ` (FILE:LINE)` of a class or function, or nothing if that is not known."""
    try:
        _, line = inspect.getsourcelines(found)  # type: ignore[arg-type]
        return f" ({inspect.getsourcefile(found)}:{line})"  # type: ignore[arg-type]
    except (OSError, TypeError):
        return ""


def _search_working_directory() -> None:
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def describe_error(error: BaseException) -> str:
    """Returns type and message of an error, and the last line of the user's own that led to it."""
    message = " ".join(f"{type(error).__name__}: {_message(error)}".split())[:MAX_MESSAGE]
    return f"{message}{_place_of(error)}"


def _message(error: BaseException) -> str:
    return (error.msg or "") if isinstance(error, SyntaxError) else str(error)


def _place_of(error: BaseException) -> str:
    """Returns `, FILE:LINE` for the last line of the user's own that led to an error."""
    if isinstance(error, SyntaxError) and error.filename:
        return f", {error.filename}:{error.lineno}"
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if not frame.filename.startswith("<") and not _is_installed(frame.filename):
            place = f", {frame.filename}:{frame.lineno}"
    return place


def source_checksums(paths: Iterable[str]) -> dict[str, str]:
    """Returns a checksum of each module outside the installed packages that import paths load, by name.

    These are the modules themselves, their packages, and what their source imports, anywhere in it. Nothing
    is imported to find them.
    """
    found: dict[str, str] = {}
    waiting = [name for path in paths for name in _with_packages(path.partition(":")[0])]
    if waiting:
        _search_working_directory()
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        spec = _spec(name)
        if spec is None or not spec.origin or not os.path.isfile(spec.origin) or _is_installed(spec.origin):
            continue
        found[name], imports = _read(name, spec)
        waiting += imports
    return dict(sorted(found.items()))


_LOADED: dict[str, tuple[ModuleSpec, tuple[str, list[str]]]] = {}
"""Checksum and imports of the loaded modules, as they were when first read."""


def _read(name: str, spec: ModuleSpec) -> tuple[str, list[str]]:
    """Returns the checksum of a module's file, and the modules that it may import.

    A loaded module keeps its first checksum: if its file is edited afterwards, the code that runs is the old.
    """
    if name in _LOADED and _LOADED[name][0] is spec:
        return _LOADED[name][1]
    assert spec.origin is not None
    try:
        code = Path(spec.origin).read_bytes()
    except OSError as error:
        raise BadInput(f"cannot read {spec.origin}: {error.strerror}") from None
    imports: list[str] = []
    if spec.origin.endswith(".py"):
        imports = list(_imports(code, name, is_package=spec.submodule_search_locations is not None))
    result = hashlib.blake2b(code, digest_size=16).hexdigest(), imports
    if name in sys.modules:
        _LOADED[name] = spec, result
    return result


def _spec(name: str) -> ModuleSpec | None:
    """Returns where a module is, also of one that is not loaded yet; None: nowhere.

    Submodules of installed packages are not looked for.
    """
    if name in sys.modules:
        return _loaded_spec(name, sys.modules[name])
    package, _, _ = name.rpartition(".")
    parent = _spec(package) if package else None
    if package and (parent is None or parent.submodule_search_locations is None):
        return None
    if parent and parent.origin and _is_installed(parent.origin):
        return None
    where = list(parent.submodule_search_locations or ()) if parent else None
    for finder in sys.meta_path:
        spec = finder.find_spec(name, where) if hasattr(finder, "find_spec") else None
        if spec is not None:
            return spec
    return None


def _loaded_spec(name: str, module: ModuleType) -> ModuleSpec | None:
    """Returns where a loaded module is; a script that Python was started with has only a file."""
    spec = getattr(module, "__spec__", None)
    file = getattr(module, "__file__", None)
    return spec or (ModuleSpec(name, None, origin=os.path.abspath(file)) if file else None)


@cache
def _installed_roots() -> tuple[str, ...]:
    roots = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    roots |= {str(Path(__file__).parents[1]), sys.base_prefix + "/lib"}
    return tuple(sorted(os.path.realpath(root) for root in roots if root))


def _is_installed(file: str) -> bool:
    """Returns whether a file belongs to hpcfl, to Python or to an installed package."""
    path = Path(os.path.realpath(file))
    if {"site-packages", "dist-packages"} & {*path.parts}:
        return True
    return any(path.is_relative_to(root) for root in _installed_roots())


def _imports(code: bytes, module: str, is_package: bool) -> Iterator[str]:
    """Yields the names of all modules that a source may import; some may be names within a module."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return
    packages = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_packages(alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = packages[: len(packages) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            for name in (origin, *(f"{origin}.{alias.name}" for alias in node.names)):
                yield from _with_packages(name)


def _with_packages(module: str) -> Iterator[str]:
    """Yields a module and the packages that it lies in."""
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        yield ".".join(parts[:end])
