"""The catalogue: every method by name, as a `MethodSpec`. Does not import torch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from hpcfl.config.loading import error_message
from hpcfl.config.method import MethodConfig
from hpcfl.config.section import Section
from hpcfl.errors import BadInput, nearest, unknown
from hpcfl.methods.baselines import BASELINES
from hpcfl.methods.declared_metrics import ACCURACY_TRAINED
from hpcfl.methods.parts import REFINEMENTS
from hpcfl.methods.plugins import find_part, load_user_object, registered, user_path
from hpcfl.methods.rules import check_slots
from hpcfl.methods.spec import SLOTS, AlgorithmSpec, PrototypeSpec

GAMMA = {"cifar10": 100.0, "cifar100": 200.0, "flowers102": 200.0, "tinyimagenet": 400.0, "spiral": 10.0}
GAMMA_DEFAULT = 100.0
"""γ for prototypes of unit length: ProtoNorm's grid search by dataset, its Fig. 2 for the spiral."""

PROTONORM = "Lee et al., ProtoNorm (Prototype Alignment and Upscaling)"
FEDTGP = "Zhang et al., FedTGP, AAAI 2024"
FEDORGP = "FedORGP (Orthogonality Regularization on Global Prototypes)"
HPCFL = "hpcfl"
SPARSE = "Sparse prototypes (CPS, PPA, CPKD)"
FEDSAP = "FedSAP (Scheduled and Adaptive Prototypes)"

