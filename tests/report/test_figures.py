"""Figures: data against numbers by hand, what is missing, hostile labels, and files that are equal twice."""

from __future__ import annotations

import base64
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest

from hpcfl.report.figures import clients, curves, gantt, lines, margins, planes, scaling, targets, values
from hpcfl.report.figures.drawing import FigureData, NoData
from hpcfl.report.figures.files import write_figure
from hpcfl.report.figures.style import COLOURS, label_text, new_figure, report_style, series_styles
from hpcfl.report.records import RunRecord, read_records
from hpcfl.report.series import make_settings
from hpcfl.report.verdict import make_verdict
from tests.helpers.records import record

HEAD = {"head": (0.5, 0.5)}
HOSTILE = ["_hidden", "$x_1$ % \\frac{", "<script>--></script>", "two\nlines", "中文"]


def figure_data(records: list[RunRecord] | tuple[RunRecord, ...], target: float | None = None) -> FigureData:
    settings = make_settings(records)
    return FigureData(settings, make_verdict([s for setting in settings for s in setting.series]), target)


def test_accuracy_curves_are_mean_and_deviation_over_seeds():
    """Seeds with 0.2, 0.4 and 0.4, 0.8: means 0.3 and 0.6, deviations √0.02 and √0.08; 100 bytes a round."""
    runs = [record("local", HEAD, f"seed={s}", rounds=r) for s, r in ((0, (0.2, 0.4)), (1, (0.4, 0.8)))]
    drawing = curves.accuracy_by_bytes(figure_data(runs))
    np.testing.assert_allclose(
        [row[2:] for row in drawing.rows], [(100, 0.3, 0.02**0.5), (200, 0.6, 0.08**0.5)], rtol=1e-12
    )


@pytest.mark.parametrize(("bytes_up", "scale"), [(40, "linear"), (10_000, "log")])
def test_traffic_of_different_sizes_has_a_logarithmic_axis(bytes_up, scale):
    """100 bytes a round beside 100, and beside 10,060."""
    big = record("fedavg", HEAD)
    big.run.datasets["/round/bytes_up"][:] = bytes_up
    drawing = curves.accuracy_by_bytes(figure_data([record("fedproto", HEAD), big]))
    assert drawing.figure.axes[0].get_xscale() == scale


@pytest.mark.parametrize(("far", "scale"), [(0.5, "linear"), (100.0, "log")])
def test_losses_of_different_sizes_have_a_logarithmic_axis(far, scale, monkeypatch):
    """One term at 0.2 beside one at 0.5, and beside one at 100."""
    monkeypatch.setattr(lines, "LOSSES", lines.LOSSES[1:2])
    runs = [record(method, HEAD) for method in ("fedproto", "protonorm")]
    for run, loss in zip(runs, (0.2, far), strict=True):
        run.run.datasets["/round/loss_align"] = np.full(2, loss)
    drawing = lines.loss_terms(figure_data(runs))
    assert drawing.figure.axes[0].get_yscale() == scale
    assert [row[3] for row in drawing.rows] == [0.2, 0.2, far, far]


def test_rounds_that_were_not_evaluated_are_not_drawn():
    drawing = curves.accuracy_by_round(
        figure_data([record("local", HEAD, rounds=(np.nan, 0.4, np.nan, 0.6))])
    )
    assert [row[2:4] for row in drawing.rows] == [(2.0, 0.4), (4.0, 0.6)]


