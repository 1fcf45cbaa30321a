"""The catalogue: every method by name, as a `MethodSpec`. Does not import torch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hpcfl.config.method import DistanceName, MethodConfig, RefinementName
from hpcfl.errors import BadInput, unknown
from hpcfl.methods.rules import OPTIONS, TRAINED_BY_SERVER, check_slots
from hpcfl.methods.spec import SLOTS, MethodSpec

SERVER_NETWORK: dict[str, Any] = {"server_network": True}
SOLVER: dict[str, Any] = {"iterations": 500, "stopping": "tangent"}
DEFAULTS: dict[RefinementName, dict[str, Any]] = {
    "none": {},
    "thomson": SOLVER,
    "simplex": SOLVER,
    "nonnegative": {},
    "tgp": {"margin": "max-min", "tau": 100.0, "server_epochs": 100, **SERVER_NETWORK},
    "orthogonal": {"pull": 1.0, "push": 10.0, "server_epochs": 1, **SERVER_NETWORK},
}
"""Default options of each refinement: the values of its paper."""

UNIT_LENGTH = {"thomson", "simplex", "nonnegative"}
"""Refinements whose prototypes have length 1."""
GAMMA = {"cifar10": 100.0, "cifar100": 200.0, "flowers102": 200.0, "tinyimagenet": 400.0, "spiral": 10.0}
GAMMA_DEFAULT = 100.0
"""γ for prototypes of unit length: ProtoNorm's grid search by dataset, its Fig. 2 for the spiral."""

WEIGHTS: dict[DistanceName, float] = {"mse": 10.0, "euclid": 0.1, "cosine": 100.0}
"""λ used in the literature with each distance; a λ is never used with another distance than its own."""

PROTONORM = "Lee et al., ProtoNorm (Prototype Alignment and Upscaling)"
FEDTGP = "Zhang et al., FedTGP, AAAI 2024"
FEDORGP = "FedORGP (Orthogonality Regularization on Global Prototypes)"
HPCFL = "hpcfl"
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
        aggregate="mean",  # Eq. (3) weights by n_ij; published code takes the plain mean
        weight=10.0,  # with the mean over dimensions (mse), as HtFLlib runs it
        infer="global",  # Eq. (6) compares with local prototypes; published code with global ones
        # On the spiral n_ij ranges from 1 to hundreds within a class: the plain mean is dominated by clients
        # with a single sample and is worse than `local`, so Eq. (3)'s weights and a larger λ are used.
        on={"spiral": {"aggregate": "weighted", "weight": 30.0}},
    ),
    "protonorm": MethodSpec(
        about="means, moved apart on the sphere (Thomson problem), scaled by γ on the client",
        paper=PROTONORM,
        page="protonorm",
        aggregate="mean",  # Eq. (7)
        refine="thomson",  # Eq. (8)-(14)
        weight=10.0,  # the paper has λ = 1 with Euclid, published code 10 with mse
        infer="global",  # Eq. (6) says local; published code compares with global ones
    ),
    "fedtgp": MethodSpec(
        about="prototypes that the server trains by contrastive learning with an adaptive margin",
        paper=FEDTGP,
        page="fedtgp",
        refine="tgp",  # Eq. (5)-(10)
        weight=10.0,  # the paper's λ = 0.1 belongs to euclid
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
        distance="euclid",  # with mse, whose gradient grows with the distance, lengths diverge
        weight=0.1,
        sparsity=0.1,
        class_weights="proportional",
    ),
    "fedsap": MethodSpec(
        about="FedProto with an alignment curriculum and prototypes as proxies of their classes",
        paper=FEDSAP,
        page="fedsap",
        weight=0.7,  # Eq. (7) with App. A: λ rises from 0 in round 20 to 0.7 in round 100
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
        paper=HPCFL,
        page="simplex",
        refine="simplex",
        distance="cosine",
        weight=100.0,
    ),
    "simplex-fixed": MethodSpec(
        about="control: a simplex drawn from the seed; nothing is ever exchanged",
        paper=HPCFL,
        page="simplex",
        refine="simplex",
        anchor="seed",
        distance="cosine",
        weight=100.0,
    ),
    "anchor": MethodSpec(
        about="every class owns its dimensions, chosen from the first round's means; then nothing travels",
        paper=HPCFL,
        page="anchor",
        refine="nonnegative",
        anchor="first",
        distance="cosine",
        weight=100.0,
        infer="head",
    ),
    "anchor-fixed": MethodSpec(
        about="control: the same, with dimensions drawn from the seed; nothing is ever exchanged",
        paper=HPCFL,
        page="anchor",
        refine="nonnegative",
        anchor="seed",
        distance="cosine",
        weight=100.0,
        infer="head",
    ),
}


def method_spec(settings: MethodConfig, data: str) -> MethodSpec:
    """Returns the catalogue's entry for a dataset, with the slots that the configuration sets."""
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
    spec = replace(entry, **slots)
    trained = spec.refine in TRAINED_BY_SERVER and spec.aggregate != "ppa"
    if settings.aggregate is None and (trained or spec.anchor == "seed"):
        spec = replace(spec, aggregate="mean")  # they do not use the aggregate
    entry_options = dict(entry.options) if spec.refine == entry.refine else {}
    spec = replace(spec, options=DEFAULTS[spec.refine] | entry_options | options)
    check_slots(spec, slots | options, settings.forget)
    if settings.scale is None:
        spec = replace(spec, scale=_scale(spec, data))
    return spec


def _scale(spec: MethodSpec, data: str) -> float:
    """Returns γ of the dataset for prototypes of unit length; 1 otherwise and for the cosine distance."""
    unit_length = spec.refine in UNIT_LENGTH or spec.anchor == "seed"
    return GAMMA.get(data, GAMMA_DEFAULT) if unit_length and spec.distance != "cosine" else 1.0
