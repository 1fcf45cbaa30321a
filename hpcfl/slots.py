"""The slots of a method and what may fill them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hpcfl.section import Positive, Section

Aggregate = Literal["mean", "weighted", "weighted-literal"]
Distance = Literal["mse", "euclid", "sq", "cosine"]
Refinement = Literal["none", "thomson", "tgp", "orthogonal", "simplex", "nonnegative"]
Anchor = Literal["round", "first", "seed"]
Stopping = Literal["tangent", "whole"]
Margin = Literal["max-min", "max-pair", "fixed", "none"]
Inference = Literal["head", "global", "local"]


class Method(Section):
    """A name from the catalogue fills every slot; a key that is set here replaces that slot."""

    name: str = "fedproto"
    """The method, as `hpcfl catalog` lists it."""
    aggregate: Aggregate | None = None
    """Uploads to global prototypes: mean; weighted by sample counts; weighted as FedProto prints it."""
    refine: Refinement | None = None
    """What the server does: none; thomson, simplex, nonnegative place directions; tgp, orthogonal learn."""
    anchor: Anchor | None = None
    """Prototypes follow every round; or are settled by the first; or by the seed, without any exchange."""
    weight: Annotated[float, Field(ge=0, le=1e38)] | None = None
    """λ, the weight of the alignment term. It belongs to its distance."""
    distance: Distance | None = None
    """Alignment per sample: mse (mean over dimensions), euclid (norm), sq (squared norm), cosine."""
    scale: Positive | None = None
    """γ: clients align to, and are compared with, γ times the global prototype."""
    infer: Inference | None = None
    """Which of the three logged accuracies is the accuracy: by head, global or local prototypes."""
    iterations: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """thomson, and simplex above d + 1 classes: the most iterations of the solver in a round."""
    stopping: Stopping | None = None
    """thomson, simplex: ends when the force along the sphere settles; or the whole force, as published."""
    server_epochs: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """tgp, orthogonal: passes over the uploaded prototypes per round."""
    server_network: bool | None = None
    """tgp, orthogonal: learn through two layers (F in the papers), or the vectors themselves."""
    margin: Margin | None = None
    """tgp: δ(t) from the largest margin; from the largest distance of any pair; always τ; none."""
    tau: Positive | None = None
    """tgp: τ, the most that the margin δ(t) may be."""
    pull: Annotated[float, Field(ge=0, le=1e38)] | None = None
    """orthogonal: λ_s, the weight of likeness to the own class's uploads."""
    push: Annotated[float, Field(ge=0, le=1e38)] | None = None
    """orthogonal: γ, the weight of orthogonality to those of other classes."""
    sparsity: Literal[0] = 0
    """Dimensions per class on the wire; 0 sends all of them."""
    prototypes: Literal["eval", "running"] = "eval"
    """Local prototypes from a pass in eval mode after training, or the running mean during it."""
    forget: bool = False
    """Drop global prototypes of classes that nobody uploaded in a round, in place of keeping them."""
    own_classes: bool = False
    """By prototypes, a client chooses among its own classes only."""
