"""The slots of a method, filled. No torch here."""

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


@dataclass(frozen=True, kw_only=True)
class MethodSpec:
    """The slots of a method, filled."""

    about: str
    paper: str
    page: str
    """Its page under docs/methods/."""
    exchange: bool = True
    """There are global prototypes; without, clients only train."""
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
    """What belongs to the refinement alone; an entry names what differs from DEFAULTS."""
    on: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Slots that a dataset fills otherwise."""

    def slots(self) -> dict[str, Any]:
        """Returns what fills each slot; without exchange there is only inference."""
        if not self.exchange:
            return {"infer": self.infer}
        filled = {name: getattr(self, name) for name in SLOTS}
        return {
            name: value for name, value in filled.items() if name in MAIN or value != DEFAULT[name]
        } | dict(self.options)

    @property
    def fixed(self) -> bool:
        """Whether prototypes are settled once and for all."""
        return self.anchor != "round"

    @property
    def travels(self) -> bool:
        """Whether clients ever upload."""
        return self.exchange and self.anchor != "seed"

    @property
    def sends_counts(self) -> bool:
        """Whether sample counts travel: only where the aggregation weights by them on the server."""
        return self.travels and self.aggregate in ("weighted", "weighted-literal")

    @property
    def sends_products(self) -> bool:
        """Whether clients send n_ij c_ij in place of c_ij."""
        return self.aggregate == "ppa"


MAIN = ("aggregate", "refine", "anchor", "distance", "weight", "scale", "infer")
"""The slots that are always said."""
DEFAULT = {f.name: f.default for f in fields(MethodSpec)}
SLOTS = tuple(name for name in DEFAULT if name not in ("about", "paper", "page", "exchange", "options", "on"))
