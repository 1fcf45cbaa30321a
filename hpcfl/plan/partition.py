"""`hpcfl data show`: a partition as a table, picture, CSV file or split file."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

import numpy as np
from rich.table import Table

from hpcfl.config.loading import load_config
from hpcfl.data.prepare import describe
from hpcfl.data.split_file import write_split
from hpcfl.errors import BadInput
from hpcfl.federation.run_plan import RunPlan, plan_run
from hpcfl.utils.files import move_into_place, temporary_path
from hpcfl.utils.formatting import console

PICTURES = (".png", ".pdf", ".svg")
LARGEST_CLASSES = 3
"""Classes listed for each client where the table has no room for all of them."""


def print_partition(
    name: str, root: str | None, config: str | None, settings: Sequence[str], out: Sequence[str]
) -> None:
    """Prints how a dataset is split over clients, and writes it as picture, counts or split."""
    overrides = [f"data.name={json.dumps(name)}", *([f"data.root={json.dumps(root)}"] if root else [])]
    plan = plan_run(load_config(config, [*settings, *overrides]))
    for path in map(Path, out or [f"{name}-{plan.config.partition.name}.png"]):
        _write(path, plan)
        print(f"written: {path}")
    if plan.data.file is not None:
        console().print(f"{name}: {describe(plan.data)}", soft_wrap=True)
    console().print(_table(plan))
    if plan.unowned:
        print(f"classes that belong to no client: {', '.join(map(str, plan.unowned))}")


def _write(path: Path, plan: RunPlan) -> None:
    """Writes the partition in the format that the suffix names."""
    if not path.parent.is_dir():
        raise BadInput(f"cannot write {path}: {path.parent} is not a directory")
    try:
        if path.suffix == ".csv":
            with temporary_path(path) as part:
                with open(part, "w", newline="", encoding="utf-8") as file:
                    rows = csv.writer(file)
                    rows.writerow(["client", *plan.data.class_names])
                    rows.writerows([i, *counts] for i, counts in enumerate(plan.class_counts_MK.tolist()))
                move_into_place(part, path)
        elif path.suffix == ".npz":
            split = [client.split for client in plan.clients]
            write_split(path, [astuple(part) for part in split])
        elif path.suffix in PICTURES:
            from hpcfl.plan.heatmap import draw_heatmap

            draw_heatmap(path, plan)
        else:
            raise BadInput(f"--out {path}: must end in {', '.join(PICTURES)}, .csv or .npz")
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}") from None


def _table(plan: RunPlan) -> Table:
    """Returns training samples by client and class, or each client's largest classes if all do not fit."""
    names, counts_MK = plan.data.class_names, plan.class_counts_MK
    width = (42 if plan.has_validation else 30) + sum(
        max(len(name), len(str(largest))) + 2 for name, largest in zip(names, counts_MK.max(0), strict=True)
    )
    all_fit = width <= console().width
    table = Table(box=None, padding=(0, 2, 0, 0))
    parts = ("train", *(("validation",) if plan.has_validation else ()), "test")
    for heading in ("client", *parts, *(names if all_fit else ("classes",))):
        table.add_column(heading, justify="right")
    if not all_fit:
        table.add_column("most of (all in --out FILE.csv)")
    for client, counts_K in zip(plan.clients, counts_MK, strict=True):
        cells = [str(client.id), *(str(len(getattr(client.split, part))) for part in parts)]
        if all_fit:
            cells += [str(count or "·") for count in counts_K]
        else:
            order = np.argsort(-counts_K, kind="stable")[:LARGEST_CLASSES]
            cells += [
                str((counts_K > 0).sum()),
                ", ".join(f"{names[k]} ({counts_K[k]})" for k in order if counts_K[k]),
            ]
        table.add_row(*cells)
    return table
