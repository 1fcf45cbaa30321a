"""Every slot combines with every other or is refused with the reason."""

from itertools import product
from typing import Any

import pytest
import torch

from hpcfl.config.loading import load_config
from hpcfl.errors import BadInput
from hpcfl.methods.catalogue import CATALOGUE, OPTION_OWNERS, method_spec
from hpcfl.methods.combinations import CHOICES, refusal, refused_pairs, table
from hpcfl.methods.parts import AGGREGATES, REFINEMENTS
from hpcfl.methods.rules import check_dims, remarks
from tests.helpers.methods import K, build, prototype_spec, uploads_of
from tests.helpers.mpi import ROOT

D = 4


def test_the_page_has_the_table():
    assert (ROOT / "docs" / "methods" / "combinations.md").read_text().endswith(f"\n\n{table()}\n")


def all_slots():
    """Every filling of the slots that are in a refused pair; the flags also unset."""
    named = {slot for one, other, _ in refused_pairs() for slot, _ in (one, other)}
    every = {
        slot: (None, *values) if len(values) == 1 else values
        for slot, values in CHOICES.items()
        if slot in named
    }
    for values in product(*every.values()):
        yield {slot: value for slot, value in zip(every, values, strict=True) if value is not None}


def test_a_combination_is_refused_just_where_a_pair_of_it_is():
    pairs = [{one, other} for one, other, _ in refused_pairs()]
    for slots in all_slots():
        assert bool(refusal(**slots)) == any(pair <= set(slots.items()) for pair in pairs), slots


SERVED = [
    slots
    for values in product(CHOICES["refine"], CHOICES["anchor"], AGGREGATES, [False, True])
    if not refusal(**(slots := dict(zip(("refine", "anchor", "aggregate", "forget"), values, strict=True))))
]


@pytest.mark.parametrize("slots", SERVED, ids=lambda slots: "-".join(map(str, slots.values())))
def test_whatever_is_allowed_serves_two_rounds_and_guides(slots: dict[str, Any]):
    """With five classes in four dimensions, one of them nobody's, and a second round without class 0."""
    refine, anchor, forget = slots["refine"], slots["anchor"], slots["forget"]
    method = build((K, D), weight=1.0, **slots)
    first = method.initial()
    assert first.present_K.all() == (anchor == "seed")
    second = uploads_of(2, seed=1, features=D)
    for upload in second:
        upload.prototypes.present_K[0] = False
        upload.prototypes.value_KD[0] = 0
        upload.count_K[0] = 0
    last = method.update_global(0, first, uploads_of(3, features=D))
    new = method.update_global(1, last, second)
    for shared in (last, new):
        assert shared.finite
        assert not shared.value_KD[~shared.present_K].any()
    assert bool(new.present_K[0]) == (not forget)
    everybody = anchor != "round" or refine in ("tgp", "orthogonal")
    assert bool(new.present_K[-1]) == (everybody and not forget)
    if anchor != "round":
        assert new.equals(last)
    if refine in ("thomson", "simplex", "nonnegative"):
        torch.testing.assert_close(
            new.value_KD[new.present_K].norm(dim=1), torch.ones(int(new.present_K.sum()))
        )
    for distance, class_weights in product(CHOICES["distance"], CHOICES["class_weights"]):
        more: dict[str, Any] = {
            "distance": distance,
            "class_weights": class_weights,
            "proxy": 1.0,
            "curriculum": "linear",
        }
        guided = build((K, D), weight=1.0, **slots, **more)
        z_BD = torch.randn(4, D, requires_grad=True)
        pull = guided.local_loss.bind(50, guided.client_target(new), torch.ones(K))
        terms = pull(z_BD, torch.arange(4), (torch.randn(3, D), torch.tensor([1, 2, 1])))
        assert terms.keys() == {"align", "proxy", "consistency"}
        torch.stack([weight * term for weight, term in terms.values()]).sum().backward()
        assert z_BD.grad is not None
        assert z_BD.grad.isfinite().all()


