"""All figures of a report, in its order: which are made, and why others are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hpcfl.report.figures import (
    alignment,
    clients,
    curves,
    gantt,
    lines,
    margins,
    personalisation,
    planes,
    round_parts,
    saved_prototypes,
    scaling,
    targets,
    virtual,
)
from hpcfl.report.figures.drawing import Drawing, FigureData, NoData


@dataclass(frozen=True)
class FigureEntry:
    """A figure by the stem of its files and its title."""

    name: str
    title: str
    draw: Callable[[FigureData], Drawing]


FIGURES = (
    FigureEntry("accuracy-by-round", "Accuracy by round", curves.accuracy_by_round),
    FigureEntry("accuracy-by-bytes", "Accuracy by traffic", curves.accuracy_by_bytes),
    FigureEntry("accuracy-by-seconds", "Accuracy by time", curves.accuracy_by_seconds),
    FigureEntry("accuracy-by-virtual-time", "Accuracy by virtual time", curves.accuracy_by_virtual_time),
    FigureEntry("costs-to-target", "Cost of a target accuracy", targets.costs_to_target),
    FigureEntry("virtual-time-to-target", "Virtual time to a target accuracy", virtual.time_to_target),
    FigureEntry("energy-to-target", "Energy to a target accuracy", virtual.energy_to_target),
    FigureEntry("participation", "Participation of the clients", virtual.participation),
    FigureEntry("accuracy-per-client", "Each client against local", clients.accuracy_per_client),
    FigureEntry("scaling-clients", "More clients", scaling.by_clients),
    FigureEntry("scaling-participation", "More clients per round", scaling.by_participation),
    FigureEntry("scaling-ranks", "More ranks for the same work", scaling.strong_scaling),
    FigureEntry("scaling-ranks-weak", "More ranks and more work", scaling.weak_scaling),
    FigureEntry("round-parts", "Parts of a round", round_parts.parts_of_a_round),
    FigureEntry("round-parts-over-rounds", "Parts of every round", round_parts.parts_over_rounds),
    FigureEntry("training-of-clients", "Who trained whom", gantt.training_of_clients),
    FigureEntry("class-heatmap", "Classes of the clients", clients.class_heatmap),
    FigureEntry("class-bubbles", "Classes of the clients, by area", clients.class_bubbles),
    FigureEntry("margins", "Margins", lines.margins),
    FigureEntry("margins-of-classes", "Margins of every class", margins.margins_of_classes),
    FigureEntry("prototype-geometry", "Geometry of the prototypes", lines.prototype_geometry),
    FigureEntry("alignment-iterations", "Iterations of the solver", alignment.alignment_iterations),
    FigureEntry("cosine-matrices", "Cosines of the prototypes", saved_prototypes.cosine_matrices),
    FigureEntry("prototype-values", "Values of the prototypes", saved_prototypes.prototype_values),
    FigureEntry("prototype-features", "Features that prototypes use", saved_prototypes.prototype_features),
    FigureEntry("prototypes-plane", "Prototypes in the plane", planes.prototypes_in_the_plane),
    FigureEntry("features-plane", "Features in the plane", planes.features_in_the_plane),
    FigureEntry("training-error", "Training error", lines.training_error),
    FigureEntry("loss-terms", "Terms of the loss", lines.loss_terms),
    FigureEntry("gradient-ratios", "Gradients of the terms", lines.gradient_ratios),
    FigureEntry("head-norms", "Personalisation of heads", personalisation.head_norms),
    FigureEntry("silhouette", "Silhouette and personalisation", lines.silhouette),
)


def draw_all(data: FigureData) -> Iterator[tuple[FigureEntry, Drawing | str]]:
    """Yields every figure, or the reason why it is not made."""
    for entry in FIGURES:
        try:
            yield entry, entry.draw(data)
        except NoData as reason:
            yield entry, str(reason)
