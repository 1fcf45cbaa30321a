"""Configurations come back from files and logs as they went in."""

from functools import reduce
from pathlib import Path

import pytest
import tomli_w

from hpcfl.config.identity import keys
from hpcfl.config.loading import dump_config, load_config
from hpcfl.config.method import MethodConfig
from hpcfl.config.schema import Config
from hpcfl.errors import BadInput
from hpcfl.log.reader import read_log
from hpcfl.methods.baselines import BASELINES
from hpcfl.methods.declarations import Part
from hpcfl.methods.parts import AGGREGATES, REFINEMENTS
from hpcfl.methods.spec import AlgorithmSpec
from tests.helpers.mpi import ROOT


def test_a_configuration_survives_its_log(hpcfl):
    Path("c.toml").write_text('[models]\nlist = ["mlp_64"]\n[federation]\nclients = 3\nrounds = 1\n')
    hpcfl("train", "c.toml", "--out", "a.h5")
    assert read_log("a.h5").config == load_config("c.toml")
    Path("again.toml").write_text(dump_config(load_config("c.toml")))
    assert load_config("again.toml") == load_config("c.toml")


def test_the_quick_start_file_holds_every_key_with_its_default_and_its_meaning():
    path = ROOT / "configs" / "quickstart.toml"
    assert load_config(str(path)) == load_config()
    text = path.read_text()
    for key in keys():
        *section, name = key.split(".")
        owner = type(reduce(getattr, section, Config()))
        assert f"# {owner.model_fields[name].description}\n" in text, key
        assert f"{name} = " in text, key


OWNERS: dict[str, Part | AlgorithmSpec] = {**REFINEMENTS, **AGGREGATES, **BASELINES}
"""Parts and methods that may have options."""


@pytest.mark.parametrize(
    "key", sorted({key for owner in OWNERS.values() for key in owner.Options.model_fields})
)
def test_the_quick_start_file_holds_every_option_with_its_owners_default_and_meaning(key):
    text = (ROOT / "configs" / "quickstart.toml").read_text()
    fields = {
        name: owner.Options.model_fields[key]
        for name, owner in OWNERS.items()
        if key in owner.Options.model_fields
    }
    common = MethodConfig.model_fields.get(key)
    if common and all(
        (field.description, field.default) == (common.description, common.default)
        for field in fields.values()
    ):
        return  # its line is the one of the common key
    for about in {str(field.description) for field in fields.values()}:
        owners = [name for name, field in fields.items() if field.description == about]
        assert f"# {', '.join(owners)}: {about[0].lower()}{about[1:]}\n" in text
    if len({field.default for field in fields.values()}) > 1 or key in MethodConfig.model_fields:
        unset = {None: "unset"}
        each = ", ".join(
            f"{name} {unset.get(field.default, field.default)}" for name, field in fields.items()
        )
        assert f"# Defaults: {each}.\n" in text
    if key not in MethodConfig.model_fields:
        first = next(iter(fields.values())).default
        assert f"# {f'{key} = ' if first is None else tomli_w.dumps({key: first})}" in text


def test_an_empty_file_is_the_quick_start(tmp_path):
    (tmp_path / "empty.toml").write_text("")
    assert load_config(str(tmp_path / "empty.toml")) == load_config()


def test_what_python_cannot_print_is_refused():
    deep: dict = {}
    for _ in range(3000):
        deep = {"a": deep}
    for values, says in (
        ({"seed": 1 << 20000}, "an integer of 20001 bits"),
        ({"models.pretrained": deep}, "nested too deeply"),
    ):
        with pytest.raises(BadInput, match=says):
            load_config(values)


def test_a_setting_of_networks_replaces_those_of_the_file():
    assert load_config({"models": {"group": "htfe4"}}, ["models.list=['cnn']"]).models.list == ["cnn"]
    given = {"models": {"list": ["cnn"], "weights": [1]}}
    assert load_config(given, ["models.group=htfe4"]) == load_config(None, ["models.group=htfe4"])
    assert given == {"models": {"list": ["cnn"], "weights": [1]}}, "what was given is not changed"
