"""The command that lists all names that hpcfl knows: `hpcfl catalog`."""

from __future__ import annotations

import click


@click.command()
@click.option("--combinations", is_flag=True, help="Which parts of methods go together, as a table.")
@click.option("--metrics", is_flag=True, help="What a log holds, as a table.")
def catalog(combinations: bool, metrics: bool) -> None:
    """List methods, models, groups and datasets with their papers, and what is shipped to run."""
    if combinations:
        from hpcfl.methods.combinations import table

        click.echo(table())
        return
    if metrics:
        from hpcfl.log.page import metrics_tables

        click.echo(metrics_tables())
        return
    print_catalogue()


def print_catalogue() -> None:
    """Prints every name that a configuration may use, with its paper, and the names of shipped files."""
    from rich.table import Table

    from hpcfl.data.sources.registry import KNOWN_DATASETS
    from hpcfl.methods.catalogue import CATALOGUE
    from hpcfl.models.registry import ARCHITECTURES, GROUPS
    from hpcfl.share.lookup import CONFIGS, STUDIES, shipped
    from hpcfl.utils.formatting import console

    screen = console()
    sections: dict[str, list[tuple[str, ...]]] = {
        "method.name": [(name, entry.about, entry.paper) for name, entry in CATALOGUE.items()],
        "models.group": [(name, ", ".join(group.members), group.paper) for name, group in GROUPS.items()],
        "models.list": [(name, net.about, net.paper) for name, net in ARCHITECTURES.items()],
        "data.name": [
            ("spiral", "six spiral arms in the plane, built in", "ProtoNorm, Fig. 1 and supplement A"),
            *((name, dataset.about, dataset.paper) for name, dataset in KNOWN_DATASETS.items()),
        ],
        "hpcfl train NAME": shipped(CONFIGS),
        "hpcfl study run NAME": shipped(STUDIES),
    }
    for key, rows in sections.items():
        table = Table(box=None, padding=(0, 2, 0, 0), title=key, title_justify="left", show_header=False)
        for row in rows:
            table.add_row(*row)
        screen.print(table)
        screen.print()
    screen.print(f"The files that train and study run take by name are in {CONFIGS}", soft_wrap=True)