PROTOTYPE_METHODS = {
    "local": PrototypeSpec(
        about="no exchange: the floor every method is compared with",
        paper="–",
        page="local",
        exchange=False,
        infer="head",
    ),
    "fedproto": PrototypeSpec(
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
    "protonorm": PrototypeSpec(
        about="means, moved apart on the sphere (Thomson problem), scaled by γ on the client",
        paper=PROTONORM,
        page="protonorm",
        aggregate="mean",  # Eq. (7)
        refine="thomson",  # Eq. (8)-(14)
        weight=10.0,  # the paper has λ = 1 with Euclid, published code 10 with mse
        infer="global",  # Eq. (6) says local; published code compares with global ones
    ),
    "fedtgp": PrototypeSpec(
        about="prototypes that the server trains by contrastive learning with an adaptive margin",
        paper=FEDTGP,
        page="fedtgp",
        refine="tgp",  # Eq. (5)-(10)
        weight=10.0,  # the paper's λ = 0.1 belongs to euclid
        infer="global",
    ),
    "fedtgp-scl": PrototypeSpec(
        about="FedTGP's ablation: standard contrastive loss, no margin",
        paper=f"{FEDTGP}, Table 6",
        page="fedtgp",
        refine="tgp",
        options={"margin": "none"},  # Eq. (6)
    ),
    "fedtgp-fm": PrototypeSpec(
        about="FedTGP's ablation: the margin is always τ",
        paper=f"{FEDTGP}, Table 6",
        page="fedtgp",
        refine="tgp",
        options={"margin": "fixed"},  # Eq. (7)
    ),
    "fedtgp-without-f": PrototypeSpec(
        about="FedTGP's ablation: trainable vectors without the further network F",
        paper=f"{FEDTGP}, Table 6",
        page="fedtgp",
        refine="tgp",
        options={"server_network": False},
    ),
    "fedorgp": PrototypeSpec(
        about="prototypes that the server trains towards orthogonality; clients follow their direction",
        paper=FEDORGP,
        page="fedorgp",
        refine="orthogonal",  # Eq. (3)-(5)
        distance="cosine",  # Eq. (8)
        weight=100.0,  # λ_c
        infer="head",
    ),
    "fedorgp-without-or": PrototypeSpec(
        about="FedORGP's ablation: clients follow the direction of the weighted mean",
        paper=f"{FEDORGP}, Table 5",
        page="fedorgp",
        aggregate="weighted",
        distance="cosine",
        weight=100.0,
        infer="head",
    ),
    "fedproto-sparse": PrototypeSpec(
        about="FedProto with sparse rows, aggregation without class counts, alignment by class frequency",
        paper=SPARSE,
        page="sparse",
        aggregate="ppa",  # Eq. (10), (11)
        sparsity=0.1,  # Eq. (7), (8); s = d/10 and d/2 in Table 1
        class_weights="proportional",  # Eq. (12)
    ),
    "fedtgp-sparse": PrototypeSpec(
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
    "fedsap": PrototypeSpec(
        about="FedProto with an alignment curriculum and prototypes as proxies of their classes",
        paper=FEDSAP,
        page="fedsap",
        weight=0.7,  # Eq. (7) with App. A: λ rises from 0 in round 20 to 0.7 in round 100
        curriculum="linear",
        proxy=1.0,  # Eq. (8), (9)
        infer="head",
    ),
    "fedsap-ssl": PrototypeSpec(
        about="FedSAP, followed by rounds that learn from unlabelled samples too",
        paper=FEDSAP,
        page="fedsap",
        weight=0.7,
        curriculum="linear",
        proxy=1.0,
        semi=100,  # Eq. (10)-(14), after 100 supervised rounds
        infer="head",
    ),
    "simplex": PrototypeSpec(
        about="the exact minimum of ProtoNorm's energy nearest to the round's means, by direction",
        paper=HPCFL,
        page="simplex",
        refine="simplex",
        distance="cosine",
        weight=100.0,
    ),
    "simplex-fixed": PrototypeSpec(
        about="control: a simplex drawn from the seed; nothing is ever exchanged",
        paper=HPCFL,
        page="simplex",
        refine="simplex",
        anchor="seed",
        distance="cosine",
        weight=100.0,
    ),
    "anchor": PrototypeSpec(
        about="every class owns its dimensions, chosen from the first round's means; then nothing travels",
        paper=HPCFL,
        page="anchor",
        refine="nonnegative",
        anchor="first",
        distance="cosine",
        weight=100.0,
        infer="head",
    ),
    "anchor-fixed": PrototypeSpec(
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


CATALOGUE: dict[str, AlgorithmSpec] = {**PROTOTYPE_METHODS, **BASELINES}


def method_spec(settings: MethodConfig, data: str) -> AlgorithmSpec:
    """Returns the catalogue's entry for a dataset, with what the configuration sets."""
    entry = CATALOGUE.get(settings.name) or user_algorithm(settings.name)
    if isinstance(entry, PrototypeSpec):
        return _prototype_spec(entry, settings, data)
    given = _given(settings)
    infer = given.pop("infer", entry.infer)
    if infer not in ("head", "trained") or (infer == "trained" and ACCURACY_TRAINED not in entry.metrics):
        raise BadInput(f"method.infer = {infer!r}: method {settings.name!r} has no such inference")
    return replace(entry, infer=infer, settings=_options(entry.Options, given, settings.name))


def user_algorithm(name: str) -> AlgorithmSpec:
    """Returns the entry of an algorithm that is given by import path or entry point."""
    path = user_path(name)
    if path is None:
        raise unknown("method.name", name, [*CATALOGUE, *registered()])
    found = load_user_object("name", path)
    trained = (ACCURACY_TRAINED,) if found.download_changes != "nothing" else ()
    return AlgorithmSpec(
        about=(found.__doc__ or "").strip().partition("\n")[0],
        paper="–",
        page="",
        algorithm=path,
        Options=found.Options,
        metrics=(*found.metrics, *trained),
        equal_heads=found.equal_heads,
    )


def _given(settings: MethodConfig) -> dict[str, Any]:
    """Returns the keys beside the name that the configuration sets to another value than the default."""
    defaults = {name: field.default for name, field in MethodConfig.model_fields.items()}
    return {
        key: value
        for key, value in settings.model_dump().items()
        if key != "name" and (key not in defaults or value != defaults[key])
    }


def _options(options: type[Section], given: dict[str, Any], owner: str) -> Section:
    """Returns checked options; raises BadInput with the full key."""
    for key in given.keys() - options.model_fields.keys():
        if key in MethodConfig.model_fields or key in OPTION_OWNERS:
            raise BadInput(f"method.{key} = {given[key]!r}: {owner!r} has no such option")
        raise unknown_key(key, options)
    try:
        return options.model_validate(given)
    except ValidationError as error:
        raise BadInput(error_message(error, "method")) from None


def unknown_key(key: str, *options: type[Section]) -> BadInput:
    """Returns the error for a key of [method] that neither a method nor one of its parts has."""
    known = [*MethodConfig.model_fields, *OPTION_OWNERS]
    known += [name for each in options for name in each.model_fields]
    return BadInput(f"unknown key method.{key}{nearest(f'method.{key}', [f'method.{k}' for k in known])}")


OPTION_OWNERS: dict[str, list[str]] = {}
"""The refinements that have an option."""
for _name, _part in REFINEMENTS.items():
    for _key in _part.Options.model_fields:
        OPTION_OWNERS.setdefault(_key, []).append(_name)


def _prototype_spec(entry: PrototypeSpec, settings: MethodConfig, data: str) -> PrototypeSpec:
    """Returns an entry of the prototype methods with the slots and options that the configuration sets."""
    entry = replace(entry, **entry.on.get(data, {}))
    slots = settings.model_dump(include={*SLOTS}, exclude_none=True)
    options = dict(settings.model_extra or {})
    if settings.infer == "trained":
        raise BadInput("method.infer = 'trained': prototypes do not change a client's head")
    if not entry.exchange:
        for slot in sorted((slots.keys() | options.keys()) - {"infer"}):
            if slot not in SLOTS and slot not in OPTION_OWNERS:
                raise unknown_key(slot)
            raise BadInput(f"method.{slot}: {settings.name!r} exchanges nothing and has no such slot")
        if settings.infer == "global":
            raise BadInput(f"method.infer = 'global': method {settings.name!r} has no global prototypes")
        if settings.forget:
            raise BadInput(f"method.forget = true: method {settings.name!r} has no global prototypes")
        return replace(entry, **slots)
    if settings.distance not in (None, entry.distance) and settings.weight is None:
        weight = find_part("distance", str(settings.distance)).weight
        if weight is None:
            raise BadInput(f"method.distance = {settings.distance!r}: needs its own method.weight")
        slots["weight"] = weight
    spec = replace(entry, **slots)
    refinement, aggregation = spec.refinement, spec.aggregation
    if settings.aggregate is None and (
        spec.anchor == "seed" or (refinement.learns and not aggregation.sends_products)
    ):
        spec = replace(spec, aggregate="mean")  # they do not use the aggregate
    known = {**refinement.Options.model_fields, **spec.aggregation.Options.model_fields}
    for key, value in options.items():
        if key not in known and key in OPTION_OWNERS:
            owners = " and ".join(OPTION_OWNERS[key])
            raise BadInput(f"method.{key} = {value!r}: belongs to refine = {owners}, not to {spec.refine!r}")
        if key not in known:
            raise unknown_key(key, refinement.Options, spec.aggregation.Options)
    checked: dict[str, Any] = {}
    for part in (refinement, spec.aggregation):
        own = {key: value for key, value in options.items() if key in part.Options.model_fields}
        defaults = dict(entry.options) if spec.refine == entry.refine and part is refinement else {}
        checked |= _options(part.Options, defaults | own, spec.refine).model_dump()
    spec = replace(spec, options=checked)
    check_slots(spec, slots | options, settings.forget)
    if settings.scale is None:
        spec = replace(spec, scale=_scale(spec, data))
    return spec


def _scale(spec: PrototypeSpec, data: str) -> float:
    """Returns γ of the dataset for prototypes of unit length; 1 otherwise and where only angles count."""
    unit_length = spec.refinement.unit_length or spec.anchor == "seed"
    return GAMMA.get(data, GAMMA_DEFAULT) if unit_length and not spec.distance_part.by_angle else 1.0
