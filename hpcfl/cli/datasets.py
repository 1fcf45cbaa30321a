"""The `hpcfl data` commands: what is prepared, preparing it, and how it is dealt to clients."""

from __future__ import annotations

import csv
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.table import Table

from hpcfl.config.loading import load_config
from hpcfl.config.schema import DataConfig
from hpcfl.data.prepare import describe, prepare
from hpcfl.data.prepared_file import is_prepared, open_prepared, prepared_names, prepared_path
from hpcfl.data.sources.registry import KNOWN_DATASETS
from hpcfl.data.split_file import write_split
from hpcfl.errors import BadInput
from hpcfl.federation.run_plan import RunPlan, plan_run
from hpcfl.utils.files import move_into_place, part_file
from hpcfl.utils.formatting import console

PICTURES = (".png", ".pdf", ".svg")
MOST = 3
"""Classes of a client that are named in the table where there is no room for all."""


def print_prepared(name: str, source: str | None, root: str | None, size: int | None, fresh: bool) -> None:
    """Prepares and says what was made; a batch system's SIGTERM leaves nothing half-done behind."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    for line in prepare(name, source, root or DataConfig().root, size, fresh):
        print(line, flush=True)


def print_list(root: str | None) -> None:
    """Prints every known dataset, and those that are prepared."""
    directory = Path(root or DataConfig().root)
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    names = [*KNOWN_DATASETS, *(name for name in prepared_names(directory) if name not in KNOWN_DATASETS)]
    for name in names:
        path = prepared_path(directory, name)
        about = KNOWN_DATASETS[name].about if name in KNOWN_DATASETS else "your own"
        table.add_row(name, about, _state(path) if is_prepared(path) else "not prepared")
    console().print(f"in {directory}:")
    console().print(table)


def _state(path: Path) -> str:
    try:
        data = open_prepared(path)
        return f"{describe(data)}; {data.provenance['prepared']}"
    except BadInput as problem:
        return str(problem)


def print_partition(
    name: str, root: str | None, config: str | None, settings: Sequence[str], out: Sequence[str]
) -> None:
    """Prints how a dataset is dealt to clients, and writes it as picture, counts or split."""
    given = [f"data.name={json.dumps(name)}", *([f"data.root={json.dumps(root)}"] if root else [])]
    plan = plan_run(load_config(config, [*settings, *given]))
    for path in map(Path, out or [f"{name}-{plan.config.partition.name}.png"]):
        _write(path, plan)
        print(f"written: {path}")
    console().print(_table(plan))
    if plan.unowned:
        print(f"classes that belong to no client: {', '.join(map(str, plan.unowned))}")


def _write(path: Path, plan: RunPlan) -> None:
    if not path.parent.is_dir():
        raise BadInput(f"cannot write {path}: {path.parent} is not a directory")
    try:
        if path.suffix == ".csv":
            with part_file(path) as part:
                with open(part, "w", newline="", encoding="utf-8") as file:
                    rows = csv.writer(file)
                    rows.writerow(["client", *plan.data.names])
                    rows.writerows([i, *counts] for i, counts in enumerate(plan.class_counts_MK.tolist()))
                move_into_place(part, path)
        elif path.suffix == ".npz":
            split = [client.split for client in plan.clients]
            write_split(path, [(part.train, part.test, part.unlabelled) for part in split])
        elif path.suffix in PICTURES:
            from hpcfl.plan.heatmap import draw_heatmap

            draw_heatmap(path, plan)
        else:
            raise BadInput(f"--out {path}: must end in {', '.join(PICTURES)}, .csv or .npz")
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}") from None


def _table(plan: RunPlan) -> Table:
    """Returns training samples by client and class, or where classes are many each client's largest."""
    names, counts_MK = plan.data.names, plan.class_counts_MK
    width = 30 + sum(
        max(len(name), len(str(most))) + 2 for name, most in zip(names, counts_MK.max(0), strict=True)
    )
    full = width <= console().width
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("client", "train", "test", *(names if full else ("classes",))):
        table.add_column(heading, justify="right")
    if not full:
        table.add_column("most of (all in --out FILE.csv)")
    for client, counts_K in zip(plan.clients, counts_MK, strict=True):
        cells = [str(client.id), str(len(client.train)), str(len(client.test))]
        if full:
            cells += [str(count or "·") for count in counts_K]
        else:
            order = np.argsort(-counts_K, kind="stable")[:MOST]
            cells += [
                str((counts_K > 0).sum()),
                ", ".join(f"{names[k]} ({counts_K[k]})" for k in order if counts_K[k]),
            ]
        table.add_row(*cells)
    return table
