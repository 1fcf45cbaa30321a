"""The catalogue: every method by name, as an `AlgorithmSpec`. Does not import torch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from hpcfl.config.loading import error_message
from hpcfl.config.method import MethodConfig
from hpcfl.config.schema import Config
from hpcfl.config.section import Section
from hpcfl.errors import BadInput, NoSuchOption, nearest_key, unknown
from hpcfl.methods.baselines import BASELINES
from hpcfl.methods.parts import REFINEMENTS
from hpcfl.methods.plugins import find_part, registered
from hpcfl.methods.prototype_methods import PROTOTYPE_METHODS
from hpcfl.methods.rules import check_slots
from hpcfl.methods.spec import SLOTS, AlgorithmSpec, PrototypeSpec
from hpcfl.methods.user_algorithm import user_algorithm

GAMMA = {"cifar10": 100.0, "cifar100": 200.0, "flowers102": 200.0, "tinyimagenet": 400.0, "spiral": 10.0}
GAMMA_DEFAULT = 100.0
"""γ for prototypes of unit length: ProtoNorm's grid search by dataset, its Fig. 2 for the spiral."""

CATALOGUE: dict[str, AlgorithmSpec] = {**PROTOTYPE_METHODS, **BASELINES}


def method_spec(settings: MethodConfig, data: str) -> AlgorithmSpec:
    """Returns the catalogue's entry for a dataset, with what the configuration sets."""
    entry = find_method(settings.name)
    if isinstance(entry, PrototypeSpec):
        return _prototype_spec(entry, settings, data)
    given = _given(settings)
    infer = given.pop("infer", entry.infer)
    if infer != "head" and f"/client/accuracy_{infer}" not in [metric.path for metric in entry.metrics]:
        raise BadInput(f"method.infer = {infer!r}: method {settings.name!r} has no such inference")
    return replace(entry, infer=infer, settings=_options(entry.Options, given, settings.name))


def check_method(config: Config) -> Config:
    """Returns a configuration with the method's options as their classes read them: 3 is 3.0 for a float.

    So options that mean the same make the same run. Raises BadInput if the method or an option is wrong.
    """
    spec = method_spec(config.method, config.data.name)
    values = spec.settings.model_dump() | (dict(spec.options) if isinstance(spec, PrototypeSpec) else {})
    given = {key: values[key] for key, value in config.method.options.items() if value is not None}
    return config.model_copy(update={"method": config.method.model_copy(update=given)})


def find_method(name: str) -> AlgorithmSpec:
    """Returns the entry of a method by name, entry point or import path; raises BadInput if there is none."""
    entry = CATALOGUE.get(name) or user_algorithm(name)
    if entry is None:
        raise unknown("method.name", name, [*CATALOGUE, *registered()])
    return entry


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
        if key in MethodConfig.model_fields or key in OPTION_NAMES:
            raise NoSuchOption(
                f"method.{key}", f"method.{key} = {given[key]!r}: {owner!r} has no such option"
            )
        raise unknown_key(key, options)
    try:
        return options.model_validate({key: value for key, value in given.items() if value is not None})
    except ValidationError as error:
        raise BadInput(error_message(error, "method")) from None


def unknown_key(key: str, *options: type[Section]) -> NoSuchOption:
    """Returns the error for a key of [method] that neither a method nor one of its parts has."""
    known = [*MethodConfig.model_fields, *OPTION_OWNERS]
    known += [name for each in options for name in each.model_fields]
    nearest = nearest_key(f"method.{key}", [f"method.{name}" for name in known])
    return NoSuchOption(f"method.{key}", f"unknown key method.{key}{nearest}")


OPTION_OWNERS: dict[str, list[str]] = {}
"""The refinements that have an option."""
for _name, _part in REFINEMENTS.items():
    for _key in _part.Options.model_fields:
        OPTION_OWNERS.setdefault(_key, []).append(_name)
