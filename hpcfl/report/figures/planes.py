"""Prototypes and test features in the plane: as they are if they have two features, else by t-SNE."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from hpcfl.report.figures.drawing import MAX_PANELS, Drawing, FigureData, NoData, shown
from hpcfl.report.figures.saved_prototypes import last_prototypes
from hpcfl.report.figures.style import COLOURS, MARKERS, label_text, new_figure
from hpcfl.report.figures.values import set_texts

MAX_POINTS = 2000
"""Of more points, each n-th is shown."""
MAX_NUMBERS = 30
"""Up to so many prototypes show the number of their class."""
NUMBER: dict[str, Any] = {"textcoords": "offset points", "fontsize": 6.5}
NO_TSNE = "t-SNE and silhouette need scikit-learn: pip install 'hpcfl[report]'"


@dataclass(frozen=True)
class Cloud:
    """Points of a series with their classes and clients, and the global prototypes."""

    label: str
    point_ND: np.ndarray
    class_N: np.ndarray
    client_N: np.ndarray
    proto_KD: np.ndarray
    present_K: np.ndarray


def prototypes_in_the_plane(data: FigureData) -> Drawing:
    """Local and global prototypes (ProtoNorm's Fig. 2, a to d)."""
    sentence = "Local prototypes (points) around the global ones (stars): classes that mix are confused."
    return draw_planes(data, _local_prototypes, sentence, "no run has saved local prototypes")


def features_in_the_plane(data: FigureData) -> Drawing:
    """Test features and global prototypes (FedSAP's Figs. 4 and 6)."""
    sentence = "Test features (points) and global prototypes (stars) in the last saved round, by class."
    return draw_planes(data, _test_features, sentence, "no run has saved test features (log.features_at)")


def _local_prototypes(data: FigureData) -> Iterator[Cloud]:
    """Yields the local prototypes of each series, or its global ones alone if they have two features."""
    for series in data.main.series:
        protos, record = last_prototypes(series), shown(series)[0]
        if protos is None:
            continue
        proto_KD, present_K = protos
        class_N, client_N, points = np.zeros(0, int), np.zeros(0, int), np.zeros((0, proto_KD.shape[1]))
        if "/prototypes/local" not in record.run.lacking:
            local_MKD = record.read("/prototypes/local")["/prototypes/local"][-1].astype(np.float64)
            known = np.argwhere(np.isfinite(local_MKD).all(2) & (local_MKD != 0).any(2))
            client_N, class_N = known[:: 1 + len(known) // MAX_POINTS].T
            points = local_MKD[client_N, class_N]
        if len(points) or proto_KD.shape[1] == 2:
            yield Cloud(series.label, points, class_N, client_N, proto_KD, present_K)


def _test_features(data: FigureData) -> Iterator[Cloud]:
    """Yields the saved test features of each series."""
    for series in data.main.series:
        record = shown(series)[0]
        if "/features/test" in record.run.lacking:
            continue
        run = record.read("/features/test", "/features/label", "/features/client")
        if len(run["/features/test"]):
            z_ND = run["/features/test"][-1].astype(np.float64)
            known_N = np.isfinite(z_ND).all(1)
            shown_N = np.flatnonzero(known_N)[:: 1 + known_N.sum() // MAX_POINTS]
            class_N, client_N = run["/features/label"][shown_N], run["/features/client"][shown_N]
            stars = last_prototypes(series)
            if stars is None or stars[0].shape[1] != z_ND.shape[1]:
                stars = np.zeros((0, z_ND.shape[1])), np.zeros(0, dtype=bool)
            yield Cloud(series.label, z_ND[shown_N], class_N, client_N, *stars)


def draw_planes(
    data: FigureData, clouds: Callable[[FigureData], Iterator[Cloud]], sentence: str, missing: str
) -> Drawing:
    """Returns a panel for each of the first series."""
    found = [cloud for cloud, _ in zip(clouds(data), range(MAX_PANELS), strict=False)]
    if not found:
        raise NoData(missing)
    try:
        placed = [(cloud, *place_in_plane(cloud)) for cloud in found]
    except ImportError:
        raise NoData(NO_TSNE) from None
    figure, axes = new_figure(len(found), height=2.5)
    rows: list[tuple[object, ...]] = []
    for panel, (cloud, place_N2, place_K2) in zip(axes, placed, strict=True):
        _draw(panel, cloud, place_N2, place_K2)
        panel.set_gid(data.styles[cloud.label]["gid"])
        points = zip(cloud.client_N.tolist(), cloud.class_N.tolist(), place_N2.tolist(), strict=True)
        rows += [(cloud.label, i, k, *place) for i, k, place in points]
        classes = zip(np.flatnonzero(cloud.present_K).tolist(), place_K2.tolist(), strict=True)
        rows += [(cloud.label, "server", k, *place) for k, place in classes]
    how = "" if found[0].proto_KD.shape[1] == 2 else " By t-SNE of cosines; axes have no meaning."
    return Drawing(
        figure, sentence + how + data.first(len(found)), ("method", "client", "class", "x", "y"), rows
    )


def place_in_plane(cloud: Cloud) -> tuple[np.ndarray, np.ndarray]:
    """Returns the places of points and of global prototypes in the plane."""
    protos = cloud.proto_KD[cloud.present_K]
    if cloud.proto_KD.shape[1] == 2:
        return cloud.point_ND, protos
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    all_ND = np.concatenate([cloud.point_ND, protos])
    perplexity = min(30.0, (len(all_ND) - 1) / 3)
    tsne = TSNE(metric="cosine", init="random", perplexity=perplexity, random_state=0)
    with threadpool_limits(1):  # threads would wait for each other, and their number could change last bits
        place = tsne.fit_transform(all_ND).astype(np.float64)
    return place[: len(cloud.point_ND)], place[len(cloud.point_ND) :]


def silhouette(cloud: Cloud) -> str:
    """Returns the silhouette of the points by class and cosine, as the log has it; empty: not known."""
    if not 1 < len(set(cloud.class_N.tolist())) < len(cloud.class_N):
        return ""
    try:
        from sklearn.metrics import silhouette_score
    except ImportError:
        return "silhouette: needs scikit-learn"
    return f"silhouette {silhouette_score(cloud.point_ND, cloud.class_N, metric='cosine'):.2f}".replace(
        "-", "−"
    )


def _middle(place_N2: np.ndarray) -> tuple[float, float]:
    """Returns the point that is nearest to the median of all."""
    x, y = place_N2[np.linalg.norm(place_N2 - np.median(place_N2, axis=0), axis=1).argmin()]
    return float(x), float(y)


def _draw(panel: Axes, cloud: Cloud, place_N2: np.ndarray, place_K2: np.ndarray) -> None:
    """Draws points in the look of their class, and numbered stars; in two features with their directions."""
    stars = np.flatnonzero(cloud.present_K)
    is_numbered = len(np.union1d(cloud.class_N, stars)) <= MAX_NUMBERS
    for k in np.unique(cloud.class_N):
        of_class = cloud.class_N == k
        colour, marker = COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)]
        x, y = place_N2[of_class].T
        points = panel.scatter(x, y, s=7, color=colour, marker=marker, linewidth=0, alpha=0.7)
        set_texts(points, [f"{cloud.label}, client {i}, class {k}" for i in cloud.client_N[of_class]])
        if is_numbered and k not in stars:
            panel.annotate(f"{k}", _middle(place_N2[of_class]), (4, 3), **NUMBER)
    radius = np.linalg.norm(np.concatenate([place_N2, place_K2]), axis=1).max(initial=0.0)
    for k, place in zip(stars, place_K2, strict=True):
        colour, end = COLOURS[k % len(COLOURS)], place
        if cloud.proto_KD.shape[1] == 2:
            end = place / np.linalg.norm(place) * radius
            panel.plot([0, end[0]], [0, end[1]], color=colour, linewidth=0.8, linestyle="--")
        [star] = panel.plot(*place[:, None], "*", color=colour, markersize=8, markeredgecolor="black")
        star.set_markeredgewidth(0.6)
        set_texts(star, [f"{cloud.label}, global prototype of class {k}"])
        if is_numbered:
            panel.annotate(f"{k}", end, (4, 3), **NUMBER)
    panel.set(title="\n".join(filter(None, (label_text(cloud.label), silhouette(cloud)))))
    panel.margins(0.08)
    if cloud.proto_KD.shape[1] == 2:
        panel.set(aspect="equal", xlabel="feature 0", ylabel="feature 1")
    else:
        panel.set(xticks=[], yticks=[])
