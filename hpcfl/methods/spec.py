"""The specification of a method: a value for every slot. Does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from hpcfl.config.method import (
    AggregateName,
    AnchorName,
    ClassWeightsName,
    CurriculumName,
    DistanceName,
    InferenceName,
    MaskedName,
    RefinementName,
)
from hpcfl.methods.declared_metrics import PROTOTYPE_METRICS
from hpcfl.metrics.metric import Metric


@dataclass(frozen=True, kw_only=True)
class MethodSpec:
    """A method as a value for every slot; the slots are the keys of [method] in the configuration."""

    about: str
    paper: str
    page: str
    """The page under docs/methods/."""
    exchange: bool = True
    """Whether there are global prototypes; if not, clients only train locally."""
    aggregate: AggregateName = "mean"
    refine: RefinementName = "none"
    anchor: AnchorName = "round"
    distance: DistanceName = "mse"
    weight: float = 10.0
    scale: float = 1.0
    infer: InferenceName = "global"
    sparsity: int | float = 0
    masked: MaskedName = "never"
    class_weights: ClassWeightsName = "equal"
    curriculum: CurriculumName = "constant"
    curriculum_start: int = 20
    curriculum_end: int = 100
    proxy: float = 0.0
    proxy_scale: float = 32.0
    proxy_start: int = 1
    semi: int = 0
    consistency: float = 1.0
    mix: float = 0.5
    margin_quantile: float = 0.5
    distance_quantile: float = 0.9
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the refinement; a catalogue entry names those that differ from DEFAULTS."""
    on: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Slots that have another value on a dataset, by its name."""

    def slots(self) -> dict[str, Any]:
        """Returns the slots to display: the main ones and those that differ from their defaults."""
        if not self.exchange:
            return {"infer": self.infer}
        slots = {name: getattr(self, name) for name in SLOTS}
        return {
            name: value for name, value in slots.items() if name in MAIN or value != DEFAULT[name]
        } | dict(self.options)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics that the method adds to those of every run."""
        return PROTOTYPE_METRICS

    @property
    def fixed(self) -> bool:
        """Whether global prototypes are chosen once and never change afterwards."""
        return self.anchor != "round"

    @property
    def has_uploads(self) -> bool:
        """Whether clients ever upload."""
        return self.exchange and self.anchor != "seed"

    @property
    def sends_counts(self) -> bool:
        """Whether clients upload sample counts: only if the server weights by them."""
        return self.has_uploads and self.aggregate in ("weighted", "weighted-literal")

    @property
    def sends_products(self) -> bool:
        """Whether clients upload n_ij c_ij instead of c_ij."""
        return self.aggregate == "ppa"


MAIN = ("aggregate", "refine", "anchor", "distance", "weight", "scale", "infer")
"""The slots that are always displayed."""
DEFAULT = {f.name: f.default for f in fields(MethodSpec)}
SLOTS = tuple(name for name in DEFAULT if name not in ("about", "paper", "page", "exchange", "options", "on"))