def test_costs_to_a_target_count_up_to_the_first_round_that_has_it():
    """0.5 s and 100 bytes a round; the target is reached in rounds 2 and 3, by two of three seeds."""
    accuracies = ((0.1, 0.7, 0.2), (0.1, 0.2, 0.6), (0.1, 0.1, 0.1))
    runs = [record("local", HEAD, f"seed={s}", rounds=r) for s, r in enumerate(accuracies)]
    data = figure_data(runs, 0.6)
    assert targets.costs_to_reach(data.main.series[0], 0.6) == {
        "rounds": [2.0, 3.0],
        "bytes": [200.0, 300.0],
        "seconds": [1.0, 1.5],
    }
    drawing = targets.costs_to_target(data)
    assert drawing.rows == [("local", "2 of 3", 2.5, 250.0, 1.25)]
    assert "60.0% (--target)" in drawing.sentence
    with pytest.raises(NoData, match=r"no run reaches an accuracy of 95\.0%"):
        targets.costs_to_target(figure_data(runs, 0.95))


def test_clients_are_paired_with_local():
    runs = [record("local", {"head": (0.5, 0.7)}), record("fedorgp", {"head": (0.9, 0.6)})]
    drawing = clients.accuracy_per_client(figure_data(runs))
    assert drawing.rows == [("fedorgp", "head", 0, 0, 0.9, 0.5), ("fedorgp", "head", 0, 1, 0.6, 0.7)]
    with pytest.raises(NoData, match="no run can be compared with a run of local"):
        clients.accuracy_per_client(figure_data(runs[1:]))


def test_scaling_needs_settings_that_differ_in_one_key():
    runs = [record("local", HEAD, f"federation.clients={n}", rounds=(n / 100,)) for n in (40, 20)]
    drawing = scaling.by_clients(figure_data(runs))
    assert [row[:3] for row in drawing.rows] == [("local", 20.0, 20.0), ("local", 40.0, 40.0)]
    runs[1] = record("local", HEAD, "federation.clients=20", "train.lr=0.5")
    with pytest.raises(NoData, match="differ in the number of clients alone"):
        scaling.by_clients(figure_data(runs))


def test_scaling_keeps_a_size_of_data_that_was_given():
    """1000 samples per class are the default of 20 clients, and the same as 1000 that 40 were given."""
    size = "data.samples_per_class=1000"
    runs = [record("local", HEAD, f"federation.clients={n}", size) for n in (20, 40)]
    assert [row[1] for row in scaling.by_clients(figure_data(runs)).rows] == [20.0, 40.0]
    runs[1] = record("local", HEAD, "federation.clients=40")
    with pytest.raises(NoData, match="differ in the number of clients alone"):
        scaling.by_clients(figure_data([*runs, record("local", HEAD, "federation.clients=80", size)][1:]))
    assert [row[1] for row in scaling.by_clients(figure_data(runs)).rows] == [20.0, 40.0]


def test_a_metric_that_no_run_has_is_named():
    run = record("local", HEAD)
    lacking = {panel.path for panel in lines.GRADIENTS}
    missing = RunRecord(
        type(run.run)(*(vars(run.run) | {"lacking": frozenset(lacking)}).values()),
        *(run.summary, run.accuracy, run.infer),
    )
    with pytest.raises(NoData, match="no run has values of /round/gradient_align, /round/gradient_proxy"):
        lines.gradient_ratios(figure_data([missing]))


def test_the_training_error_is_that_of_the_runs_that_log_it():
    """Accuracies 0.25 and 0.75 on training samples are errors of 75% and 25%."""
    runs = [record(name, HEAD, f"seed={seed}") for seed, name in enumerate(("local", "fedproto", "fedgh"))]
    runs.append(record("fedtgp", HEAD, "partition.alpha=0.5"))
    names = [panel.path for panel in lines.TRAINING_ERROR]
    lacking = [
        replace(run, run=replace(run.run, lacking=frozenset(names if n < len(runs) - 1 else names[1:])))
        for n, run in enumerate(runs)
    ]
    lacking[-1].run.datasets[names[0]] = np.array([0.25, 0.75])
    drawing = lines.training_error(figure_data(lacking))
    assert drawing.rows == [
        ("training error in %, by global prototypes", "fedtgp", 1, 75.0, 0.0),
        ("training error in %, by global prototypes", "fedtgp", 2, 25.0, 0.0),
    ]
    with pytest.raises(NoData, match="no run has values of /round/train_accuracy_global"):
        lines.training_error(figure_data(lacking[:-1]))


