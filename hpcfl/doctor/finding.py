"""The result of a check, printed as one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hpcfl.utils.formatting import plural

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """Name of the check, level, what was found, and how to fix it."""

    name: str
    level: Level
    detail: str
    remedy: str = ""

    def line(self) -> str:
        return f"{self.level:8} {self.name:13} {self.detail}" + (f" -> {self.remedy}" if self.remedy else "")


def ok(name: str, detail: str) -> Finding:
    return Finding(name, "ok", detail)


def warning(name: str, detail: str, remedy: str) -> Finding:
    return Finding(name, "warning", detail, remedy)


def problem(name: str, detail: str, remedy: str) -> Finding:
    return Finding(name, "problem", detail, remedy)


def summary(findings: Sequence[Finding]) -> str:
    """Returns the last line of the output: the number of problems and warnings."""
    counts = {level: sum(each.level == level for each in findings) for level in ("problem", "warning")}
    words = [plural(count, level) for level, count in counts.items() if count]
    return f"hpcfl doctor: {', '.join(words) or 'all is well'}"


def first_few(names: Sequence[object], limit: int = 4) -> str:
    """Returns the first names, and how many more there are."""
    rest = len(names) - limit
    return ", ".join(map(str, names[:limit])) + (f" and {rest} more" if rest > 0 else "")
