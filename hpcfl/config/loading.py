"""Reads a configuration from TOML and `--set`, checks it, and writes it as TOML."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from hpcfl.config.identity import keys
from hpcfl.config.schema import Config
from hpcfl.errors import BadInput, nearest, nearest_key
from hpcfl.share.lookup import find_config
from hpcfl.utils.standard_input import read_standard_input

Source = str | Path | Mapping[str, Any] | Config | None
"""What describes a run: a file, the name of a shipped one, tables, a checked configuration."""
STANDARD_INPUT = ("-", "/dev/stdin")
DESCRIPTORS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
"""Files of a process: what a shell opened for it, as in `hpcfl train <(…)`."""
REPLACED = {"models.list": ("group",), "models.group": ("list", "weights")}
"""Settings that take the place of other keys of [models]."""
STUDY_TABLES = {"base", "block", "exclude", "grid", "set", "small", "when"}
"""Keys of a study's file that no configuration has."""
MAX_DEPTH = 50
"""Levels of nested tables and lists."""
MAX_BITS = 1024
"""Bits of an integer."""


def load_config(source: Source = None, settings: Sequence[str] = (), said_as: str = "--set ") -> Config:
    """Returns a checked configuration from a TOML file, a mapping, a Config, or None (the quick start).

    A text that is no file is the name of a shipped configuration, `-` is standard input. `settings` are
    `KEY=VALUE` texts that override it; errors quote them after `said_as`.
    """
    if isinstance(source, Config):
        tables = tomllib.loads(dump_config(source))
    elif isinstance(source, Mapping):
        _check_extremes(source, "configuration")
        tables = _nested_tables(source)
    elif source is not None and is_read_once(source):
        tables = tables_read_once(source)
    else:
        tables = {} if source is None else parse_toml(read_text(find_config(source)), source)
    if STUDY_TABLES & tables.keys():
        is_named = isinstance(source, str | Path) and not is_read_once(source)
        what, name = (source, source) if is_named else ("this configuration", "FILE")
        raise BadInput(f"{what} is a study: hpcfl study run {name}")
    if isinstance(settings, str):
        raise BadInput(f"settings = {settings!r}: must be a list of KEY=VALUE")
    for text in settings:
        _apply_setting(tables, text, said_as)
    return check_tables(tables)


def is_read_once(source: Source) -> bool:
    """Returns whether only one process can read a configuration: from standard input or from a pipe."""
    if not isinstance(source, str | Path):
        return False
    return str(source) == "-" or str(source).startswith(DESCRIPTORS) or _is_pipe(source)


def _is_pipe(path: str | Path) -> bool:
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def tables_read_once(source: Source) -> dict[str, Any]:
    """Returns the tables of standard input or of a pipe; a launcher gives it to rank 0 alone."""
    if str(source) not in STANDARD_INPUT:
        return parse_toml(read_text(Path(str(source))), str(source))
    try:
        text = read_standard_input().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"standard input is not UTF-8 text (byte {error.start})") from None
    return parse_toml(text, "standard input")


