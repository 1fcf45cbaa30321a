"""`hpcfl catalog`: every name that a configuration may use, with its paper."""

from __future__ import annotations

from rich.table import Table

from hpcfl.data.sources.registry import KNOWN_DATASETS
from hpcfl.methods.catalogue import CATALOGUE
from hpcfl.models.registry import ARCHITECTURES, GROUPS
from hpcfl.utils.formatting import console


def print_catalogue() -> None:
    """Prints every name that a configuration may use, with its paper."""
    screen = console()
    sections = {
        "method.name": [(name, entry.about, entry.paper) for name, entry in CATALOGUE.items()],
        "models.group": [(name, ", ".join(group.members), group.paper) for name, group in GROUPS.items()],
        "models.list": [(name, net.about, net.paper) for name, net in ARCHITECTURES.items()],
        "data.name": [
            ("spiral", "six spiral arms in the plane, built in", "ProtoNorm, Fig. 1 and supplement A"),
            *((name, known.about, known.paper) for name, known in KNOWN_DATASETS.items()),
        ],
    }
    for key, rows in sections.items():
        table = Table(box=None, padding=(0, 2, 0, 0), title=key, title_justify="left", show_header=False)
        for row in rows:
            table.add_row(*row)
        screen.print(table)
        screen.print()
