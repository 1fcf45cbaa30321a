"""Values and tables as TOML writes them in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tomli_w


def toml_value(value: Any) -> str:
    """Returns a value: `0.5`, `"a"`, `[1, 2]`, `{ median = 5.0 }`."""
    if isinstance(value, Mapping):
        return toml_table(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    return tomli_w.dumps({"v": value}).removeprefix("v = ").strip()


def toml_table(values: Mapping[str, Any]) -> str:
    """Returns an inline table; a key may have dots."""
    return (
        "{ " + ", ".join(f"{key} = {toml_value(v)}" for key, v in values.items()) + " }" if values else "{}"
    )
