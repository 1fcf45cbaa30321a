"""Every method as a composition of parts, by name; a paper is one entry. No torch here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hpcfl.config.method import DistanceName, MethodConfig, RefinementName
from hpcfl.errors import BadInput, unknown
from hpcfl.methods.rules import LEARNED, OPTIONS, check_slots
from hpcfl.methods.spec import SLOTS, MethodSpec

LEARNING: dict[str, Any] = {"server_network": True}
SOLVING: dict[str, Any] = {"iterations": 500, "stopping": "tangent"}
DEFAULTS: dict[RefinementName, dict[str, Any]] = {
    "none": {},
    "thomson": SOLVING,
    "simplex": SOLVING,
    "nonnegative": {},
    "tgp": {"margin": "max-min", "tau": 100.0, "server_epochs": 100, **LEARNING},
    "orthogonal": {"pull": 1.0, "push": 10.0, "server_epochs": 1, **LEARNING},
}
"""What each refinement takes unless told otherwise: its paper's values."""

UNIT = {"thomson", "simplex", "nonnegative"}
GAMMA = {"cifar10": 100.0, "cifar100": 200.0, "flowers102": 200.0, "tinyimagenet": 400.0, "spiral": 10.0}
GAMMA_ELSEWHERE = 100.0
"""γ of prototypes of unit length: ProtoNorm's grid search by dataset, its Fig. 2 for the spiral."""

WEIGHTS: dict[DistanceName, float] = {"mse": 10.0, "euclid": 0.1, "cosine": 100.0}
"""λ that the literature uses with each distance; it is never carried from one distance to another."""


PROTONORM = "Lee et al., ProtoNorm (Prototype Alignment and Upscaling)"
FEDTGP = "Zhang et al., FedTGP, AAAI 2024"
FEDORGP = "FedORGP (Orthogonality Regularization on Global Prototypes)"
OWN = "hpcfl"
SPARSE = "Sparse prototypes (CPS, PPA, CPKD)"
FEDSAP = "FedSAP (Scheduled and Adaptive Prototypes)"

CATALOGUE = {
    "local": MethodSpec(
        about="no exchange: the floor every method is compared with",
        paper="–",
        page="local",
        exchange=False,
        infer="head",
    ),
    "fedproto": MethodSpec(
        about="means of class prototypes; clients align to them and compare with them",
        paper="Tan et al., FedProto, AAAI 2022; Eq. (2)-(6) in ProtoNorm's paper",
        page="fedproto",
        aggregate="mean",  # Eq. (3) weights by n_ij; its published code takes the plain mean
        weight=10.0,  # with the mean over dimensions (mse), as HtFLlib runs it
        infer="global",  # Eq. (6) compares with local prototypes; its published code with global ones
        # On the spiral n_ij runs from 1 to hundreds within a class: the plain mean follows clients with a
        # single sample and falls below `local`, so Eq. (3)'s weights are kept there, with a stronger λ.
        on={"spiral": {"aggregate": "weighted", "weight": 30.0}},
    ),
    "protonorm": MethodSpec(
        about="means, moved apart on the sphere (Thomson problem), scaled by γ on the client",
        paper=PROTONORM,
        page="protonorm",
        aggregate="mean",  # Eq. (7)
        refine="thomson",  # Eq. (8)-(14)
        weight=10.0,  # λ = 1 in the paper, with Euclid; its code has 10 with mse
        infer="global",  # Eq. (6) says local; its code compares with global ones
    ),
    "fedtgp": MethodSpec(
        about="prototypes that the server trains by contrastive learning with an adaptive margin",
        paper=FEDTGP,
        page="fedtgp",
        refine="tgp",  # Eq. (5)-(10)
        weight=10.0,  # λ = 0.1 in the paper goes with euclid
        infer="global",
    ),
    "fedtgp-scl": MethodSpec(
        about="FedTGP's ablation: standard contrastive loss, no margin",
        paper=f"{FEDTGP}, Table 6",
        page="fedtgp",
        refine="tgp",
        options={"margin": "none"},  # Eq. (6)
    ),
    "fedtgp-fm": MethodSpec(
        about="FedTGP's ablation: the margin is always τ",
        paper=f"{FEDTGP}, Table 6",
        page="fedtgp",
        refine="tgp",
        options={"margin": "fixed"},  # Eq. (7)
    ),
    "fedtgp-without-f": MethodSpec(
        about="FedTGP's ablation: trainable vectors without the further network F",
        paper=f"{FEDTGP}, Table 6",
        page="fedtgp",
        refine="tgp",
        options={"server_network": False},
    ),
    "fedorgp": MethodSpec(
        about="prototypes that the server trains towards orthogonality; clients follow their direction",
        paper=FEDORGP,
        page="fedorgp",
        refine="orthogonal",  # Eq. (3)-(5)
        distance="cosine",  # Eq. (8)
        weight=100.0,  # λ_c
        infer="head",
    ),
    "fedorgp-without-or": MethodSpec(
        about="FedORGP's ablation: clients follow the direction of the weighted mean",
        paper=f"{FEDORGP}, Table 5",
        page="fedorgp",
        aggregate="weighted",
        distance="cosine",
        weight=100.0,
        infer="head",
    ),
    "fedproto-sparse": MethodSpec(
        about="FedProto with sparse rows, aggregation without class counts, alignment by class frequency",
        paper=SPARSE,
        page="sparse",
        aggregate="ppa",  # Eq. (10), (11)
        sparsity=0.1,  # Eq. (7), (8); s = d/10 and d/2 in Table 1
        class_weights="proportional",  # Eq. (12)
    ),
    "fedtgp-sparse": MethodSpec(
        about="FedTGP with the same three parts",
        paper=SPARSE,
        page="sparse",
        aggregate="ppa",
        refine="tgp",
        distance="euclid",  # with mse, whose pull grows with the distance, lengths run away
        weight=0.1,
        sparsity=0.1,
        class_weights="proportional",
    ),
    "fedsap": MethodSpec(
        about="FedProto with an alignment curriculum and prototypes as proxies of their classes",
        paper=FEDSAP,
        page="fedsap",
        weight=0.7,  # Eq. (7) with App. A: from round 20 to 0.7 in round 100
        curriculum="linear",
        proxy=1.0,  # Eq. (8), (9)
        infer="head",
    ),
    "fedsap-ssl": MethodSpec(
        about="FedSAP, followed by rounds that learn from unlabelled samples too",
        paper=FEDSAP,
        page="fedsap",
        weight=0.7,
        curriculum="linear",
        proxy=1.0,
        semi=100,  # Eq. (10)-(14), after 100 supervised rounds
        infer="head",
    ),
    "simplex": MethodSpec(
        about="the exact minimum of ProtoNorm's energy nearest to the round's means, by direction",
        paper=OWN,
        page="simplex",
        refine="simplex",
        distance="cosine",
        weight=100.0,
    ),
    "simplex-fixed": MethodSpec(
        about="control: a simplex drawn from the seed; nothing is ever exchanged",
        paper=OWN,
        page="simplex",
        refine="simplex",
        anchor="seed",
        distance="cosine",
        weight=100.0,
    ),
    "anchor": MethodSpec(
        about="every class owns its dimensions, chosen from the first round's means; then nothing travels",
        paper=OWN,
        page="anchor",
        refine="nonnegative",
        anchor="first",
        distance="cosine",
        weight=100.0,
        infer="head",
    ),
    "anchor-fixed": MethodSpec(
        about="control: the same, with dimensions drawn from the seed; nothing is ever exchanged",
        paper=OWN,
        page="anchor",
        refine="nonnegative",
        anchor="seed",
        distance="cosine",
        weight=100.0,
        infer="head",
    ),
}