def _nested_tables(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a copy with `"train.lr"` as `lr` in the table `train`, and numpy values as Python values."""
    tables: dict[str, Any] = {}
    for key, value in flat.items():
        section, dot, rest = str(key).partition(".")
        new = {rest: _to_python(value)} if dot else _to_python(value)
        old = tables.get(section, {})
        tables[section] = old | new if isinstance(old, dict) and isinstance(new, dict) else new
    return tables


def _to_python(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _to_python(item) for key, item in value.items()}
    return value.tolist() if hasattr(value, "tolist") else deepcopy(value)


def check_tables(tables: dict[str, Any]) -> Config:
    """Returns the configuration of nested tables; raises BadInput with one sentence if it is invalid."""
    try:
        return Config.model_validate(tables)
    except ValidationError as error:
        raise BadInput(error_message(error)) from None


def dump_config(config: Config) -> str:
    """Returns the whole configuration as TOML; loading that gives an equal configuration."""
    # without models.group if there is a models.list, because giving both is refused
    exclude = {"models": {"group"}} if config.models.list is not None else None
    return tomli_w.dumps(config.model_dump(exclude_none=True, exclude=exclude))


def parse_config(text: str) -> Config:
    """Returns the configuration from TOML that `dump_config` wrote."""
    return Config.model_validate(tomllib.loads(text))


def read_text(path: Path, kind: str = "configuration") -> str:
    """Returns the text of a TOML file; `kind` names the kind of file in errors."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise BadInput(f"cannot read {kind} {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 text (byte {error.start})") from None
    except ValueError as error:  # an invalid path, such as one with a null byte
        raise BadInput(f"cannot read {kind} {str(path)!r}: {error}") from None


def parse_toml(text: str, path: str | Path) -> dict[str, Any]:
    """Returns the tables of a TOML text; `path` is named in errors."""
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not TOML: {str(error) or 'nested too deeply'}") from None
    _check_extremes(tables, str(path))
    return tables


def parse_setting(text: str, said_as: str = "--set ") -> tuple[str, Any]:
    """Returns key and value of `KEY=VALUE`."""
    name, equals, value = text.partition("=")
    parts = [part.strip() for part in name.split(".")]
    if not equals or not all(parts):
        raise BadInput(f"{said_as}{text}: write KEY=VALUE, for example train.lr=0.1")
    parsed = _parse_value(value.strip())
    _check_extremes(parsed, f"{said_as}{_shorten(text)}", depth=len(parts))
    return ".".join(parts), parsed


def _apply_setting(tables: dict[str, Any], text: str, said_as: str) -> None:
    """Sets the value of `KEY=VALUE` in nested tables."""
    key, value = parse_setting(text, said_as)
    if key in REPLACED and isinstance(models := tables.get("models"), dict):
        for other in REPLACED[key]:
            models.pop(other, None)
    *path, last = key.split(".")
    for part in path:
        tables = tables.setdefault(part, {})
        if not isinstance(tables, dict):
            raise BadInput(f"{said_as}{text}: {part} is a value, not a table")
    tables[last] = value


def _parse_value(text: str) -> Any:
    """Returns the TOML value of a text; a text that is not TOML is a string, so quotes may be left out."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return parsed["value"] if parsed.keys() == {"value"} else text


def _check_extremes(value: Any, source: str, depth: int = 0) -> None:
    """Raises BadInput for tables so deep, or integers so long, that Python refuses to print them."""
    if depth > MAX_DEPTH:
        raise BadInput(f"{source}: nested too deeply, more than {MAX_DEPTH} levels")
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise BadInput(f"{source}: an integer of {value.bit_length()} bits, more than {MAX_BITS}")
    if isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            _check_extremes(item, source, depth + 1)


def error_message(error: ValidationError, section: str = "") -> str:
    """Returns the first problem: the full key, its value, what is allowed, and the nearest known key."""
    first, *others = error.errors(include_url=False)
    key = ".".join([*([section] if section else []), *map(str, first["loc"])])
    value = _shorten(repr(first["input"]))
    message = (
        first["msg"]
        .removeprefix("Value error, ")
        .replace("Input should", "must")
        .replace("String should", "must")
    )
    match first["type"]:
        case "extra_forbidden":
            text = f"unknown key {key}{nearest_key(key, _keys_and_sections())}"
        case "model_type":
            text = f"{key} = {value}: must be a table, [{key}]"
        case "literal_error":
            allowed = first["ctx"]["expected"]
            suggestion = nearest(str(first["input"]), _allowed_values(allowed))
            text = f"{key} = {value}: allowed is {allowed}{suggestion}"
        case "value_error" if not first["loc"]:
            text = message
        case _:
            text = f"{key} = {value}: {message}"
    return text + (f" (and {len(others)} more)" if others else "")


def _keys_and_sections() -> list[str]:
    return [*keys(), *Config.model_fields]


def _shorten(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "…"


def _allowed_values(allowed: str) -> list[str]:
    return [word.strip("', ") for word in allowed.replace(" or ", ",").split(",")]
