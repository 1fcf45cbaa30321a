"""`hpcfl export --to reference`: a study's results as a file of published numbers, for later runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpcfl.config.identity import SEED_KEYS, settings
from hpcfl.config.schema import Config
from hpcfl.errors import BadInput
from hpcfl.report.measures import measured
from hpcfl.report.records import Records, RunRecord, read_records
from hpcfl.report.reference_file import fits
from hpcfl.report.reference_types import BLOCK, PublishedNumber
from hpcfl.report.series import Series, make_settings
from hpcfl.report.units import SIZES, Measure, Unit
from hpcfl.study.keys import RANKS, Settings
from hpcfl.utils.files import write_atomically
from hpcfl.utils.formatting import print_line
from hpcfl.utils.hdf5_file import read_regular
from hpcfl.utils.toml_text import toml_table, toml_value

MEASURES: dict[Measure, tuple[Unit, int]] = {
    "best": ("%", 2), "selected": ("%", 2), "accuracy": ("%", 2), "head": ("%", 2), "global": ("%", 2),
    "local": ("%", 2), "trained": ("%", 2), "silhouette": ("1", 4), "personalisation": ("1", 4),
    "bytes_up": ("kB", 3), "bytes_down": ("kB", 3),
}  # fmt: skip
"""The columns of a result, with unit and decimals; seconds depend on the machine and are left out."""
STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
MOST_ROUNDS = 10
"""Most columns of the table by round."""
EXTRA_DIGITS = 2
"""Values have so many more decimals than are shown."""
ROUNDS = "federation.rounds"
HEADER = "# Results of a study, by `hpcfl export"
NOT_SETTINGS = ("log.", "runtime.", "data.root")


def print_exported_reference(path: str, out: str | None) -> None:
    """Writes a study's results beside it, or below `out`, and prints where."""
    study = Path(path).resolve()
    study = study.parent if study.is_file() else study
    target = study.with_name(f"{study.name}.toml") if out is None else Path(out) / f"{study.name}.toml"
    records = read_records([str(study)])
    all_series = [series for setting in make_settings(records.runs) for series in setting.series]
    finished = [series for series in all_series if series.finished]
    if not finished:
        raise BadInput(f"{path}: no cell of this study is finished")

    for problem in records.problems:
        print_line(f"passed over: {problem}")
    text = _text(records, finished, all_series)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(target) and not read_regular(target).startswith(HEADER.encode()):
            raise BadInput(f"{target} was not written by an export; choose another -o")
        write_atomically(target, text.encode())
    except OSError as error:
        raise BadInput(f"cannot write {target}: {error.strerror or error}") from None
    print_line(f"{path}: {len(finished)} of {len(all_series)} series in {target}")


def _text(records: Records, finished: Sequence[Series], all_series: Sequence[Series]) -> str:
    """Returns the file: a table of results, and one of accuracy by round."""
    common, run = _common(finished), finished[0].finished[0].run
    matches = [_match(series, all_series) for series in finished]
    names = [series.name for series in finished]
    rounds = max(record.run.rounds_done for series in finished for record in series.finished)
    step = next((step for step in STEPS if rounds <= MOST_ROUNDS * step), rounds)
    curve = [
        (f"round {t}", "accuracy", "%", 2, t) for t in dict.fromkeys([*range(step, rounds + 1, step), rounds])
    ]
    results = [(measure, measure, unit, digits, None) for measure, (unit, digits) in MEASURES.items()]
    lines = [
        f"{HEADER} --to reference`: mean and standard deviation over seeds.",
        f"# hpcfl {run.attributes.get('version_hpcfl')}, torch {run.attributes.get('version_torch')}, "
        f"{run.attributes.get('instructions')}; seeds {'; '.join(dict.fromkeys(map(_seeds, finished)))}",
        f"paper = {toml_value(f'hpcfl, study {records.study}')}",
    ]
    for title, caption, columns in (
        (
            "Results",
            "The best round, the one that validation selects, and the last one; of bytes the mean.",
            results,
        ),
        ("Accuracy by round", "Accuracy after a round, by the method's own inference.", curve),
    ):
        values = [[_pair(series, *column[1:]) for column in columns] for series in finished]
        kept = [i for i in range(len(columns)) if any(row[i] for row in values)]
        if not kept:
            continue
        lines += ["", "[[table]]", f'name = "{title}"', f'caption = "{caption}"']
        lines += [f"match = {toml_table(common)}", "column = ["]
        lines += [f"    {{ {_column(*columns[i])} }}," for i in kept]
        lines += ["]", "row = ["]
        for name, match, row in zip(names, matches, values, strict=True):
            numbers = ", ".join(f"[{', '.join(map(str, row[i]))}]" for i in kept)
            lines.append(
                f"    {{ name = {toml_value(name)}, match = {toml_table(match)}, values = [{numbers}] }},"
            )
        lines.append("]")
    return "\n".join(lines) + "\n"


