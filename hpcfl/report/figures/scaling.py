"""Scalability: accuracy, seconds, bytes and efficiency against clients, participation and ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hpcfl.log.summary import Summary
from hpcfl.report.figures.drawing import Drawing, FigureData, NoData, shown
from hpcfl.report.figures.style import add_legend, label_text, new_figure, whole_numbers
from hpcfl.report.records import given_settings
from hpcfl.report.series import Series
from hpcfl.report.table_formats import one_line

PARTICIPATION = "federation.participation"
MEASURES: dict[str, Callable[[Summary], float]] = {
    "accuracy in %": lambda each: 100 * each.accuracy,
    "seconds per round": lambda each: each.seconds,
    "kB per round": lambda each: (each.bytes_up + each.bytes_down) / 1e3,
    "efficiency": lambda each: each.efficiency,
}
EFFICIENCY = " Efficiency is the share of the cores' time in which clients train."


@dataclass(frozen=True)
class Line:
    """Series that differ in one key alone, with the values of that key."""

    label: str
    rest: dict[str, str]
    """All their other settings but the method's."""
    x: tuple[float, ...]
    series: tuple[Series, ...]


def by_clients(data: FigureData) -> Drawing:
    sentence = f"What more clients cost and give, all else equal.{EFFICIENCY}"
    return _draw(data, "federation.clients", "clients", sentence)


def by_participation(data: FigureData) -> Drawing:
    sentence = f"What it costs and gives if more clients take part in a round, all else equal.{EFFICIENCY}"
    return _draw(data, PARTICIPATION, "clients per round", sentence)


def strong_scaling(data: FigureData) -> Drawing:
    """Seconds of a round and speed-up against workers, for the same work."""
    lines, words = _most_lines(_lines(data, "ranks"))
    if not lines:
        raise NoData("no runs differ in the number of ranks alone")
    sentence = "The same work on more workers (strong scaling)."
    return _ranks(data, lines, "speed-up", sentence, words)


def weak_scaling(data: FigureData) -> Drawing:
    """Seconds of a round and efficiency against workers, with as many clients in a round for each worker."""
    lines, words = _most_lines(_lines(data, "ranks", with_participation=True))
    if not lines:
        raise NoData("no runs have other ranks and as many clients in a round for each worker")
    sentence = "The same work for each worker, on more workers (weak scaling)."
    return _ranks(data, lines, "efficiency", sentence, words)


def _ranks(data: FigureData, lines: Sequence[Line], gain: str, sentence: str, words: str) -> Drawing:
    """Returns seconds of a round, and the speed-up or efficiency, with their ideal lines."""
    figure, axes = new_figure(2, columns=2)
    rows: list[tuple[object, ...]] = []
    cores: set[str] = set()
    is_weak = gain == "efficiency"
    for line in lines:
        workers = np.maximum(1, np.array(line.x) - 1)  # rank 0 is the server
        seconds = np.array([np.mean([r.summary.seconds for r in shown(series)]) for series in line.series])
        gains = seconds[0] / seconds * (1 if is_weak else workers[0])
        ideal = seconds[0] * (np.ones(len(workers)) if is_weak else workers[0] / workers)
        style = data.styles[line.label]
        for panel, values in zip(axes, (seconds, gains), strict=True):
            panel.plot(workers, values, label=label_text(line.label), **style)
        axes[0].plot(workers, ideal, color=style["color"], linewidth=1, linestyle=":", gid=style["gid"])
        rows += [(line.label, *map(float, row)) for row in zip(workers, seconds, gains, ideal, strict=True)]
        cores |= {str(r.run.attributes.get("cores", "?")) for s in line.series for r in s.records}
    most = max(max(line.x) - 1 for line in lines)
    axes[1].plot([1, most], [1, 1 if is_weak else most], color="black", linewidth=0.8, label="ideal")
    for panel, name in zip(axes, ("seconds per round", gain), strict=True):
        panel.set(xlabel="workers", ylabel=name, ylim=(0, None))
        whole_numbers(panel.xaxis)
    add_legend(figure, axes)
    sentence += f" Dotted: ideal seconds. Cores: {', '.join(sorted(cores))}."
    columns = ("method", "workers", "seconds per round", gain, "ideal seconds")
    return Drawing(figure, sentence + words, columns, rows)


