"""The section `[method]` of the configuration: the slots of a method and their allowed values."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from hpcfl.config.section import Count, Positive, Section, Share, Weight

AnchorName = Literal["round", "first", "seed"]
InferenceName = Literal["head", "global", "local", "trained"]
ClassWeightsName = Literal["equal", "proportional", "per-class", "balanced"]
InitialName = Literal["none", "random"]
MaskedName = Literal["never", "loss", "always"]
CurriculumName = Literal["constant", "linear", "cosine", "sigmoid", "step"]
Round = Annotated[int, Field(ge=0, le=1_000_000)]


def _check_sparsity(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a whole number of dimensions or a share of them (0 < share < 1.0)")
    if isinstance(value, float) and not 0 < value < 1:
        raise ValueError("a share must be above 0.0 and below 1.0")
    if isinstance(value, int) and value < 0:
        raise ValueError("a number of dimensions must be at least 0")
    return value


class MethodConfig(Section):
    """A method by name; every other key that is set replaces the value of that method's catalogue entry.

    Further keys are the options of an algorithm or of a part; they are checked where these are known.
    """

    model_config = ConfigDict(extra="allow")

    name: str = "fedproto"
    """Method, as `hpcfl catalog` lists it, or an import path: package.module:Class."""
    aggregate: str | None = None
    """Average of uploads: mean; weighted by samples; weighted-literal: as printed; ppa: without counts."""
    refine: str | None = None
    """Server step after the average: none; thomson, simplex, nonnegative: geometry; tgp, orthogonal: SGD."""
    anchor: AnchorName | None = None
    """Global prototypes: new every round; fixed after the first; or fixed by the seed, without exchange."""
    initial: InitialName | None = None
    """Prototypes sent in the first round: none, or random ones, as in the papers' algorithm boxes."""
    weight: Weight | None = None
    """λ, the weight of the alignment term; its default depends on the distance."""
    distance: str | None = None
    """Alignment distance per sample: mse (mean over dimensions), euclid (norm), sq (norm²), cosine."""
    scale: Positive | None = None
    """γ: clients multiply global prototypes by γ, for the alignment and for inference."""
    infer: InferenceName | None = None
    """Inference that counts: head; nearest global or local prototype; trained: head before the download."""
    sparsity: Annotated[int | float, BeforeValidator(_check_sparsity)] | None = None
    """Dimensions per class: a number, or a share of d (0.1 = a tenth); 0: all, without masks."""
    masked: MaskedName | None = None
    """With sparsity, features are masked by their class: never; in the loss; always (inference too)."""
    class_weights: ClassWeightsName | None = None
    """Alignment: equal; proportional to class counts; on class means: per-class (the same), or balanced."""
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
    prototypes: Literal["eval", "running", "before"] = "eval"
    """Local prototypes: of a pass in eval mode after training, or before it; or running, during training."""
    forget: bool = False
    """Whether global prototypes of classes that no client uploaded in a round are dropped."""
    own_classes: bool = False
    """Whether inference by prototypes considers only the client's own classes."""

    @property
    def options(self) -> dict[str, Any]:
        """The keys that are options of the algorithm or of its parts, as they are given."""
        return dict(self.model_extra or {})
