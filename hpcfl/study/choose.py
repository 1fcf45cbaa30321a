"""`hpcfl study choose`: of each method the options that validation chooses, as a study with more seeds."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hpcfl.config.identity import differing
from hpcfl.config.schema import Config
from hpcfl.errors import BadInput
from hpcfl.study.cells import Cell, seed_group
from hpcfl.study.run_store import CellProgress, RunStore
from hpcfl.study.study_file import Study, read_study
from hpcfl.utils.files import write_atomically
from hpcfl.utils.formatting import format_percent, plural, print_line
from hpcfl.utils.hdf5_file import read_regular
from hpcfl.utils.toml_text import toml_table, toml_value

HEADER = "# Chosen by `hpcfl study choose`"
METHOD = "method."


@dataclass(frozen=True)
class Candidate:
    """Cells of a method that differ in seeds alone, and the best accuracy on validation samples."""

    config: Config
    accuracy: float
    """Mean over seeds; NaN: a seed diverged, failed or is bad, so that it is not chosen."""

    @property
    def settings(self) -> dict[str, Any]:
        """Returns the keys that are not at their defaults, without the seed."""
        changed = differing([Config(), self.config])
        return {key: value for key, (_, value) in changed.items() if key != "seed" and value is not None}


def print_choice(
    path: str, scale: str, settings: Sequence[str], out: str | None, seeds: Sequence[int], target: str
) -> None:
    """Writes a study of the chosen candidates, and prints all candidates with their accuracies."""
    study = read_study(path, scale, settings)
    store = RunStore(study.directory(out))
    progress = {cell.name: store.progress(cell) for cell in study.cells}
    missing = [name for name, each in progress.items() if not each.is_over]
    if missing:
        names = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        raise BadInput(f"{plural(len(missing), 'cell')} of {study.title} not finished: {names}")
    chosen = []
    for method, candidates in _groups(study, progress):
        finite = [each for each in candidates if not np.isnan(each.accuracy)]
        for each in candidates:
            options = {k: v for k, v in each.settings.items() if k.startswith(METHOD) and k != "method.name"}
            print_line(f"{method} {toml_table(options)}: {format_percent(each.accuracy)}")
        if finite:
            chosen.append(max(finite, key=lambda each: each.accuracy))  # of equals the first
        else:
            print_line(f"{method}: left out, no candidate has an accuracy on validation samples")
    if not chosen:
        raise BadInput("nothing to choose from: give the study a partition.validation_fraction, as 0.2")
    _write(Path(target), _text(study, chosen, seeds))
    print_line(f"{target}: {plural(len(chosen), 'method')} with {plural(len(seeds), 'seed')} each")


def _groups(study: Study, progress: Mapping[str, CellProgress]) -> list[tuple[str, list[Candidate]]]:
    """Returns the candidates of each method and setting, in the order of the study."""
    by_series: dict[tuple[str, str], list[Cell]] = {}
    for cell in study.cells:
        by_series.setdefault(seed_group(cell.block, cell.values), []).append(cell)
    groups: dict[str, list[Candidate]] = {}
    names: dict[str, str] = {}
    for cells in by_series.values():
        configs = [cell.config for cell in cells if cell.config is not None]
        if not configs:
            continue
        each = [progress[cell.name] for cell in cells]
        accuracies = [p.summary.validation if p.state == "finished" else np.nan for p in each]
        candidate = Candidate(configs[0], float(np.mean(accuracies)))
        shared = {
            key: value
            for key, value in candidate.settings.items()
            if not key.startswith(METHOD) or key == "method.name"
        }
        groups.setdefault(repr(shared), []).append(candidate)
        names[repr(shared)] = configs[0].method.name
    return [(names[key], candidates) for key, candidates in groups.items()]


def _text(study: Study, chosen: Sequence[Candidate], seeds: Sequence[int]) -> str:
    """Returns the study file."""
    own = [each.settings for each in chosen]
    common = {k: v for k, v in own[0].items() if all(k in each and each[k] == v for each in own)}
    own = [{k: v for k, v in each.items() if k not in common} for each in own]
    name_first = [{k: each[k] for k in sorted(each, key=lambda k: k != "method.name")} for each in own]
    lines = [
        f"{HEADER} from the study {study.title}: of each method the options with the best accuracy on",
        "# validation samples.",
        f"about = {toml_value(f'{study.title}, the options that validation chose')}",
        "",
        "[set]",
        *(f"{key} = {toml_value(value)}" for key, value in common.items()),
        "",
        "[[block]]",
        'name = "chosen"',
        "cells = [",
        *(f"    {toml_table(each)}," for each in name_first),
        "]",
        "",
        "[block.grid]",
        f"seed = {toml_value(list(seeds))}",
    ]
    return "\n".join(lines) + "\n"


def _write(target: Path, text: str) -> None:
    """Writes the file; one that is not of this command is never overwritten."""
    if target.suffix != ".toml":
        raise BadInput(f"-o {target}: must end in .toml")
    try:
        if os.path.lexists(target) and not read_regular(target).startswith(HEADER.encode()):
            raise BadInput(f"{target} was not written by hpcfl study choose; choose another -o")
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, text.encode())
    except OSError as error:
        raise BadInput(f"cannot write {target}: {error.strerror or error}") from None
