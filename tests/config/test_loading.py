"""Configurations come back from files and logs as they went in."""

from functools import reduce
from pathlib import Path

import pytest

from hpcfl.config.identity import keys
from hpcfl.config.loading import dump_config, load_config
from hpcfl.config.schema import Config
from hpcfl.errors import BadInput
from hpcfl.log.reader import read_log
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