def _draw(data: FigureData, key: str, name: str, sentence: str) -> Drawing:
    """Returns a panel for each measure with a line for each method."""
    lines, words = _most_lines(_lines(data, key))
    if not lines:
        raise NoData(f"no runs differ in the number of {name} alone")
    figure, axes = new_figure(4, columns=2, height=2.1)
    rows: list[tuple[object, ...]] = []
    for line in lines:
        means = []
        for panel, measure in zip(axes, MEASURES.values(), strict=True):
            by_seed = [[measure(record.summary) for record in shown(series)] for series in line.series]
            means.append([float(np.mean(values)) for values in by_seed])
            deviations = [float(np.std(values, ddof=1)) if len(values) > 1 else 0.0 for values in by_seed]
            style = data.styles[line.label]
            bars = panel.errorbar(
                line.x, means[-1], deviations, label=label_text(line.label), capsize=2, **style
            )
            vars(bars.lines[0])["spread"] = deviations
            for part in bars.get_children():
                part.set_gid(style["gid"])
        rows += [(line.label, *row) for row in zip(line.x, *means, strict=True)]
    for panel, measure_name in zip(axes, MEASURES, strict=True):
        panel.set(xlabel=name, ylabel=measure_name)
    add_legend(figure, axes)
    return Drawing(figure, sentence + words, ("method", name, *MEASURES), rows)


def _lines(data: FigureData, key: str, with_participation: bool = False) -> list[Line]:
    """Returns the series whose settings differ in one key alone, as lines with at least two points.

    With `with_participation` the clients may differ too, but in a round they are as many for each worker.
    """
    groups: dict[tuple[tuple[str, str], ...], list[tuple[float, Series]]] = {}
    left_out = {key, PARTICIPATION, "federation.clients"} if with_participation else {key}
    all_series = [series for setting in data.settings for series in setting.series]
    records = [shown(series)[0] for series in all_series]
    for series, record, given in zip(all_series, records, given_settings(records), strict=True):
        ranks, per_round = int(record.run.attributes.get("ranks", 1)), record.run.config.federation.per_round
        values = given | ({"ranks": ranks} if key == "ranks" else {})
        if record.run.rounds_done:
            x = per_round if key == PARTICIPATION else values[key]
            others = [(name, str(value)) for name, value in values.items() if name not in left_out]
            if with_participation:
                others.append(("clients per worker", f"{per_round / max(1, ranks - 1):g}"))
            groups.setdefault(tuple(others), []).append((float(x), series))
    lines = []
    for rest, points in groups.items():
        if len({x for x, _ in points}) > 1:
            points.sort(key=lambda point: point[0])
            rest_but_method = {name: text for name, text in rest if not name.startswith(("method.", "log."))}
            xs, drawn = zip(*points, strict=True)
            lines.append(Line(points[0][1].label, rest_but_method, xs, drawn))
    return lines


def _most_lines(lines: Sequence[Line]) -> tuple[list[Line], str]:
    """Returns the lines of the setting that has the most points, and a sentence on which it is."""
    groups: dict[str, list[Line]] = {}
    for line in lines:
        groups.setdefault(repr(line.rest), []).append(line)
    if not groups:
        return [], ""
    # of settings with as many points the last: in a grid, the one with most clients in a round
    chosen = max(reversed(groups.values()), key=lambda group: sum(len(line.x) for line in group))
    if len(groups) == 1:
        return chosen, ""
    rests = [group[0].rest for group in groups.values()]
    varying = [key for key in chosen[0].rest if len({rest.get(key) for rest in rests}) > 1]
    words = ", ".join(f"{key.rpartition('.')[2]} {chosen[0].rest[key]}" for key in varying)
    return chosen, f" Shown for {one_line(words)}, of {len(groups)} settings; the tables have all."
