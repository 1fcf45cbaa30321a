"""Parts and algorithms from outside: what they declare, and what is refused."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from hpcfl.config.method import MethodConfig
from hpcfl.errors import BadInput
from hpcfl.methods.catalogue import GAMMA_DEFAULT, method_spec
from hpcfl.methods.parts import PARTS
from hpcfl.methods.plugins import KINDS, load
from hpcfl.methods.rules import check_dims
from hpcfl.methods.spec import PrototypeSpec
from tests.helpers.own_code import IDEAS, train, write_ideas


def spec(**slots: object) -> PrototypeSpec:
    found = method_spec(MethodConfig(name="fedproto", **slots), data="any")  # type: ignore[arg-type]
    assert isinstance(found, PrototypeSpec)
    return found


def refusal(**slots: object) -> str:
    with pytest.raises(BadInput) as caught:
        method_spec(MethodConfig(**{"name": "fedproto"} | slots), data="any")  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- what a part declares


@pytest.mark.parametrize(("slot", "name"), [(slot, name) for slot in PARTS for name in PARTS[slot]])
def test_the_classes_of_hpcfl_declare_what_their_entries_say(slot, name):
    part = PARTS[slot][name]
    declared = KINDS[slot].of(part.path, load(part.path))
    functions = {field.name for field in fields(part) if callable(field.default)} - {"Options"}
    for function in functions:
        for dims in ((2, 2), (6, 8), (9, 4), (1000, 3)):
            assert getattr(declared, function)(*dims) == getattr(part, function)(*dims)
    same = {function: getattr(part, function) for function in functions}
    assert replace(declared, about=part.about, paper=part.paper, **same) == part


def test_unit_length_gets_gamma(ideas):
    assert spec(refine="own_ideas:Unit").scale == GAMMA_DEFAULT
    assert spec(refine="own_ideas:MyThomson").scale == GAMMA_DEFAULT
    assert spec(refine="own_ideas:Shrink").scale == 1
    assert spec(refine="own_ideas:Unit", distance="own_ideas:angle").scale == 1, "only directions count"


def test_a_class_derived_from_one_of_hpcfl_inherits_its_declarations_and_options(ideas):
    assert spec(refine="own_ideas:MyThomson", iterations=7).options["iterations"] == 7
    with pytest.raises(BadInput, match="needs two classes"):
        check_dims(spec(refine="own_ideas:MyThomson"), 1, 8)


def test_what_learns_wants_the_uploads_of_every_round(ideas):
    assert refusal(refine="own_ideas:Learner", anchor="first") == (
        "method.anchor = 'first': refine = 'own_ideas:Learner' learns from the uploads of every round"
    )
    assert "learns from each client's own prototypes" in refusal(
        refine="own_ideas:Learner", aggregate="own_ideas:Counts"
    )
    assert spec(refine="own_ideas:Learner", aggregate="own_ideas:Keeps").sends_products


def test_a_reason_against_masks_refuses_sparsity(ideas):
    assert refusal(refine="own_ideas:Unit", sparsity=2) == (
        "method.sparsity = 2: refine = 'own_ideas:Unit' has its reasons"
    )
    assert spec(refine="own_ideas:Shrink", sparsity=2).sparsity == 2


def test_limits_of_classes_and_features_are_kept(ideas):
    with pytest.raises(BadInput, match="needs 7 classes, the data has 6"):
        check_dims(spec(refine="own_ideas:Unit"), 6, 8)
    with pytest.raises(BadInput, match="refine = 'own_ideas:Unit' is odd"):
        check_dims(spec(refine="own_ideas:Unit"), 7, 9)
    check_dims(spec(refine="own_ideas:Unit"), 7, 8)


def test_what_an_aggregation_declares_decides_what_travels(ideas):
    counts, keeps = spec(aggregate="own_ideas:Counts"), spec(aggregate="own_ideas:Keeps")
    assert (counts.sends_counts, counts.sends_products) == (True, False)
    assert (keeps.sends_counts, keeps.sends_products) == (False, True)
    assert "goes on with every client's last upload" in refusal(aggregate="own_ideas:Keeps", forget=True)
    assert "anchor = 'first' settles lengths" in refusal(aggregate="own_ideas:Keeps", anchor="first")


def test_a_distance_has_its_own_weight_or_needs_one(ideas):
    assert spec(distance="own_ideas:angle").weight == 3
    assert "compares directions" in refusal(distance="own_ideas:angle", scale=2.0)
    assert refusal(distance="own_ideas:plain") == (
        "method.distance = 'own_ideas:plain': needs its own method.weight"
    )
    assert spec(distance="own_ideas:plain", weight=2.0).weight == 2


# --- what is refused


def test_options_are_checked_with_their_full_key(ideas):
    assert refusal(refine="own_ideas:Shrink", strength=-1.0) == (
        "method.strength = -1.0: must be greater than 0"
    )
    assert refusal(refine="own_ideas:Shrink", strenght=1.0) == (
        "unknown key method.strenght (nearest: method.strength)"
    )
    assert "method.strength" in refusal(strength=0.3)
    assert spec(refine="own_ideas:Shrink", strength=0.3).options == {"strength": 0.3}


def test_two_parts_with_the_same_option_are_refused(ideas):
    assert refusal(refine="own_ideas:Shrink", aggregate="own_ideas:Keeps") == (
        "method.strength: method.refine and method.aggregate both have this option"
    )
    assert refusal(refine="own_ideas:Slotted") == (
        "method.refine: own_ideas:Slotted has the option 'weight', a key of [method] already"
    )


@pytest.mark.parametrize(
    ("slot", "name", "reason"),
    [
        ("refine", "Unrelated", "is not a class derived from hpcfl.methods.refine.base.Refinement"),
        ("refine", "plain", "is not a class derived from hpcfl.methods.refine.base.Refinement"),
        ("refine", "number", "is not a class derived from hpcfl.methods.refine.base.Refinement"),
        ("refine", "Counts", "is not a class derived from hpcfl.methods.refine.base.Refinement"),
        ("refine", "BadMask", "no_masks = True must be of type str"),
        ("refine", "BadOptions", "must be a class derived from Section"),
        ("aggregate", "Shrink", "is not a class derived from hpcfl.methods.aggregate.Aggregate"),
        ("distance", "Shrink", "is not a function (features, prototypes) → distances"),
        ("distance", "number", "is not a function (features, prototypes) → distances"),
        ("name", "Shrink", "is not a class derived from hpcfl.algorithms.algorithm.Algorithm"),
        ("name", "Algorithm", "is not a class derived from hpcfl.algorithms.algorithm.Algorithm"),
        ("name", "Incomplete", "does not define aggregate"),
        ("name", "BadAlgorithm", "download_changes = 'heads': allowed is one of nothing, head, network"),
        ("name", "BadReceivers", "a download that changes the head must go to all"),
    ],
)
def test_a_wrong_class_is_refused_with_its_line(ideas, slot, name, reason):
    text = refusal(**{slot: f"own_ideas:{name}"})
    assert reason in text
    assert f"own_ideas:{name}" in text
    starts = f"class {name}", f"def {name}"
    lines = [n for n, line in enumerate(IDEAS.splitlines(), 1) if line.startswith(starts)]
    if lines:
        assert f"({ideas / 'own_ideas.py'}:{lines[0]})" in text


def test_an_unknown_name_is_refused_with_all_known_ones():
    for slot in ("name", "refine", "aggregate", "distance"):
        text = refusal(**{slot: "whitn"})
        assert text.startswith(f"method.{slot} = 'whitn': allowed is one of ")


@pytest.mark.parametrize("name", ["own_ideas:Missing", "own_nowhere:Shrink", "own_broken:Shrink"])
def test_a_path_that_cannot_be_loaded_is_one_sentence_with_code_2(tmp_path, name):
    write_ideas(tmp_path)
    (tmp_path / "own_broken.py").write_text("import own_ideas\n\ndef f(:\n")
    done = train(tmp_path, f"method.refine={name}")
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("hpcfl: method.refine: ")
    if "broken" in name:
        assert f"{tmp_path / 'own_broken.py'}:3)" in done.stderr
