"""The section `[method]` of the configuration: the slots of a method and their allowed values."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from hpcfl.config.section import Count, Positive, Section

AggregateName = Literal["mean", "weighted", "weighted-literal", "ppa"]
DistanceName = Literal["mse", "euclid", "sq", "cosine"]
RefinementName = Literal["none", "thomson", "tgp", "orthogonal", "simplex", "nonnegative"]
AnchorName = Literal["round", "first", "seed"]
StoppingName = Literal["tangent", "whole"]
MarginName = Literal["max-min", "max-pair", "fixed", "none"]
InferenceName = Literal["head", "global", "local"]
ClassWeightsName = Literal["equal", "proportional", "per-class"]
MaskedName = Literal["never", "loss", "always"]
CurriculumName = Literal["constant", "linear", "cosine", "sigmoid", "step"]
Round = Annotated[int, Field(ge=0, le=1_000_000)]
Weight = Annotated[float, Field(ge=0, le=1e38)]
Share = Annotated[float, Field(ge=0, le=1)]


def _check_sparsity(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a whole number of dimensions or a share of them (0 < share < 1.0)")
    if isinstance(value, float) and not 0 < value < 1:
        raise ValueError("a share must be above 0.0 and below 1.0")
    if isinstance(value, int) and value < 0:
        raise ValueError("a number of dimensions must be at least 0")
    return value


class MethodConfig(Section):
    """A method by name; every other key that is set replaces the value of that method's catalogue entry."""

    name: str = "fedproto"
    """Method, as `hpcfl catalog` lists it."""
    aggregate: AggregateName | None = None
    """Average of uploads: mean; weighted by samples; weighted-literal: as printed; ppa: without counts."""
    refine: RefinementName | None = None
    """Server step after the average: none; thomson, simplex, nonnegative: geometry; tgp, orthogonal: SGD."""
    anchor: AnchorName | None = None
    """Global prototypes: new every round; fixed after the first; or fixed by the seed, without exchange."""
    weight: Weight | None = None
    """λ, the weight of the alignment term; its default depends on the distance."""
    distance: DistanceName | None = None
    """Alignment distance per sample: mse (mean over dimensions), euclid (norm), sq (norm²), cosine."""
    scale: Positive | None = None
    """γ: clients multiply global prototypes by γ, for the alignment and for inference."""
    infer: InferenceName | None = None
    """Inference whose accuracy counts: by the head, the nearest global or the nearest local prototype."""
    iterations: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """thomson, and simplex with K > d + 1: most solver iterations per round."""
    stopping: StoppingName | None = None
    """thomson, simplex: stops when the tangent force is constant; or the whole force, as published."""
    server_epochs: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """tgp, orthogonal: epochs over the uploaded prototypes per round."""
    server_network: bool | None = None
    """tgp, orthogonal: train prototypes through a two-layer network (F in the papers), or directly."""
    margin: MarginName | None = None
    """tgp: δ(t) is the largest margin (max-min), the largest distance (max-pair), τ (fixed) or 0 (none)."""
    tau: Positive | None = None
    """tgp: τ, the upper limit of the margin δ(t)."""
    pull: Weight | None = None
    """orthogonal: λ_s, the weight of similarity to uploads of the same class."""
    push: Weight | None = None
    """orthogonal: γ, the weight of orthogonality to uploads of other classes."""
    sparsity: Annotated[int | float, BeforeValidator(_check_sparsity)] | None = None
    """Dimensions per class: a number, or a share of d (0.1 = a tenth); 0: all, without masks."""
    masked: MaskedName | None = None
    """With sparsity, features are masked by their class: never; in the loss; always (inference too)."""
    class_weights: ClassWeightsName | None = None
    """Alignment: equal; proportional to the client's class counts; per-class: the same, on class means."""
    curriculum: CurriculumName | None = None
    """How λ rises from curriculum_start to curriculum_end; constant: full λ from the first round."""
    curriculum_start: Round | None = None
    """Round, counted from 1, up to which λ is 0."""
    curriculum_end: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Round from which λ has its full value."""
    proxy: Weight | None = None
    """Weight of the proxy term, a softmax over cosines to all global prototypes; 0: none."""
    proxy_scale: Positive | None = None
    """Factor of the cosines in the proxy term."""
    proxy_start: Count | None = None
    """First round, counted from 1, with the proxy term."""
    semi: Round | None = None
    """Rounds after which clients train on unlabelled samples too; 0: never."""
    consistency: Weight | None = None
    """semi: λ_cons, the weight of aligning strong views to the prototypes of their pseudo-labels."""
    mix: Weight | None = None
    """semi: α, the weight of a pseudo-labelled sample in a client's prototypes."""
    margin_quantile: Share | None = None
    """semi: a pseudo-label's margin must exceed this quantile of the labelled samples' margins."""
    distance_quantile: Share | None = None
    """semi: its distance must be below this quantile of the labelled samples' distances."""
    prototypes: Literal["eval", "running"] = "eval"
    """Local prototypes: from a pass in eval mode after training, or the running mean during training."""
    forget: bool = False
    """Whether global prototypes of classes that no client uploaded in a round are dropped."""
    own_classes: bool = False
    """Whether inference by prototypes considers only the client's own classes."""
