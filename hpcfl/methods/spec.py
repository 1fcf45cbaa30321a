"""What is known of an algorithm before torch is loaded; prototype methods as a value for every slot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from hpcfl.config.method import (
    AnchorName,
    ClassWeightsName,
    CurriculumName,
    InferenceName,
    InitialName,
    MaskedName,
)
from hpcfl.config.schema import Config
from hpcfl.config.section import Section
from hpcfl.errors import BadInput
from hpcfl.methods.declarations import AggregatePart, DistancePart, NoOptions, RefinementPart
from hpcfl.methods.declared_metrics import PROTOTYPE_METRICS
from hpcfl.methods.plugins import find_part
from hpcfl.metrics.metric import Metric

AUXILIARY_CHOICES = ("smallest", "first")
"""What an option `auxiliary` may be beside the name of an architecture."""


class PlannedClient(Protocol):
    """A client of a `Plan`."""

    @property
    def architecture(self) -> str: ...
    @property
    def split(self) -> Any: ...


class Plan(Protocol):
    """What is known of a run before torch is loaded; a `RunPlan` has it."""

    @property
    def config(self) -> Config: ...
    @property
    def clients(self) -> Sequence[PlannedClient]: ...
    @property
    def dims(self) -> tuple[int, int]: ...


@dataclass(frozen=True, kw_only=True)
class AlgorithmSpec:
    """A catalogue entry: an algorithm with its options."""

    about: str
    paper: str
    page: str
    """The page under docs/methods/; empty: none."""
    algorithm: str
    """Its class, as `module:Class`."""
    infer: InferenceName = "head"
    """The inference whose accuracy counts."""
    Options: type[Section] = NoOptions
    settings: Section = field(default_factory=NoOptions)
    """Its options in a run."""
    metrics: tuple[Metric, ...] = ()
    """The metrics that it adds to those of every run."""
    dimensions: Mapping[str, int] = field(default_factory=dict)
    """Lengths of its metrics' own dimensions, beside client, class and feature."""
    equal_heads: bool = False
    """Whether all clients must have the same head."""
    equal_networks: bool = False
    """Whether all clients must have the same architecture."""
    head_kind: str = ""
    """The kind of head that it gives to its clients; empty: as models.head says."""
    has_auxiliary: bool = False
    """Whether its option `auxiliary` chooses a network that clients train beside their own."""
    upper_bound: str = ""
    """What `hpcfl plan` can only bound, and why; empty: nothing."""

    @property
    def clip_norm(self) -> float:
        """The norm to which the algorithm clips the gradients of its clients: its option; 0: it does not."""
        return float(getattr(self.settings, "clip_norm", 0.0))

    def slots(self) -> dict[str, Any]:
        """Returns the choices to display."""
        return {"infer": self.infer} | self.settings.model_dump()

    def dimension_sizes(self, config: Config) -> dict[str, int]:
        """Returns the lengths of its metrics' own dimensions in a run."""
        return dict(self.dimensions)

    def check(self, plan: Plan) -> None:
        """Raises BadInput if a run is impossible, as far as can be known before torch is loaded."""
        for key in ("distances", "local_prototypes"):
            if getattr(plan.config.log, key):
                raise BadInput(f"log.{key} = true: method {plan.config.method.name!r} has none")
        heads = {client.architecture.partition("/")[2] or "linear" for client in plan.clients}
        if self.equal_heads and len(heads) > 1:
            raise BadInput(
                f"method.name = {plan.config.method.name!r}: has one head for all clients, but these have "
                f"{', '.join(sorted(heads))} (models.head)"
            )

        names = dict.fromkeys(client.architecture for client in plan.clients)
        if self.equal_networks and len(names) > 1:
            raise BadInput(
                f"method.name = {plan.config.method.name!r}: has one network for all clients, but these have "
                f"{', '.join(names)} (models.group, models.head)"
            )

    def remarks(self, plan: Plan) -> list[str]:
        """Returns sentences that a user should know about a run."""
        return []

    def not_planned(self) -> list[str]:
        """Returns sentences about work that `hpcfl plan` does not count, or only bounds."""
        return [self.upper_bound] if self.upper_bound else []


@dataclass(frozen=True, kw_only=True)
class PrototypeSpec(AlgorithmSpec):
    """A prototype method as a value for every slot; the slots are the keys of [method]."""

    algorithm: str = "hpcfl.algorithms.prototype_algorithm:PrototypeAlgorithm"
    metrics: tuple[Metric, ...] = PROTOTYPE_METRICS
    exchange: bool = True
    """Whether there are global prototypes; if not, clients only train locally."""
    aggregate: str = "mean"
    refine: str = "none"
    anchor: AnchorName = "round"
    distance: str = "mse"
    weight: float = 10.0
    scale: float = 1.0
    infer: InferenceName = "global"
    sparsity: int | float = 0
    masked: MaskedName = "never"
    class_weights: ClassWeightsName = "equal"
    initial: InitialName = "none"
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
    """Options of the refinement; a catalogue entry names those that differ from its defaults."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """λ of its paper with another distance, by distance; else the distance's own λ."""
    on: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Slots that have another value on a dataset, by its name."""

    def slots(self) -> dict[str, Any]:
        """Returns the slots to display: the main ones and those that differ from their defaults."""
        if not self.exchange:
            return {"infer": self.infer}
        slots = {name: getattr(self, name) for name in SLOTS}
        options = {name: value for name, value in self.options.items() if value is not None}
        shown = {name: value for name, value in slots.items() if name in MAIN or value != DEFAULT[name]}
        return shown | options | self.settings.model_dump()

    def dimension_sizes(self, config: Config) -> dict[str, int]:
        log = config.log
        return {
            "statistic": 3,
            "pair": 2,
            "party": 2,
            "uploader": config.federation.clients if log.local_prototypes else 0,
            "iteration": self.options.get("iterations", 0) + 1 if log.distances else 0,
        }

    def check(self, plan: Plan) -> None:
        from hpcfl.methods.rules import check_plan

        check_plan(self, plan)

    def remarks(self, plan: Plan) -> list[str]:
        from hpcfl.methods.rules import remarks

        return remarks(self, *plan.dims, plan.config.federation.rounds)

    def not_planned(self) -> list[str]:
        if not self.semi:
            return []
        return [f"after round {self.semi} unlabelled samples add work and memory: not counted"]

    @property
    def refinement(self) -> RefinementPart:
        """What the refinement declares about itself."""
        return find_part("refine", self.refine)

    @property
    def aggregation(self) -> AggregatePart:
        """What the aggregation declares about itself."""
        return find_part("aggregate", self.aggregate)

    @property
    def distance_part(self) -> DistancePart:
        """What the distance declares about itself."""
        return find_part("distance", self.distance)

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
        return self.has_uploads and self.aggregation.needs_counts

    @property
    def sends_products(self) -> bool:
        """Whether clients upload n_ij c_ij instead of c_ij."""
        return self.aggregation.sends_products


MAIN = ("aggregate", "refine", "anchor", "distance", "weight", "scale", "infer")
"""The slots that are always displayed."""
DEFAULT = {f.name: f.default for f in fields(PrototypeSpec)}
_NO_SLOTS = {*(f.name for f in fields(AlgorithmSpec)), *MAIN, "exchange", "options", "weights", "on"}
SLOTS = (*MAIN, *(name for name in DEFAULT if name not in _NO_SLOTS))