def method_spec(settings: MethodConfig, data: str) -> MethodSpec:
    """Returns the catalogue's entry for a dataset with the slots that the configuration replaces."""
    if settings.name not in CATALOGUE:
        raise unknown("method.name", settings.name, CATALOGUE)
    entry = CATALOGUE[settings.name]
    entry = replace(entry, **entry.on.get(data, {}))
    slots = settings.model_dump(include={*SLOTS}, exclude_none=True)
    options = settings.model_dump(include={*OPTIONS}, exclude_none=True)
    if not entry.exchange:
        for slot in sorted((slots.keys() | options.keys()) - {"infer"}):
            raise BadInput(f"method.{slot}: {settings.name!r} exchanges nothing and has no such slot")
        if settings.infer == "global":
            raise BadInput(f"method.infer = 'global': method {settings.name!r} has no global prototypes")
        if settings.forget:
            raise BadInput(f"method.forget = true: method {settings.name!r} has no global prototypes")
        return replace(entry, **slots)
    if settings.distance not in (None, entry.distance) and settings.weight is None:
        if settings.distance not in WEIGHTS:
            raise BadInput(f"method.distance = {settings.distance!r}: needs its own method.weight")
        slots["weight"] = WEIGHTS[settings.distance]
    filled = replace(entry, **slots)
    learns = filled.refine in LEARNED and filled.aggregate != "ppa"
    if settings.aggregate is None and (learns or filled.anchor == "seed"):
        filled = replace(filled, aggregate="mean")  # they do not look at an aggregate
    own = dict(entry.options) if filled.refine == entry.refine else {}
    filled = replace(filled, options=DEFAULTS[filled.refine] | own | options)
    check_slots(filled, slots | options, settings.forget)
    if settings.scale is None:
        filled = replace(filled, scale=_scale(filled, data))
    return filled


def _scale(filled: MethodSpec, data: str) -> float:
    """Returns γ: that of the dataset for prototypes of unit length, 1 for others and for directions alone."""
    of_unit_length = filled.refine in UNIT or filled.anchor == "seed"
    return GAMMA.get(data, GAMMA_ELSEWHERE) if of_unit_length and filled.distance != "cosine" else 1.0
