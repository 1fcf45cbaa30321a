"""From TOML and `--set` to a checked configuration, and back."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from hpcfl.config.identity import keys
from hpcfl.config.schema import Config
from hpcfl.errors import BadInput, nearest


def load_config(
    given: str | Path | Mapping[str, Any] | Config | None = None, settings: Sequence[str] = ()
) -> Config:
    """Returns a checked configuration: of a TOML file, of tables, or of None (the quick start).

    `settings` are `KEY=VALUE` on top.
    """
    if isinstance(given, Config):
        tables = tomllib.loads(dump_config(given))
    elif isinstance(given, Mapping):
        tables = _tables(given)
    else:
        tables = parse_toml(read_text(Path(given)), given) if given is not None else {}
    if isinstance(settings, str):
        raise BadInput(f"settings = {settings!r}: must be a list of KEY=VALUE")
    for text in settings:
        _set(tables, text)
    return check_tables(tables)


def _tables(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a copy in which `"train.lr"` is `lr` in the table `train`, and numpy's values are Python's."""
    tables: dict[str, Any] = {}
    for key, value in given.items():
        section, dot, rest = str(key).partition(".")
        more = {rest: _plain(value)} if dot else _plain(value)
        old = tables.get(section, {})
        tables[section] = old | more if isinstance(old, dict) and isinstance(more, dict) else more
    return tables


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return value.tolist() if hasattr(value, "tolist") else deepcopy(value)


def check_tables(tables: dict[str, Any]) -> Config:
    """Returns the configuration of nested tables, or raises what is wrong with it in one sentence."""
    try:
        return Config.model_validate(tables)
    except ValidationError as error:
        raise BadInput(_sentence(error)) from None


def dump_config(config: Config) -> str:
    """Returns the whole configuration as TOML; `load` of it gives an equal configuration."""
    # group is left out beside a list: naming both is refused
    without = {"models": {"group"}} if config.models.list is not None else None
    return tomli_w.dumps(config.model_dump(exclude_none=True, exclude=without))


def parse_config(text: str) -> Config:
    """Returns the configuration that `dump` wrote."""
    return Config.model_validate(tomllib.loads(text))


def read_text(path: Path, kind: str = "configuration") -> str:
    """Returns the text of a TOML file; `kind` names it where it cannot be read."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise BadInput(f"cannot read {kind} {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 text (byte {error.start})") from None
    except ValueError as error:  # a path that no file can have
        raise BadInput(f"cannot read {kind} {str(path)!r}: {error}") from None


def parse_toml(text: str, path: str | Path) -> dict[str, Any]:
    """Returns what a TOML file's text says."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not TOML: {str(error) or 'nested too deeply'}") from None


def parse_setting(text: str) -> tuple[str, Any]:
    """Returns key and value of `KEY=VALUE`."""
    name, equals, value = text.partition("=")
    parts = [part.strip() for part in name.split(".")]
    if not equals or not all(parts):
        raise BadInput(f"--set {text}: write KEY=VALUE, for example --set train.lr=0.1")
    return ".".join(parts), _value(value.strip())


def _set(tables: dict[str, Any], text: str) -> None:
    key, value = parse_setting(text)
    *path, last = key.split(".")
    for part in path:
        tables = tables.setdefault(part, {})
        if not isinstance(tables, dict):
            raise BadInput(f"--set {text}: {part} is a value, not a table")
    tables[last] = value


def _value(text: str) -> Any:
    """Returns what the text means in TOML; what is not TOML is a string, so quotes may be left out."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return parsed["value"] if parsed.keys() == {"value"} else text


def _sentence(error: ValidationError) -> str:
    """Returns the first problem: the key's full name, the value, what is allowed, the nearest known key."""
    first, *others = error.errors(include_url=False)
    key = ".".join(map(str, first["loc"]))
    value = repr(first["input"])
    value = value if len(value) <= 60 else value[:57] + "…"
    message = (
        first["msg"]
        .removeprefix("Value error, ")
        .replace("Input should", "must")
        .replace("String should", "must")
    )
    match first["type"]:
        case "extra_forbidden":
            said = f"unknown key {key}{nearest(key, keys())}"
        case "model_type":
            said = f"{key} = {value}: must be a table, [{key}]"
        case "literal_error":
            allowed = first["ctx"]["expected"]
            said = f"{key} = {value}: allowed is {allowed}{nearest(str(first['input']), _words(allowed))}"
        case "value_error" if not key:
            said = message
        case _:
            said = f"{key} = {value}: {message}"
    return said + (f" (and {len(others)} more)" if others else "")


def _words(allowed: str) -> list[str]:
    return [word.strip("', ") for word in allowed.replace(" or ", ",").split(",")]