def test_styles_differ_in_more_than_colour_and_local_is_always_the_same():
    labels = ["local", *(f"m{i}" for i in range(11))]
    styles = series_styles(labels)
    assert len({(style["marker"], str(style["linestyle"])) for style in styles.values()}) == len(labels)
    assert styles["local"]["color"] == "black"
    assert styles["m0"]["color"] == COLOURS[0]


@pytest.mark.parametrize(
    ("number", "said"), [(6, ""), (7, " 1 more setting is"), (8, " 2 more settings are")]
)
def test_settings_without_a_panel_are_counted(number, said):
    runs = [record("local", HEAD, f"federation.clients={n}") for n in range(20, 20 + number)]
    assert figure_data(runs).left_out() == (f"{said} in the tables only." if said else "")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_labels_are_drawn_as_they_are(name, tmp_path):
    [setting] = make_settings([record("local", HEAD)])
    series = type(setting.series[0])(name, "", setting.series[0].records)
    data = FigureData([type(setting)("", (series,))], make_verdict([series]))
    with warnings.catch_warnings(), report_style():
        warnings.filterwarnings("error", message="The label")
        drawing = curves.accuracy_by_round(data)
        assert drawing.figure.legends[0].get_texts()[0].get_text() == label_text(name)
        list(write_figure(tmp_path, "f", drawing))
    assert "<script" not in (tmp_path / "f.svg").read_text()


def test_the_same_logs_give_the_same_files(tmp_path):
    data = figure_data([record("local", HEAD)])
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with report_style():
            files = list(write_figure(tmp_path / name, "f", curves.accuracy_by_round(data)))
    assert files == ["f.svg", "f.pdf", "f.png", "f.csv"]
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_the_gantt_chart_has_a_bar_for_each_client_of_the_last_round(study):
    records = read_records([str(study / "clients-fedproto-4-s0.h5")]).runs
    drawing = gantt.training_of_clients(figure_data(records))
    run = records[0].read("/client/started", "/client/seconds")
    want = zip(range(4), run["/client/started"][-1], run["/client/seconds"][-1], strict=True)
    assert [(row[2], *row[4:]) for row in drawing.rows] == list(want)
    assert {row[1] for row in drawing.rows} == {0}
    assert (np.diff(sorted(run["/client/started"][-1])) > 0).all()


def test_margins_of_every_class_are_those_of_the_last_round(study):
    """fedproto's as logged; local has no global prototypes and no panel."""
    paths = [str(study / f"clients-{method}-4-s0.h5") for method in ("local", "fedproto")]
    data = figure_data(read_records(paths).runs)
    drawing = margins.margins_of_classes(data)
    run = data.main.series[1].records[0].read(margins.PATH)
    assert {row[0] for row in drawing.rows} == {"fedproto"}
    np.testing.assert_array_equal([row[2:] for row in drawing.rows], run[margins.PATH][-1])
    assert np.nanmax(run[margins.PATH][-1]) == 1
    with pytest.raises(NoData, match="no run has values of /prototypes/margin_common"):
        margins.margins_of_classes(figure_data(read_records(paths[:1]).runs))


def ranks_record(ranks: int, participants: int, seconds: float) -> RunRecord:
    run = record("fedproto", HEAD, f"federation.participation={participants}", ranks=ranks)
    return replace(run, summary=replace(run.summary, seconds=seconds))


def test_strong_scaling_is_the_same_work_on_more_ranks():
    """8 s with one worker (2 ranks), 2.5 s with four: speed-up 3.2; ideal are 2 s."""
    drawing = scaling.strong_scaling(figure_data([ranks_record(2, 4, 8.0), ranks_record(5, 4, 2.5)]))
    assert [row[1:] for row in drawing.rows] == [(1.0, 8.0, 1.0, 8.0), (4.0, 2.5, 3.2, 2.0)]


