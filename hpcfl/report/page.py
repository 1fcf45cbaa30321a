"""The page of a report: one HTML file that needs no network."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from hpcfl import __version__
from hpcfl.report.records import RunRecord
from hpcfl.report.verdict import WORDS, Verdict
from hpcfl.report.verdict_text import difference_text

PIXELS = 1.7
"""Of the page for a point of a figure; a figure of 7 inches is 857 pixels wide."""
MACHINE = {"host": "", "nodes": "nodes ", "cores": "cores ", "device": "", "instructions": "", "mpi": ""}
"""Attributes of a log that say where it ran, each with the word before its value."""
OUTCOMES = {"above": "Above local", "below": "Below local", "level": "No clear difference"}


@dataclass(frozen=True)
class PageFigure:
    """A figure of the page."""

    name: str
    title: str
    sentence: str
    svg: Markup
    values: Markup
    """What the page says at its points, as JSON."""


@dataclass(frozen=True)
class PageRun:
    """A run as the page lists it."""

    name: str
    method: str
    seeds: tuple[int, int]
    status: str
    rounds: int
    command: str
    config: str
    """Path of its configuration beside the page."""
    machine: str
    versions: str


def render_page(**values: Any) -> str:
    """Returns the page; every value is escaped but figures."""
    share = resources.files("hpcfl.share") / "report"
    page, style, script = ((share / f"page.{suffix}").read_text("utf-8") for suffix in ("html", "css", "js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    fixed = {"style": style, "script": script, "script_hash": f"sha256-{digest}", "version": __version__}
    return environment.from_string(page).render(**values, **fixed)


def inline_svg(text: str, name: str, title: str) -> Markup:
    """Returns a figure of matplotlib as part of a page.

    Ids get the name of the figure in front, so that they are unique in the page. Groups of a series get a
    class, by which the page hides them.
    """
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'\bid="(?!series-)', f'id="{name}-', text)
    text = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{name}-", text)
    text = re.sub(r'<g id="(series-\w+)">', r'<g class="\1">', text)
    text = re.sub(r'\b(width|height)="([\d.]+)pt"', _on_screen, text, count=2)
    return Markup(text.replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ', 1))


def _on_screen(size: re.Match[str]) -> str:
    """Returns the size of a figure on the page, where its letters would be too small in the size of print."""
    return f'{size[1]}="{float(size[2]) * PIXELS:.0f}"'


def script_data(values: Any) -> Markup:
    """Returns values as JSON that is safe within a script element."""
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def headline(verdict: Verdict) -> list[str]:
    """Returns the verdict in a line for each outcome, with differences in points and their intervals."""
    lines = []
    for outcome, words in OUTCOMES.items():
        found = [
            f"{d.series.name} by {WORDS[d.inference]} {difference_text(d)}"
            for d in verdict.deltas
            if d.outcome == outcome
        ]
        if len(found) > 6:
            found = [*found[:6], f"and {len(found) - 6} more"]
        if found:
            lines.append(f"{words}, in points: {'; '.join(found)}.")
    return lines or ["Not known."]


def page_runs(records: Sequence[RunRecord], configs: Sequence[str], directory: Path) -> list[PageRun]:
    """Returns the runs as the page lists them; `configs` are the files of their configurations in DIR."""
    runs = []
    for record, config in zip(records, configs, strict=True):
        attributes = record.run.attributes
        machine = [f"{word}{attributes[name]}" for name, word in MACHINE.items() if name in attributes]
        versions = [
            f"{name.removeprefix('version_')} {v}" for name, v in attributes.items() if "version_" in name
        ]
        runs.append(
            PageRun(
                *(record.name, record.method, record.seeds, record.run.status, record.run.rounds_done),
                *(repeat_command(record, directory / config), config),
                *(", ".join(machine), ", ".join(versions)),
            )
        )
    return runs


def repeat_command(record: RunRecord, config: Path) -> str:
    """Returns what repeats a run: from its own directory, where its relative paths begin, into a new log."""
    attributes = record.run.attributes
    ranks = int(attributes.get("ranks", 1))
    go = f"cd {shlex.quote(known)} && " if (known := str(attributes.get("directory", ""))) else ""
    start = "" if ranks == 1 else f"mpirun -n {ranks} "
    return f"{go}{start}hpcfl train {shlex.quote(str(config))} --out {config.stem}-again.h5"
