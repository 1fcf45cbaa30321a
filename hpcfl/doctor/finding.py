"""What a check says: one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """What was looked at, how it is, what was seen, and what to do about it."""

    name: str
    level: Level
    seen: str
    remedy: str = ""

    def line(self) -> str:
        return f"{self.level:8} {self.name:13} {self.seen}" + (f" -> {self.remedy}" if self.remedy else "")


def ok(name: str, seen: str) -> Finding:
    return Finding(name, "ok", seen)


def warning(name: str, seen: str, remedy: str) -> Finding:
    return Finding(name, "warning", seen, remedy)


def problem(name: str, seen: str, remedy: str) -> Finding:
    return Finding(name, "problem", seen, remedy)


def summary(findings: Sequence[Finding]) -> str:
    """Returns the last line."""
    counts = {level: sum(each.level == level for each in findings) for level in ("problem", "warning")}
    words = [f"{count} {level}{'s' if count > 1 else ''}" for level, count in counts.items() if count]
    return f"hpcfl doctor: {', '.join(words) or 'all is well'}"


def first_few(names: Sequence[object], most: int = 4) -> str:
    """Returns the first few of many names."""
    rest = len(names) - most
    return ", ".join(map(str, names[:most])) + (f" and {rest} more" if rest > 0 else "")
