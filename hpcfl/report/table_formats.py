"""A table as Markdown, LaTeX (booktabs) or CSV; names from files or users are harmless in each."""

from __future__ import annotations

import csv
import html
import io
import math
import re

from hpcfl.report.tables import Cell, Table

GREEK = ("alpha", "beta", "gamma", "delta", "lambda", "mu", "sigma")
LATEX_SPECIALS = {
    "\\": r"\textbackslash{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "`": r"\`{}",
    "±": r"$\pm$",
    "−": r"$-$",
    "–": "--",
    "…": r"\dots{}",
    "×": r"$\times$",
    "÷": r"$\div$",
    **{letter: f"$\\{name}$" for letter, name in zip("αβγδλμσ", GREEK, strict=True)},
    "Δ": r"$\Delta$",
}
MARKDOWN_SPECIALS = re.compile(r"([\\`*_\[\]|~#])")
FORMULA = re.compile(r"^[=+\-@]")
"""Beginnings of a text that a spreadsheet would take for a formula."""


def one_line(text: str) -> str:
    """Returns a text without line breaks and other control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text).strip()


def escape_latex(text: str) -> str:
    """Returns a text that LaTeX prints as it is; letters that it may lack become `?`."""
    letters = []
    for letter in one_line(text):
        if letter in LATEX_SPECIALS:
            letters.append(LATEX_SPECIALS[letter])
        else:
            letters.append(letter if letter.isascii() or "À" <= letter <= "ž" else "?")
    return "".join(letters)


def escape_markdown(text: str) -> str:
    """Returns a text that Markdown shows as it is, in a cell of a table too."""
    return MARKDOWN_SPECIALS.sub(r"\\\1", html.escape(one_line(text), quote=False))


def to_markdown(table: Table) -> str:
    """Returns a table in GitHub's Markdown."""

    def cell(each: Cell) -> str:
        text = escape_markdown(each.text)
        return {1: f"**{text}**", 2: f"<u>{text}</u>"}.get(each.place, text)

    lines = [
        [escape_markdown(name) or " " for name in table.columns],
        ["---:" if number else "---" for number in table.numbers],
        *([cell(each) for each in row] for row in table.rows),
    ]
    notes = "".join(f"\n{escape_markdown(note)}\n" for note in table.notes)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + notes


def to_latex(table: Table) -> str:
    """Returns a table as a tabular with the rules of booktabs."""

    def cell(each: Cell) -> str:
        text = escape_latex(each.text)
        return {1: rf"\textbf{{{text}}}", 2: rf"\underline{{{text}}}"}.get(each.place, text)

    def line(cells: list[str]) -> str:
        # an opening bracket after \\ or a rule would be taken for an option
        return f"  {{}}{' & '.join(cells)} \\\\\n"

    kinds = "".join("r" if number else "l" for number in table.numbers)
    notes = "".join(f"% {one_line(note)}\n" for note in (*table.notes, r"\usepackage{booktabs}"))
    return (
        f"{notes}\\begin{{tabular}}{{{kinds}}}\n  \\toprule\n"
        + line([escape_latex(name) for name in table.columns])
        + "  \\midrule\n"
        + "".join(line([cell(each) for each in row]) for row in table.rows)
        + "  \\bottomrule\n\\end{tabular}\n"
    )


def to_csv(table: Table) -> str:
    """Returns a table as CSV: numbers with all digits, mean and standard deviation apart."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    headings: list[str] = []
    for name, number in zip(table.columns, table.numbers, strict=True):
        headings += [f"{plain(name)} mean", f"{plain(name)} std"] if number else [plain(name)]
    writer.writerow(headings)
    for row in table.rows:
        values: list[str] = []
        for cell, number in zip(row, table.numbers, strict=True):
            values += [_digits(cell.mean), _digits(cell.std)] if number else [plain(cell.text)]
        writer.writerow(values)
    return file.getvalue()


def plain(text: str) -> str:
    """Returns a text for a cell of a spreadsheet, which must not take it for a formula."""
    text = one_line(text)
    return f"'{text}" if FORMULA.match(text) else text


def _digits(number: float) -> str:
    return "nan" if math.isnan(number) else repr(float(number))


FORMATS = {"md": to_markdown, "tex": to_latex, "csv": to_csv}
"""Writers of a table by the suffix of its file."""