def _column(name: str, measure: str, unit: str, decimals: int, round_: int | None) -> str:
    after = "" if round_ is None else f", round = {round_}"
    return f'name = "{name}", measure = "{measure}", unit = "{unit}", decimals = {decimals}{after}'


def _pair(series: Series, measure: Measure, unit: Unit, decimals: int, round_: int | None) -> list[float]:
    """Returns mean and deviation over finished seeds; nothing where the runs do not have it."""
    number = PublishedNumber(
        paper="-", table="-", row="-", column="-", value=0.0, measure=measure, unit=unit, round=round_,
        match={"method.name": series.method},
    )  # fmt: skip
    values = np.array([measured(record, number) for record in series.finished], dtype=np.float64)
    values = values[~np.isnan(values)] / SIZES[unit]
    if not len(values):
        return []
    pair = [values.mean(), values.std(ddof=1)] if len(values) > 1 else [values.mean()]
    return [round(float(value), decimals + EXTRA_DIGITS) for value in pair]


def _known(record: RunRecord) -> Settings:
    """Returns what a number can ask for of a run, as the report does."""
    return {**record.settings(), **record.values, BLOCK: record.block}


def _common(finished: Sequence[Series]) -> Settings:
    """Returns the settings that all series share and that are not the defaults."""
    default, known = settings(Config()), [_known(series.records[0]) for series in finished]
    return {
        key: value
        for key, value in known[0].items()
        if key not in (BLOCK, *SEED_KEYS, RANKS)
        and not key.startswith(NOT_SETTINGS)
        and _is_plain(value)
        and repr(default.get(key)) != repr(value)
        and all(repr(each.get(key)) == repr(value) for each in known)
    }


def _match(series: Series, all_series: Sequence[Series]) -> Settings:
    """Returns the settings that tell a series from the others: its cell's own ones, and more if need be."""
    record = series.records[0]
    known, others = _known(record), [_known(each.records[0]) for each in all_series if each is not series]
    own = {key: value for key, value in record.values.items() if key not in (*SEED_KEYS, RANKS)}
    match = {"method.name": record.method} | {key: value for key, value in own.items() if _is_plain(value)}
    match[ROUNDS] = known[ROUNDS]
    for key in (BLOCK, RANKS, *known):
        same = [each for each in others if fits(each, match)]
        if (
            same
            and _is_plain(known.get(key))
            and any(repr(each.get(key)) != repr(known[key]) for each in same)
        ):
            match[key] = known[key]
    return match


def _is_plain(value: Any) -> bool:
    """Returns whether a value can stand in a file."""
    plain = isinstance(value, str | int | float)
    return plain or (
        isinstance(value, list | tuple) and all(isinstance(each, str | int | float) for each in value)
    )


def _seeds(series: Series) -> str:
    return ", ".join(str(record.run.config.seed) for record in series.finished)