def test_weak_scaling_is_as_much_work_for_each_worker():
    """4 clients for one worker take 2 s, 8 for two 2.5 s: efficiency 0.8; 8 for four are other work."""
    runs = [ranks_record(2, 4, 2.0), ranks_record(3, 8, 2.5), ranks_record(5, 8, 1.0)]
    drawing = scaling.weak_scaling(figure_data(runs))
    assert [row[1:] for row in drawing.rows] == [(1.0, 2.0, 1.0, 2.0), (2.0, 2.5, 0.8, 2.0)]
    with pytest.raises(NoData, match="as many clients in a round for each worker"):
        scaling.weak_scaling(figure_data(runs[1:]))


def cloud(features: int) -> planes.Cloud:
    """Two classes of six points each around two prototypes, far apart."""
    random = np.random.default_rng(0)
    proto_KD = np.zeros((2, features))
    proto_KD[[0, 1], [0, 1]] = 10.0
    class_N = np.repeat([0, 1], 6)
    point_ND = proto_KD[class_N] + random.normal(scale=0.1, size=(12, features))
    return planes.Cloud("local", point_ND, class_N, np.arange(12), proto_KD, np.ones(2, dtype=bool))


@pytest.mark.parametrize("features", [2, 5])
def test_the_plane_keeps_classes_apart(features):
    """With two features places are the features; else those of t-SNE, nearer within than between classes."""
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    points = cloud(features)
    place_N2, place_K2 = planes.place_in_plane(points)
    assert (place_N2.shape, place_K2.shape) == ((12, 2), (2, 2))
    within = np.linalg.norm(place_N2[:6] - place_N2[:6].mean(0), axis=1).max()
    assert np.linalg.norm(place_N2[:6].mean(0) - place_N2[6:].mean(0)) > within
    if features == 2:
        np.testing.assert_array_equal(place_N2, points.point_ND)
    assert planes.silhouette(points).startswith("silhouette 1.00")


def test_without_scikit_learn_a_sentence_says_what_is_missing(monkeypatch):
    for name in ("sklearn", "sklearn.manifold", "sklearn.metrics"):
        monkeypatch.setitem(sys.modules, name, None)
    assert planes.silhouette(cloud(2)) == "silhouette: needs scikit-learn"
    data = figure_data([record("local", HEAD)])
    with pytest.raises(NoData, match=r"need scikit-learn: pip install 'hpcfl\[report\]'"):
        planes.draw_planes(data, lambda _: iter([cloud(5)]), "", "none")
    assert len(planes.draw_planes(data, lambda _: iter([cloud(2)]), "", "none").rows) == 14


def test_values_are_where_their_points_are():
    """Two rounds of a line, placed from the upper left corner; a heatmap in two bytes a cell."""
    data = figure_data([record("local", HEAD, rounds=(0.25, 0.5))])
    drawing = curves.accuracy_by_round(data)
    drawing.figure.draw_without_rendering()
    [group] = values.figure_values(drawing.figure, {"series-local": "local"})
    assert (group["series"], group["name"]) == ("series-local", "local, accuracy in %")
    (x0, y0, first), (x1, y1, second) = group["at"]
    assert (first, second) == ("round 1: 25", "round 2: 50")
    assert x0 < x1
    assert y0 > y1
    figure, [panel] = new_figure(1)
    cells_KM = np.array([[1.0, np.nan], [-2.0, 0.5]])
    values.set_cells(panel.imshow(cells_KM), cells_KM, "client", "class", "samples")
    figure.draw_without_rendering()
    [heatmap] = values.figure_values(figure, {})
    numbers = np.frombuffer(base64.b64decode(heatmap["cells"]), "<i2").reshape(heatmap["shape"])
    np.testing.assert_allclose(
        np.where(numbers == -32768, np.nan, numbers * heatmap["step"]), cells_KM, atol=1e-4
    )
