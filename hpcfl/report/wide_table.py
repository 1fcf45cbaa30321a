"""A table whose columns go on below if the terminal is too narrow, so that no number is cut."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.cells import cell_len
from rich.console import JustifyMethod
from rich.table import Table

from hpcfl.utils.formatting import console

GAP = 2
"""Spaces between two columns."""


def print_wide(
    headings: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int, left: Collection[str] = ()
) -> None:
    """Prints a table; its first columns are text that may be folded, the others are never cut.

    Where not all columns fit, those left are printed below, again with the text columns. Columns are aligned
    to the right but for those in `left`.
    """
    screen = console()
    widths = [
        max(cell_len(row[column]) for row in [headings, *rows]) + GAP for column in range(len(headings))
    ]
    layouts = []
    for share in (2, 3):
        texts = fold_widths(widths[:text_columns], screen.width // share)
        layouts.append((texts, split_columns(widths[text_columns:], screen.width - sum(texts))))
    texts, blocks = min(layouts, key=lambda layout: len(layout[1]))
    for number, columns in enumerate(blocks):
        if number:
            screen.print()
        table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False)
        for heading, width in zip(headings, texts, strict=False):
            table.add_column(heading, overflow="fold", max_width=width - GAP)
        shown = [text_columns + column for column in columns]
        for column in shown:
            justify: JustifyMethod = "left" if headings[column] in left else "right"
            table.add_column(headings[column], justify=justify, no_wrap=True)
        for row in rows:
            table.add_row(*(row[column] for column in [*range(text_columns), *shown]))
        screen.print(table)


def fold_widths(widths: Sequence[int], available: int) -> list[int]:
    """Returns widths that fit: the widest text columns are narrowed."""
    folded = list(widths)
    while sum(folded) > available and max(folded) > 8:
        folded[folded.index(max(folded))] -= 1
    return folded


def split_columns(widths: Sequence[int], available: int) -> list[list[int]]:
    """Returns the numbers of the columns that stand side by side, from above to below."""
    blocks: list[list[int]] = [[]]
    for column, width in enumerate(widths):
        if blocks[-1] and sum(widths[other] for other in blocks[-1]) + width - GAP > available:
            blocks.append([])
        blocks[-1].append(column)
    return blocks
