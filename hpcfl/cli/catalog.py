"""The command that lists all names that hpcfl knows, or describes one of them: `hpcfl catalog`."""

from __future__ import annotations

import click


@click.command()
@click.argument("name", required=False)
@click.option("--combinations", is_flag=True, help="Which parts of methods go together, as a table.")
@click.option("--metrics", is_flag=True, help="What a log holds, as a table.")
def catalog(name: str | None, combinations: bool, metrics: bool) -> None:
    """List methods, models, groups and datasets with their papers, and what is shipped to run.

    With NAME: what a method, refinement, aggregation or distance is, and its options. NAME may be an import
    path of your own (package.module:Class).
    """
    if name is not None:
        from hpcfl.methods.describe import describe

        print_sections({title: [*rows] for title, rows in describe(name).items()})
        return
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
    from hpcfl.data.sources.registry import KNOWN_DATASETS, PUBLISHED_FORMS
    from hpcfl.methods.catalogue import CATALOGUE
    from hpcfl.methods.parts import PARTS
    from hpcfl.methods.plugins import registered
    from hpcfl.models.registry import ARCHITECTURES, GROUPS
    from hpcfl.share.lookup import CONFIGS, STUDIES, shipped
    from hpcfl.utils.formatting import console

    sections: dict[str, list[tuple[str, ...]]] = {
        "method.name": [(name, entry.about, entry.paper) for name, entry in CATALOGUE.items()],
        **{
            f"method.{slot}": [(name, part.about, part.paper) for name, part in parts.items()]
            for slot, parts in PARTS.items()
        },
        "methods and parts of installed packages": [
            (name, point.value) for name, point in registered().items()
        ],
        "models.group": [(name, ", ".join(group.members), group.paper) for name, group in GROUPS.items()],
        "models.list": [(name, net.about, net.paper) for name, net in ARCHITECTURES.items()],
        "data.name": [
            ("spiral", "six spiral arms in the plane, built in", "ProtoNorm, Fig. 1 and supplement A"),
            ("synthetic", "images of any shape and number of classes, built in", "hpcfl"),
            *((name, dataset.about, dataset.paper) for name, dataset in KNOWN_DATASETS.items()),
            *(
                (name, f"{original} {options}", "papers' code")
                for name, (original, options) in PUBLISHED_FORMS.items()
            ),
        ],
        "hpcfl train NAME": shipped(CONFIGS),
        "hpcfl study run NAME": shipped(STUDIES),
    }
    print_sections(sections)
    screen = console()
    screen.print("hpcfl catalog NAME shows the options of a method or of one of its parts.")
    screen.print(f"The files that train and study run take by name are in {CONFIGS}", soft_wrap=True)


def print_sections(sections: dict[str, list[tuple[str, ...]]]) -> None:
    """Prints tables under their titles; an empty one is left out."""
    from rich.table import Table
    from rich.text import Text

    from hpcfl.utils.formatting import console

    screen = console()
    for title, rows in sections.items():
        if not rows:
            continue
        table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        for row in rows:
            table.add_row(*map(Text, row))
        screen.print(Text(title, style="italic"))
        screen.print(table)
        screen.print()
