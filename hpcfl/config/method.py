"""The slots of a method and what may fill them."""

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


def _sparsity(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a whole number of dimensions or a share of them (0 < share < 1.0)")
    if isinstance(value, float) and not 0 < value < 1:
        raise ValueError("a share must be above 0.0 and below 1.0")
    if isinstance(value, int) and value < 0:
        raise ValueError("a number of dimensions must be at least 0")
    return value


class MethodConfig(Section):
    """A name from the catalogue fills every slot; a key that is set here replaces that slot."""

    name: str = "fedproto"
    """The method, as `hpcfl catalog` lists it."""
    aggregate: AggregateName | None = None
    """Uploads to global prototypes: mean; weighted by counts; so, as printed; ppa: by products n·c."""
    refine: RefinementName | None = None
    """What the server does: none; thomson, simplex, nonnegative place directions; tgp, orthogonal learn."""
    anchor: AnchorName | None = None
    """Prototypes follow every round; or are settled by the first; or by the seed, without any exchange."""
    weight: Weight | None = None
    """λ, the weight of the alignment term. It belongs to its distance."""
    distance: DistanceName | None = None
    """Alignment per sample: mse (mean over dimensions), euclid (norm), sq (squared norm), cosine."""
    scale: Positive | None = None
    """γ: clients align to, and are compared with, γ times the global prototype."""
    infer: InferenceName | None = None
    """Which of the three logged accuracies is the accuracy: by head, global or local prototypes."""
    iterations: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """thomson, and simplex above d + 1 classes: the most iterations of the solver in a round."""
    stopping: StoppingName | None = None
    """thomson, simplex: ends when the force along the sphere settles; or the whole force, as published."""
    server_epochs: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """tgp, orthogonal: passes over the uploaded prototypes per round."""
    server_network: bool | None = None
    """tgp, orthogonal: learn through two layers (F in the papers), or the vectors themselves."""
    margin: MarginName | None = None
    """tgp: δ(t) from the largest margin; from the largest distance of any pair; always τ; none."""
    tau: Positive | None = None
    """tgp: τ, the most that the margin δ(t) may be."""
    pull: Weight | None = None
    """orthogonal: λ_s, the weight of likeness to the own class's uploads."""
    push: Weight | None = None
    """orthogonal: γ, the weight of orthogonality to those of other classes."""
    sparsity: Annotated[int | float, BeforeValidator(_sparsity)] | None = None
    """Dimensions per class: their number, or a share of d (0.1 = a tenth); 0: all, no masks."""
    masked: MaskedName | None = None
    """sparsity: a class sees only its own dimensions of a sample: never; in the alignment; always."""
    class_weights: ClassWeightsName | None = None
    """Alignment: equal; proportional to the client's share of the class; the same, by class means."""
    curriculum: CurriculumName | None = None
    """How λ rises to its value from one round to another; constant: it is there from the first."""
    curriculum_start: Round | None = None
    """The round, counted from 1, up to which λ is 0."""
    curriculum_end: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """The round from which on λ stays."""
    proxy: Weight | None = None
    """Weight of the softmax over cosines to all global prototypes; 0: none."""
    proxy_scale: Positive | None = None
    """What these cosines are multiplied by."""
    proxy_start: Count | None = None
    """The round, counted from 1, from which on the proxy term is there."""
    semi: Round | None = None
    """After so many rounds clients learn from unlabelled samples too; 0: never."""
    consistency: Weight | None = None
    """semi: λ_cons, the weight of the strong views' alignment to the prototypes of their pseudo-labels."""
    mix: Weight | None = None
    """semi: α, the weight of a pseudo-labelled sample in a client's prototypes."""
    margin_quantile: Share | None = None
    """semi: a pseudo-label's margin must exceed this quantile of the client's labelled samples'."""
    distance_quantile: Share | None = None
    """semi: its distance must be below this quantile of the labelled samples' own."""
    prototypes: Literal["eval", "running"] = "eval"
    """Local prototypes from a pass in eval mode after training, or the running mean during it."""
    forget: bool = False
    """Drop global prototypes of classes that nobody uploaded in a round, in place of keeping them."""
    own_classes: bool = False
    """By prototypes, a client chooses among its own classes only."""