VALUES: dict[str, Any] = {"iterations": 5, "server_epochs": 2, "server_network": False}
VALUES |= {"margin": "max-pair", "stopping": "whole", "solver_momentum": 0.5, "solver_decay": 0.5}
VALUES |= dict.fromkeys(("solver_decay_every", "solver_patience", "server_batch"), 3)


DEFAULTS = {name: part.Options().model_dump() for name, part in REFINEMENTS.items()}
"""The options of every refinement."""


@pytest.mark.parametrize("option", OPTION_OWNERS)
def test_an_option_belongs_to_its_refinements(option):
    value = VALUES.get(option, 3.0)
    for refine, defaults in DEFAULTS.items():
        given: dict[str, Any] = {"refine": refine, option: value}
        assert (option in defaults) == (refine in OPTION_OWNERS[option])
        if option in defaults:
            assert prototype_spec(**given).options == defaults | {option: value}
        else:
            with pytest.raises(BadInput, match=rf"method.{option} = .*: belongs to .*, not to '{refine}'"):
                prototype_spec(**given)


def test_an_entrys_options_do_not_outlive_its_refinement():
    assert prototype_spec(name="fedtgp-scl").options["margin"] == "none"
    assert prototype_spec(name="fedtgp-scl", refine="orthogonal").options == DEFAULTS["orthogonal"]


def test_an_aggregate_that_the_user_did_not_choose_gives_way():
    assert prototype_spec("spiral").aggregate == "weighted"
    assert prototype_spec("spiral", refine="tgp").aggregate == "mean"
    assert not prototype_spec("spiral", refine="tgp").sends_counts


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"name": "local", "forget": True}, "method.forget = true: method 'local' has no global prototypes"),
        ({"name": "fedorgp", "pull": 0.0, "push": 0.0}, "nothing is left to learn from"),
    ],
)
def test_what_means_nothing_is_refused(settings: dict[str, Any], said: str):
    with pytest.raises(BadInput, match=said):
        prototype_spec(**settings)


def test_without_a_margin_there_is_no_tau():
    with pytest.raises(BadInput, match="with margin = 'none' there is no margin"):
        prototype_spec(name="fedtgp-scl", tau=3.0)


@pytest.mark.parametrize(
    ("refine", "classes", "features", "said"),
    [
        ("thomson", 1, 8, "needs two classes, the data has 1"),
        ("tgp", 1, 8, "needs two classes, the data has 1"),
        ("simplex", 3, 1, "models.features = 1: refine = 'simplex' needs 2 or more"),
        ("nonnegative", 6, 2, "at most 2 different sets of dimensions, the data has 6 classes"),
    ],
)
def test_what_is_impossible_with_these_dimensions_is_said(refine, classes, features, said):
    with pytest.raises(BadInput, match=said):
        check_dims(prototype_spec(refine=refine), classes, features)


def test_remarks_say_where_the_geometry_gives_way():
    anchor, simplex = (prototype_spec(name=name) for name in ("anchor", "simplex"))
    assert remarks(anchor, 64, 64, 9) == remarks(simplex, 65, 64, 9) == []
    assert "share 64 dimensions" in remarks(anchor, 65, 64, 9)[0]
    assert "no regular simplex in 64 dimensions" in remarks(simplex, 66, 64, 9)[0]


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_method_has_its_page_with_the_same_headings_and_its_configuration(name):
    page = (ROOT / "docs" / "methods" / f"{CATALOGUE[name].page}.md").read_text()
    headings = [line for line in page.splitlines() if line.startswith("## ")]
    assert headings[:5] == [
        "## Idea",
        "## Equations as implemented",
        "## Parameters",
        "## What is logged",
        "## Implementation details and deviations",
    ]
    assert f"`{name}`" in page
    settings = load_config(str(ROOT / "configs" / f"{CATALOGUE[name].page}.toml"), []).method
    assert CATALOGUE[settings.name].page == CATALOGUE[name].page
    method_spec(settings, "cifar100")
