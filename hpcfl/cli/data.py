"""The commands on datasets: `hpcfl data`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Literal

import click


@click.group()
def data() -> None:
    """Prepare datasets once, where there is internet, and look at how they are dealt."""


ROOT = click.option(
    "--root", metavar="DIR", help="Where prepared datasets lie. [default: $HPCFL_DATA, else data]"
)


@data.command("list")
@ROOT
def list_(root: str | None) -> None:
    """List what can be prepared, and what is."""
    from rich.table import Table

    from hpcfl.config.schema import DataConfig
    from hpcfl.data.prepared_file import is_prepared, prepared_names, prepared_path
    from hpcfl.data.sources.registry import KNOWN_DATASETS
    from hpcfl.utils.formatting import console

    directory = Path(root or DataConfig().root)
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    names = [*KNOWN_DATASETS, *(name for name in prepared_names(directory) if name not in KNOWN_DATASETS)]
    for name in names:
        path = prepared_path(directory, name)
        prepared = _describe_prepared(path) if is_prepared(path) else ("", "not prepared")
        about = KNOWN_DATASETS[name].about if name in KNOWN_DATASETS else prepared[0]
        table.add_row(name, about, prepared[1])
    console().print(f"in {directory}:")
    console().print(table)


def _describe_prepared(path: Path) -> tuple[str, str]:
    """Returns where a prepared file comes from, and what it holds, or why it cannot be read."""
    from hpcfl.data.prepare import describe
    from hpcfl.data.prepared_file import open_prepared
    from hpcfl.errors import BadInput

    try:
        dataset = open_prepared(path)
        origin = f"from {dataset.original}" if dataset.original else "your own"
        return origin, f"{describe(dataset)}; {dataset.provenance['prepared']}"
    except BadInput as problem:
        return "your own", str(problem)


@data.command()
@click.argument("name")
@ROOT
@click.option("--source", metavar="PATH", help="Files fetched before, or your own data; then no download.")
@click.option("--size", type=click.IntRange(1, 4096), help="Bring all images to SIZE × SIZE.")
@click.option(
    "--resize",
    type=click.Choice(["crop", "squash"]),
    default="crop",
    help="How photographs become squares: cut, or squashed as in the papers' code.",
)
@click.option(
    "--part",
    type=click.Choice(["all", "train"]),
    default="all",
    help="tinyimagenet: all labelled images, or those of train/ alone, as in the papers' code.",
)
@click.option(
    "--as", "new_name", metavar="NAME", help="The name of what is made, if not that of the dataset."
)
@click.option(
    "--layout",
    type=click.Choice(["nhwc", "nchw"]),
    help="Order of the axes of an array with four. [default: nhwc for uint8 images, else nchw]",
)
@click.option("--label", metavar="COLUMN", help="Column of the labels in a .csv.")
@click.option("--allow-pickle", is_flag=True, help="Read the pickled files of htfllib:DIR.")
@click.option("--fresh", is_flag=True, help="Make it again if it is there.")
def prepare(
    name: str,
    source: str | None,
    root: str | None,
    size: int | None,
    resize: Literal["crop", "squash"],
    part: Literal["all", "train"],
    new_name: str | None,
    layout: Literal["nhwc", "nchw"] | None,
    label: str | None,
    allow_pickle: bool,
    fresh: bool,
) -> None:
    """Make DIR/NAME.h5 from a known dataset or from your own data.

    NAME is one that `hpcfl data list` shows, or a new one for what --source gives: an .npz (x: uint8 images
    or any other numbers, y: labels, perhaps writer), a .csv with a column of labels, a folder with one
    directory of images per class, a dataset of torchvision, torchvision:CLASS[:DIRECTORY], or of HtFLlib,
    htfllib:DIR.
    """
    from hpcfl.config.schema import DataConfig
    from hpcfl.data.prepare import Choices, prepare

    # a batch system's SIGTERM becomes an exit, so that temporary files are removed
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    choices = Choices(size, resize, part, layout, label, allow_pickle)
    for line in prepare(name, source, root or DataConfig().root, fresh, new_name, choices):
        print(line, flush=True)


@data.command("show")
@click.argument("name")
@ROOT
@click.option("--config", metavar="CONFIG", help="Whose partition is shown; without, the quick start's.")
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Replace one key; repeatable.")
@click.option(
    "--out",
    metavar="FILE",
    multiple=True,
    help="Picture (.png, .pdf, .svg), counts (.csv) or the split itself (.npz); repeatable. "
    "[default: NAME-PARTITION.png]",
)
def show_data(
    name: str, root: str | None, config: str | None, settings: tuple[str, ...], out: tuple[str, ...]
) -> None:
    """Show which client has how many samples of which class."""
    from hpcfl.plan.partition import print_partition

    print_partition(name, root, config, settings, out)
