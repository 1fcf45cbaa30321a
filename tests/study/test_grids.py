"""Grids with options that only some methods have, and lists that are shortened on the command line."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from hpcfl.config.loading import load_config
from hpcfl.errors import BadInput
from hpcfl.share.lookup import STUDIES
from hpcfl.study.run import select_cells
from hpcfl.study.study_file import Study, read_study

STUDY = """
[set]
data.samples_per_class = 50
federation.rounds = 1
[[block]]
name = "a"
[block.grid]
method.name = ["local", "fedproto", "fedtgp"]
method.server_epochs = [2, 3]
federation.clients = [4, 5, 6]
[[block]]
name = "b"
[block.set]
federation.clients = 7
partition.name = "iid"
[block.grid]
seed = [0, 1]
"""
NOTE = "study: method.server_epochs is left out for local, fedproto: no such option"


def study(text: str = STUDY, *settings: str) -> Study:
    Path("study.toml").write_text(text)
    return read_study("study.toml", settings=settings)


def test_an_option_that_only_some_methods_have(hpcfl):
    found = study()
    names = [cell.name for cell in found.cells if cell.block == "a"]
    assert names == [
        *(f"a-local-{clients}" for clients in (4, 5, 6)),
        *(f"a-fedproto-{clients}" for clients in (4, 5, 6)),
        *(f"a-fedtgp-{epochs}-{clients}" for epochs in (2, 3) for clients in (4, 5, 6)),
    ]
    assert not any(cell.problem for cell in found.cells)
    assert "method.server_epochs" not in found.cells[0].values
    assert found.cells[-3].config is not None
    assert hpcfl("study", "status", "study.toml").output.count(NOTE) == 1
    done = hpcfl("study", "run", "study.toml", "--cell", "a-local-4", "--set", "partition.name=iid")
    assert done.exit_code == 0, done.output
    assert done.output.count(NOTE) == 1
    chosen = select_cells(found, ["a-*-2-4", "a-local-4", "a-local-[45]"])
    assert [cell.name for cell in chosen] == ["a-fedtgp-2-4", "a-local-4", "a-local-5"]
    with pytest.raises(BadInput, match=r"--cell a-\*-7: study.toml has no such cell"):
        select_cells(found, ["a-*-7"])


def test_an_option_of_no_method_is_refused(hpcfl):
    text = STUDY.replace(', "fedtgp"', "").replace('"local", ', "")
    done = study(text)
    assert {cell.problem for cell in done.cells if cell.block == "a"} == {
        *(
            f"method.server_epochs = {n}: belongs to refine = tgp and orthogonal, not to 'none'"
            for n in (2, 3)
        )
    }
    assert done.notes == ()
    with pytest.raises(BadInput, match=r"unknown key method.servr_epochs \(nearest: method.server_epochs\)"):
        study(STUDY.replace("server_epochs", "servr_epochs"))


@pytest.mark.parametrize("extra", ["method.server_lr = [0.1, 0.2]", "method.refine = ['tgp', 'none']"])
def test_options_of_baselines_and_slots(hpcfl, extra):
    """The first is FedGH's, the second a slot, which FedAvg does not have."""
    text = STUDY.replace('["local", "fedproto", "fedtgp"]', '["fedavg", "fedgh", "fedproto"]')
    text = text.replace("method.server_epochs = [2, 3]", f"{extra}\nmodels.list = [['mlp_64']]")
    found = study(text)
    assert not any(cell.problem for cell in found.cells)
    assert len([cell for cell in found.cells if cell.block == "a"]) == (1 + 2 + 1 if "lr" in extra else 4) * 3
    assert len(found.notes) == 1


def test_a_list_on_the_command_line_shortens_that_of_a_grid(hpcfl):
    found = study(STUDY, "federation.clients=[5, 6]", "seed=[1]")
    assert [cell.name for cell in found.cells] == [
        *(f"a-{method}-{clients}" for method in ("local", "fedproto") for clients in (5, 6)),
        *(f"a-fedtgp-{epochs}-{clients}" for epochs in (2, 3) for clients in (5, 6)),
        "b-s1",
    ]
    assert {cell.settings["federation.clients"] for cell in found.cells if cell.block == "b"} == {7}
    assert len(study(STUDY, "federation.clients=5").cells) == 4 + 2
    for value, reason in (("[]", "must have at least one value"), ("[5, 5]", "has the value 5 twice")):
        with pytest.raises(BadInput, match=reason):
            study(STUDY, f"federation.clients={value}")
    with pytest.raises(
        BadInput, match=r"a list shortens that of a grid, and no grid here has federation.rounds"
    ):
        study(STUDY, "federation.rounds=[1, 2]")
    with pytest.raises(BadInput, match=r"federation.rounds = \['a'\]: must be"):
        study(STUDY, "federation.rounds=['a']")


def test_train_says_that_a_study_is_a_study(hpcfl):
    study()
    Path("unfinished.toml").write_text('[grid]\nmethod.name = ["local", "fedproto"]\n')
    path = STUDIES / "papers/fedtgp-table1.toml"
    for name in ("study.toml", "unfinished.toml", "scalability", "papers/fedtgp-table1", path):
        done = hpcfl("train", name)
        assert done.exit_code == 2
        assert done.output == f"hpcfl: {name} is a study: hpcfl study run {name}\n"
    with pytest.raises(BadInput, match=r"^this configuration is a study: hpcfl study run FILE$"):
        load_config(tomllib.loads(STUDY))
