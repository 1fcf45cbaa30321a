"""`hpcfl report`: figures, tables and a page about runs or a study."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from hpcfl.export.replace_files import replace_files
from hpcfl.report.claims import claims_table
from hpcfl.report.figures.catalogue import draw_all
from hpcfl.report.figures.drawing import FigureData
from hpcfl.report.figures.files import write_figure
from hpcfl.report.figures.style import report_style
from hpcfl.report.figures.values import figure_values
from hpcfl.report.page import PageFigure, headline, inline_svg, page_runs, render_page, script_data
from hpcfl.report.records import Records, RunRecord, read_records
from hpcfl.report.reference import paper_table, reference_table
from hpcfl.report.reference_file import Reference, read_reference, reference_of_study
from hpcfl.report.series import Setting, make_settings
from hpcfl.report.table_formats import FORMATS, one_line
from hpcfl.report.tables import Table, make_tables
from hpcfl.report.verdict import Verdict, make_verdict
from hpcfl.report.verdict_text import print_verdict
from hpcfl.utils.formatting import plural, print_line


def print_report(
    paths: Sequence[str], out: str, title: str | None, target: float | None, reference: str | None
) -> None:
    """Writes a report to a directory, and prints what was passed over, the verdict, and where the page is."""
    published = read_reference(Path(reference)) if reference is not None else None
    records = read_records(paths)
    for problem in records.problems:
        print_line(f"passed over: {problem}")
    settings = make_settings(records.runs)
    verdict = make_verdict([series for setting in settings for series in setting.series])
    report = Report(
        records, settings, verdict, one_line(title or records.study or "Report"), Path(out), target
    )
    report.tables[:0] = _published_tables(published, records, settings)
    files = replace_files(Path(out), "report", report.title, report.write)
    print_verdict(verdict)
    figures = sum(name.endswith(".svg") for name in files)
    made = f"{plural(figures, 'figure')} of {plural(len(records.runs), 'run')}"
    print_line(f"{Path(out) / 'index.html'}: {made}; figures, tables and configurations beside it")


def _published_tables(
    reference: Reference | None, records: Records, settings: Sequence[Setting]
) -> Iterator[Table]:
    """Yields the papers' tables that runs are in, of a file or of the study, and the single numbers."""
    reference = reference_of_study(records.study_name) if reference is None else reference
    if reference.claims:
        yield claims_table(reference.claims, settings, records.scale == "small")
    made = [paper_table(each, settings, records.scale == "small") for each in reference.tables]
    yield from (table for table in made if table is not None)
    if reference.numbers:
        yield reference_table(reference.numbers, settings)


class Report:
    """The files of a report."""

    def __init__(
        self,
        records: Records,
        settings: Sequence[Setting],
        verdict: Verdict,
        title: str,
        out: Path,
        target: float | None = None,
    ) -> None:
        """`out` is where the files will lie."""
        self.records, self.settings, self.verdict = records, settings, verdict
        self.title, self.out, self.target = title, out.absolute(), target
        self.tables = make_tables(settings, verdict)

    def write(self, directory: Path) -> Iterator[str]:
        """Writes all files into an empty directory and yields their names."""
        for folder in ("figures", "tables", "configs"):
            (directory / folder).mkdir()
        for table in self.tables:
            for suffix, to_text in FORMATS.items():
                name = f"tables/{table.name}.{suffix}"
                (directory / name).write_text(to_text(table), encoding="utf-8")
                yield name
        configs = config_names(self.records.runs)
        for record, name in zip(self.records.runs, configs, strict=True):
            (directory / name).write_text(str(record.run.attributes["config"]), encoding="utf-8")
            yield name
        data = FigureData(self.settings, self.verdict, self.target)
        labels = {style["gid"]: label for label, style in data.styles.items()}
        figures, missing = [], []
        with report_style():
            for entry, drawing in draw_all(data):
                if isinstance(drawing, str):
                    missing.append((entry.title, drawing))
                    continue
                for name in write_figure(directory / "figures", entry.name, drawing):
                    yield f"figures/{name}"
                text = (directory / "figures" / f"{entry.name}.svg").read_text("utf-8")
                svg = inline_svg(text, entry.name, f"{entry.title}. {drawing.sentence}")
                values = script_data(figure_values(drawing.figure, labels))
                figures.append(PageFigure(entry.name, entry.title, drawing.sentence, svg, values))
        page = render_page(
            title=self.title,
            study=self.records.study,
            series=sum(len(setting.series) for setting in self.settings),
            verdict=self.verdict,
            headline=headline(self.verdict),
            tables=self.tables,
            figures=figures,
            toggles=[(label, style["gid"], style["color"]) for label, style in data.styles.items()],
            runs=page_runs(self.records.runs, configs, self.out),
            missing=missing,
            problems=self.records.problems,
        )
        (directory / "index.html").write_text(page, encoding="utf-8")
        yield "index.html"


def config_names(records: Sequence[RunRecord]) -> list[str]:
    """Returns a file name for the configuration of each run, of letters, digits and dashes alone."""
    names: dict[str, None] = {}
    for record in records:
        stem = re.sub(r"[^A-Za-z0-9]+", "-", record.name).strip("-")[:80] or "run"
        name, number = stem, 1
        while f"configs/{name}.toml" in names:
            number += 1
            name = f"{stem}-{number}"
        names[f"configs/{name}.toml"] = None
    return list(names)