OPTION_NAMES = [*OPTION_OWNERS, *(key for entry in BASELINES.values() for key in entry.Options.model_fields)]
"""The keys of [method] that are options of hpcfl's own algorithms and parts."""


def _prototype_spec(entry: PrototypeSpec, settings: MethodConfig, data: str) -> PrototypeSpec:
    """Returns an entry of the prototype methods with the slots and options that the configuration sets."""
    entry = replace(entry, **entry.on.get(data, {}))
    slots = settings.model_dump(include={*SLOTS}, exclude_none=True)
    options = settings.options
    if settings.infer == "trained":
        raise BadInput("method.infer = 'trained': prototypes do not change a client's head")
    if not entry.exchange:
        for slot in sorted((slots.keys() | options.keys()) - {"infer"}):
            if slot not in SLOTS and slot not in OPTION_NAMES:
                raise unknown_key(slot)
            reason = f"{settings.name!r} exchanges nothing and has no such slot"
            raise NoSuchOption(f"method.{slot}", f"method.{slot}: {reason}")
        if settings.infer == "global":
            raise BadInput(f"method.infer = 'global': method {settings.name!r} has no global prototypes")
        if settings.forget:
            raise BadInput(f"method.forget = true: method {settings.name!r} has no global prototypes")
        return replace(entry, **slots)
    if settings.distance not in (None, entry.distance) and settings.weight is None:
        distance = str(settings.distance)
        weight = entry.weights.get(distance, find_part("distance", distance).weight)
        if weight is None:
            raise BadInput(f"method.distance = {settings.distance!r}: needs its own method.weight")
        slots["weight"] = weight
    spec = replace(entry, **slots)
    refinement, aggregation = spec.refinement, spec.aggregation
    if settings.aggregate is None and (
        spec.anchor == "seed" or (refinement.learns and not aggregation.sends_products)
    ):
        spec = replace(spec, aggregate="mean")  # they do not use the aggregate
    spec = replace(spec, **_options_of_parts(entry, spec, options))
    check_slots(spec, slots | options, settings.forget)
    if settings.scale is None:
        spec = replace(spec, scale=_scale(spec, data))
    return spec


def _options_of_parts(entry: PrototypeSpec, spec: PrototypeSpec, given: dict[str, Any]) -> dict[str, Any]:
    """Returns the checked options of the algorithm (`settings`) and of its parts (`options`)."""
    owners = {
        "name": entry.Options,
        "refine": spec.refinement.Options,
        "aggregate": spec.aggregation.Options,
    }
    known: dict[str, str] = {}
    for slot, options in owners.items():
        for key in options.model_fields:
            if key in known:
                raise BadInput(f"method.{key}: method.{known[key]} and method.{slot} both have this option")
            known[key] = slot
    for key, value in given.items():
        if key not in known and key in OPTION_OWNERS:
            names = " and ".join(OPTION_OWNERS[key])
            reason = f"belongs to refine = {names}, not to {spec.refine!r}"
            raise NoSuchOption(f"method.{key}", f"method.{key} = {value!r}: {reason}")
        if key not in known and key in OPTION_NAMES:
            raise NoSuchOption(f"method.{key}", f"method.{key} = {value!r}: no option of this method")
        if key not in known:
            raise unknown_key(key, *owners.values())
    checked: dict[str, Section] = {}
    for slot, options in owners.items():
        own = {key: value for key, value in given.items() if known[key] == slot}
        defaults = dict(entry.options) if slot == "refine" and spec.refine == entry.refine else {}
        checked[slot] = _options(options, defaults | own, spec.refine)
    settings = checked.pop("name")
    values = {key: value for part in checked.values() for key, value in part.model_dump().items()}
    return {"settings": settings, "options": values}


def _scale(spec: PrototypeSpec, data: str) -> float:
    """Returns γ of the dataset for prototypes of unit length; 1 otherwise and where only angles count."""
    unit_length = spec.refinement.unit_length or spec.anchor == "seed"
    return GAMMA.get(data, GAMMA_DEFAULT) if unit_length and not spec.distance_part.by_angle else 1.0
