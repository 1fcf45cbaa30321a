"""The identity of a run: what it depends on, and what it must not depend on."""

from __future__ import annotations

import pytest

from hpcfl.config.identity import difference, fingerprint, identity, identity_but_for_seeds, keys
from hpcfl.config.loading import dump_config, load_config, parse_config
from hpcfl.config.schema import Config
from hpcfl.config.train import TrainConfig
from hpcfl.federation.run_plan import plan_run
from hpcfl.log.existing_run import default_log_path
from hpcfl.methods.catalogue import check_method

CHECKSUMS = {"data": "0a", "split": "1b"}
SETTINGS = ["method.name=fedtgp", "train.lr=0.1", "federation.participation=5", "seed=3"]


class LaterTrain(TrainConfig):
    """The section `train` of a later version, with two keys more."""

    averaging: float = 0.0
    schedule: list[int] | None = None


class LaterConfig(Config):
    train: TrainConfig = LaterTrain()


def later(config: Config) -> Config:
    """Returns the same configuration as a later version reads it."""
    return LaterConfig(**(dict(config) | {"train": LaterTrain(**dict(config.train))}))


@pytest.mark.parametrize("settings", [[], SETTINGS])
def test_a_new_key_that_is_not_set_changes_nothing(settings):
    before = load_config(None, settings)
    after = later(before)
    assert len(list(keys(LaterTrain))) == len(list(keys(TrainConfig))) + 2
    assert fingerprint(after) == fingerprint(before)
    assert identity(after, CHECKSUMS) == identity(before, CHECKSUMS)
    assert identity_but_for_seeds(after) == identity_but_for_seeds(before)
    assert default_log_path(after) == default_log_path(before)
    assert difference(parse_config(dump_config(before)), before) == ""


def test_a_new_key_that_is_set_is_another_run():
    after = later(Config())
    changed = after.model_copy(update={"train": LaterTrain(averaging=0.5)})
    for digest in (fingerprint, identity, identity_but_for_seeds):
        assert digest(changed) != digest(after)


def test_identity_is_a_promise():
    """These values name logs and checkpoints that users have: a change of them must be announced."""
    quick_start, other = load_config(), load_config(None, SETTINGS)
    assert (fingerprint(quick_start), fingerprint(other)) == ("3833238a", "f2000a49")
    assert identity(other, CHECKSUMS) == "508c8b8c235f06eee5911d0415aa0465"


def test_options_count_as_they_did_when_they_were_keys():
    """A whole number for a float is that float; these values name logs and checkpoints that users have."""
    for settings, names in (
        (["method.name=fedtgp", "method.tau=3"], "a96c650d"),
        (["method.name=fedtgp", "method.tau=3.0"], "a96c650d"),
        (["method.name=fedtgp", "method.server_epochs=5"], "788ac6a4"),
        (["method.name=fedorgp", "method.pull=2"], "fe63787a"),
    ):
        config = plan_run(load_config(None, settings)).config
        assert fingerprint(config) == names
        assert fingerprint(check_method(config)) == names
        assert fingerprint(parse_config(dump_config(config))) == names
    plain, other = (load_config(None, ["method.name=fedtgp", *more]) for more in ([], ["method.tau=7.0"]))
    assert difference(plain, other) == "method.tau = None there, 7.0 here"
    assert difference(other, plain) == "method.tau = 7.0 there, None here"


def test_an_option_that_is_none_is_not_set():
    config = load_config({"method.name": "fedtgp", "method.tau": None})
    assert fingerprint(config) == fingerprint(load_config(None, ["method.name=fedtgp"]))
    assert plan_run(config).spec == plan_run(load_config(None, ["method.name=fedtgp"])).spec


def test_a_key_set_to_its_default_is_not_set():
    assert fingerprint(load_config(None, ["train.lr=0.01", "method.forget=false"])) == fingerprint(Config())


def test_every_key_that_changes_results_counts():
    """Rounds do not separate runs that may continue each other; where and how a run is done never counts."""
    plain = load_config()
    for setting in ("train.lr=0.5", "method.name=local", "runtime.threads=2", "models.list=['mlp_64']"):
        assert identity(load_config(None, [setting])) != identity(plain), setting
    longer = load_config(None, ["federation.rounds=26"])
    assert identity(longer) == identity(plain)
    assert fingerprint(longer) != fingerprint(plain)
    elsewhere = load_config(None, ["data.root=/elsewhere", "runtime.arena=private"])
    assert (fingerprint(elsewhere), identity(elsewhere)) == (fingerprint(plain), identity(plain))
    assert difference(elsewhere, plain) == ""


def test_one_client_is_not_all_clients():
    """participation = 1 is one client, 1.0 all of them: equal numbers, different runs."""
    one, all_ = (load_config(None, [f"federation.participation={value}"]) for value in ("1", "1.0"))
    assert fingerprint(one) != fingerprint(all_) == fingerprint(Config())
    assert difference(one, all_) == "federation.participation = 1 there, 1.0 here"


def test_the_order_of_pretrained_files_does_not_matter():
    tables = [
        {"models": {"pretrained": dict(pairs)}}
        for pairs in ((("a", "1"), ("b", "2")), (("b", "2"), ("a", "1")))
    ]
    one, other = map(load_config, tables)
    assert fingerprint(one) == fingerprint(other)
    assert difference(one, other) == ""
