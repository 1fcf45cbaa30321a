"""The catalogue entry of an algorithm that is given by import path or entry point. No torch of its own."""

from __future__ import annotations

from typing import Any

from hpcfl.config.method import MethodConfig
from hpcfl.config.section import Section
from hpcfl.errors import BadInput
from hpcfl.methods.baseline_metrics import ACCURACY_TRAINED
from hpcfl.methods.declared_metrics import PROTOTYPE_METRICS
from hpcfl.methods.plugins import load, load_user_object, user_path
from hpcfl.methods.spec import AlgorithmSpec, PrototypeSpec
from hpcfl.metrics.metric import Metric, declare, evaluated
from hpcfl.utils.user_code import place

PROTOTYPES = "hpcfl.algorithms.prototype_algorithm:PrototypeAlgorithm"
RESERVED = {"name", "infer", "prototypes", "forget", "own_classes"}
"""Keys of [method] that no option may have as its name: they mean the same for every algorithm."""


def user_algorithm(name: str) -> AlgorithmSpec | None:
    """Returns the entry of a user's algorithm, from what its class declares; None: the name is no path.

    An algorithm that is derived from `PrototypeAlgorithm` has the slots of a prototype method.
    """
    path = user_path(name)
    if path is None:
        return None
    found = load_user_object("name", path)
    is_prototypes = issubclass(found, load(PROTOTYPES))
    _check(path, found, {*MethodConfig.model_fields} if is_prototypes else RESERVED)
    entry: dict[str, Any] = {
        "about": (found.__doc__ or "").strip().partition("\n")[0],
        "paper": getattr(found, "paper", "–"),
        "page": "",
        "algorithm": path,
        "Options": found.Options,
    }
    if is_prototypes:
        own = [metric for metric in found.metrics if metric not in PROTOTYPE_METRICS]
        return PrototypeSpec(**entry, metrics=(*PROTOTYPE_METRICS, *own))
    trained = [ACCURACY_TRAINED] if found.download_changes != "nothing" else []
    own = [metric for metric in (*found.metrics, *_predicted(found)) if metric not in trained]
    known = {"round", "saved", "client", "class", "feature", *found.dimensions}
    for metric in own:
        if lacking := [dim for dim in metric.dims if dim not in known]:
            where = f"method.name: {path}{place(found)}"
            raise BadInput(f"{where}: {metric.path} has the dimension {lacking[0]!r}, `dimensions` does not")
    return AlgorithmSpec(
        **entry,
        metrics=(*own, *trained),
        dimensions=found.dimensions,
        equal_heads=found.equal_heads,
        equal_networks=found.equal_networks,
        head_kind=found.head_kind,
    )


def _predicted(found: Any) -> list[Metric]:
    """Returns the metrics of what a class predicts, where it does not declare them itself."""
    declared = {metric.path for metric in found.metrics}
    names = {name: f"/client/accuracy_{name}" for name in found.predictions}
    return [
        declare(path, "round client", "f8", f"accuracy by {name}; NaN: none", evaluated(f"accuracy_{name}"))
        for name, path in names.items()
        if path not in declared
    ]


def _check(path: str, found: Any, reserved: set[str]) -> None:
    """Raises BadInput if a class declares something that cannot be."""
    start = f"method.name: {path}{place(found)}"
    if not isinstance(found.Options, type) or not issubclass(found.Options, Section):
        raise BadInput(f"{start}: Options must be a class derived from Section")
    if taken := sorted(found.Options.model_fields.keys() & reserved):
        raise BadInput(f"{start}: has the option {taken[0]!r}, a key of [method] already")
    if not all(isinstance(metric, Metric) for metric in found.metrics):
        raise BadInput(f"{start}: metrics must be declared by hpcfl.metrics.metric.declare")
    for attribute, allowed in {
        "download_changes": ("nothing", "head", "network"),
        "receivers": ("participants", "all", "once"),
        "head_kind": ("", "prototypes"),
    }.items():
        if (value := getattr(found, attribute)) not in allowed:
            raise BadInput(f"{start}: {attribute} = {value!r}: allowed is one of {', '.join(allowed)}")
    if found.download_changes != "nothing" and found.receivers != "all":
        raise BadInput(f"{start}: a download that changes the {found.download_changes} must go to all")
    if found.recovers and found.download_changes != "network":
        raise BadInput(f"{start}: clients recover only if a download changes the network")
