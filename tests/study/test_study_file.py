"""Study files: which cells they make, in which order, and how these are called."""

import itertools
import re
import subprocess
import sys
import tomllib

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcfl.config.loading import load_config
from hpcfl.errors import BadInput
from hpcfl.study.cells import seed_group
from hpcfl.study.study_file import read_study
from tests.helpers.mpi import ROOT

GRID = """
[[block]]
name = "a"
[block.grid]
method.name = ["fedproto", "protonorm"]
federation.clients = [20, 40]
seed = [0, 1]
"""


def test_the_last_key_of_a_grid_varies_fastest(study):
    made = study('about = "why"' + GRID)
    assert (made.name, made.scale, made.about, made.path.name) == ("s", "full", "why", "s.toml")
    assert made.text.startswith("about")
    assert [tuple(cell.values.items()) for cell in made.cells] == [
        (("method.name", method), ("federation.clients", clients), ("seed", seed))
        for method in ("fedproto", "protonorm")
        for clients in (20, 40)
        for seed in (0, 1)
    ]
    assert [cell.name for cell in made.cells][:3] == [
        "a-fedproto-20-s0",
        "a-fedproto-20-s1",
        "a-fedproto-40-s0",
    ]
    assert made.cells[-1].config is not None
    assert made.cells[-1].config.federation.clients == 40
    assert {cell.ranks for cell in made.cells} == {None}


VALUES: dict[str, list] = {
    "method.name": ["fedproto", "protonorm", "fedtgp", "fedorgp"],
    "federation.clients": [5, 10, 20],
    "federation.participation": [1, 1.0, 0.5, 2],
    "partition.alpha": [0.1, 1.0, 2],
    "method.forget": [True, False],
    "seed": [0, 1, 2],
    "ranks": [2, 3, 5],
    "models.list": [["mlp_64"], ["mlp_64", "mlp_256"], ["mlp_32x3"]],
}


def lists(keys):
    return st.fixed_dictionaries(
        {key: st.lists(st.sampled_from(VALUES[key]), min_size=1, unique_by=repr) for key in keys}
    )


@st.composite
def studies(draw):
    """Returns grid, list of cells and exclusions over some of the keys."""
    keys = draw(st.lists(st.sampled_from([*VALUES]), min_size=1, max_size=4, unique=True))
    listed = keys[: draw(st.integers(0, len(keys)))]
    grid = draw(lists(keys[len(listed) :]))
    every = [
        dict(zip(listed, values, strict=True))
        for values in itertools.product(*(VALUES[key] for key in listed))
    ]
    cells = draw(st.lists(st.sampled_from(every), min_size=1, max_size=4, unique_by=repr)) if listed else []
    exclude = draw(
        st.lists(st.lists(st.sampled_from(keys), min_size=1, unique=True).flatmap(lists), max_size=2)
    )
    return grid, cells, exclude


@settings(max_examples=150, deadline=None)
@given(studies(), st.booleans())
def test_cells_are_those_of_nested_loops(tmp_path_factory, drawn, nested):
    grid, cells, exclude = drawn
    block = {"name": "b", "grid": deep(grid) if nested else grid, "small": {"exclude": exclude}}
    block |= {"cells": [deep(cell) if nested else cell for cell in cells]} if cells else {}
    text = tomli_w.dumps({"block": [block]})
    [block] = tomllib.loads(text)["block"]  # in the order of the file
    grid, cells = shallow(block["grid"]), [shallow(cell) for cell in block.get("cells", [{}])]
    want = []
    for cell in cells:
        for values in itertools.product(*grid.values()):
            own = cell | dict(zip(grid, values, strict=True))
            # exclusions say one of several values, each of its type
            if not any(all(repr(own[key]) in map(repr, each[key]) for key in each) for each in exclude):
                want.append(own)
    path = tmp_path_factory.mktemp("study") / "s.toml"
    path.write_text(text)
    if not want:
        with pytest.raises(BadInput, match="no cell is left"):
            read_study(path, "small")
        return
    made = read_study(path, "small").cells  # where an exclusion may miss
    got = [{**cell.settings} | ({"ranks": cell.ranks} if cell.ranks else {}) for cell in made]
    assert list(map(repr, map(ordered, got))) == list(map(repr, map(ordered, want)))
    for cell, own in zip(made, want, strict=True):
        assert repr(list(cell.values.items())) == repr(list(own.items()))
    assert len({cell.name.lower() for cell in made}) == len(made)
    assert all(re.fullmatch(r"[A-Za-z0-9._+=-]{1,120}", cell.name) for cell in made)
    groups: dict = {}
    for cell, own in zip(made, want, strict=True):
        groups.setdefault(seed_group(cell.block, cell.values), set()).add(
            repr(ordered({key: own[key] for key in own if key != "seed"}))
        )
    assert all(len(members) == 1 for members in groups.values())
    assert len({repr(ordered({key: own[key] for key in own if key != "seed"})) for own in want}) == len(
        groups
    )


def deep(table):
    tables: dict = {}
    for key, value in table.items():
        section, _, last = key.rpartition(".")
        (tables.setdefault(section, {}) if section else tables)[last] = value
    return tables


def shallow(tables):
    flat: dict = {}
    for name, value in tables.items():
        flat |= (
            {f"{name}.{last}": inner for last, inner in value.items()}
            if isinstance(value, dict)
            else {name: value}
        )
    return flat


def ordered(table):
    return dict(sorted(table.items()))


LAYERS = """
config = "base.toml"
set.train = {lr = 0.2, epochs = 2, batch_size = 2, momentum = 0.2}
set.seed = 2
[[block]]
name = "b"
set = {train.epochs = 3, train.batch_size = 3, train.momentum = 0.3}
cells = [{train.batch_size = 4, train.momentum = 0.4}]
[block.small.set]
train.epochs = 6
[small.set]
train = {lr = 0.5, epochs = 5}
"""


@pytest.mark.parametrize(
    ("scale", "want"),
    [("full", [1, 2, 0.2, 3, 4, 0.9]), ("small", [1, 2, 0.5, 6, 4, 0.9])],
)
def test_what_lies_on_top_of_what(study, tmp_path, scale, want):
    (tmp_path / "base.toml").write_text(
        "seed = 1\n[data]\nsamples_per_class = 1\n[train]\nlr = 0.1\nepochs = 1"
    )
    [cell] = study(LAYERS, scale, "train.momentum=0.9").cells
    keys = [
        "data.samples_per_class",
        "seed",
        "train.lr",
        "train.epochs",
        "train.batch_size",
        "train.momentum",
    ]
    assert [cell.settings[key] for key in keys] == want
    assert cell.config == load_config(None, [f"{key}={value}" for key, value in zip(keys, want, strict=True)])
    assert (cell.name, dict(cell.values)) == (
        "b-batch_size=4-momentum=0.9",
        {"train.batch_size": 4, "train.momentum": 0.9},
    )


TWO_SCALES = """
[[exclude]]
seed = 1
federation.clients = 40
[[block]]
name = "b"
cells = [{train.lr = 0.1}, {train.lr = 0.2}]
[block.grid]
federation.clients = [20, 40]
seed = [0, 1, 2]
[block.small]
cells = [{train.lr = 0.3}]
exclude = [{seed = 0, ranks = 3}]
[block.small.grid]
seed = [0, 1]
ranks = [2, 3]
"""


def test_a_small_scale_replaces_lists_and_joins_exclusions(study):
    assert len(study(TWO_SCALES).cells) == 2 * (6 - 1)
    small = study(TWO_SCALES, "small")
    assert small.scale == "small"
    assert [cell.name for cell in small.cells] == [
        "b-lr=0.3-20-s0-r2",
        "b-lr=0.3-20-s1-r2",
        "b-lr=0.3-20-s1-r3",
        "b-lr=0.3-40-s0-r2",
    ]
    assert [cell.ranks for cell in small.cells] == [2, 2, 3, 2]


def test_a_setting_replaces_the_list_of_a_grid(study):
    made = study(GRID, "full", "seed=7", "train.lr=0.5").cells
    assert [cell.name for cell in made] == [
        f"a-{method}-{clients}-s7" for method in ("fedproto", "protonorm") for clients in (20, 40)
    ]
    assert {(cell.settings["seed"], cell.settings["train.lr"]) for cell in made} == {(7, 0.5)}
    assert made[0].values == {"method.name": "fedproto", "federation.clients": 20, "seed": 7}
    assert {cell.ranks for cell in study(GRID, "full", "ranks=2").cells} == {2}


def test_a_number_of_clients_is_not_a_share(study):
    text = '[[block]]\nname = "b"\n[block.grid]\nfederation.participation = [1, 1.0]\nseed = [0, 1]'
    made = study(text).cells
    assert [cell.name for cell in made] == ["b-1-s0", "b-1-s1", "b-1.0-s0", "b-1.0-s1"]
    assert [cell.config.federation.per_round for cell in made] == [1, 1, 20, 20]
    assert len({seed_group(cell.block, cell.values) for cell in made}) == 2
    rest = study(text + "\n[[exclude]]\nfederation.participation = 1").cells
    assert [cell.name for cell in rest] == ["b-1.0-s0", "b-1.0-s1"]
    # elsewhere 1 and 1.0 mean the same
    text = '[[block]]\nname = "b"\ngrid.partition.alpha = [0.5, 1.0]\nexclude = [{partition.alpha = 1}]'
    assert [cell.name for cell in study(text).cells] == ["b-0.5"]


def test_cells_of_one_group_differ_in_seeds_alone(study):
    grid = "{method.forget = [true, false], partition.seed = [0, 1], ranks = [2]}"
    text = f'[[block]]\nname = "b"\ngrid = {grid}'
    made = study(text).cells
    assert [cell.name for cell in made][:2] == ["b-forget=true-p0-r2", "b-forget=true-p1-r2"]
    groups = [seed_group(cell.block, cell.values) for cell in made]
    assert groups[0] == groups[1] == ("b", '{"method.forget": true, "ranks": 2}')
    assert len(set(groups)) == 2


def test_a_list_of_networks_replaces_a_group_and_the_other_way_round(study):
    text = """
    set.models.group = "mlp4"
    [[block]]
    name = "b"
    cells = [{models.list = ["mlp_64"]}, {models.group = "mlp_256"}, {}]
    [[block]]
    name = "c"
    set = {seed = 1, models.list = ["mlp_64", "mlp_256"], models.weights = [3, 1]}
    cells = [{models.group = "mlp4"}, {models.weights = [1, 3]}]
    [[block]]
    name = "d"
    cells = [{models = {list = ["mlp_64"], group = "mlp4"}}]
    """
    *fine, both = study(text).cells
    assert [cell.problem for cell in fine] == [""] * 5
    assert [cell.config.models.list for cell in fine] == [["mlp_64"], None, None, None, ["mlp_64", "mlp_256"]]
    assert "models.group" not in fine[0].settings
    assert both.problem == "models.list and models.group: give one of them, not both"


def test_values_may_be_tables_and_lists(study):
    text = """
    set.models.pretrained = {mlp_64 = "a.pt"}
    [[block]]
    name = "b"
    [block.grid]
    "models.pretrained" = [{}, {mlp_256 = "b.pt"}]
    "models.list" = [["mlp_64", "mlp_256"], ["own.nets:tiny"]]
    [[block]]
    name = "c"
    set.seed = 1
    grid = {"models.pretrained.mlp_256" = ["b.pt", "c.pt"]}
    """
    made = study(text, "full", "models.pretrained.mlp_32x3=d.pt").cells
    assert [cell.settings["models.pretrained"] for cell in made] == [
        {"mlp_32x3": "d.pt"},
        {"mlp_32x3": "d.pt"},
        {"mlp_256": "b.pt", "mlp_32x3": "d.pt"},
        {"mlp_256": "b.pt", "mlp_32x3": "d.pt"},
        {"mlp_64": "a.pt", "mlp_256": "b.pt", "mlp_32x3": "d.pt"},
        {"mlp_64": "a.pt", "mlp_256": "c.pt", "mlp_32x3": "d.pt"},
    ]
    assert len({seed_group(cell.block, cell.values) for cell in made}) == 6
    assert made[0].name.startswith("b-_")
    assert re.fullmatch(r"b-mlp_256=b.pt_\w{6}-own.nets_tiny_\w{6}", made[3].name)
    assert made[5].name == "c-c.pt"


@pytest.mark.parametrize("asked", ["models.group=mlp4", "models.list=['mlp_256']"])
def test_networks_that_are_asked_for_take_the_place_of_a_list_or_a_group(study, refused, asked):
    text = """
    [[block]]
    name = "b"
    cells = [{models.list = ["mlp_64"], seed = 0}, {models.group = "mlp4", seed = 1}]
    """
    first, second = study(text, "full", asked).cells
    assert first.config.models == second.config.models
    assert [cell.values["seed"] for cell in (first, second)] == [0, 1]
    assert "are the same run" in refused(study, text.replace("seed = 1", "seed = 0"), "full", asked)


def test_an_exclusion_may_miss_where_lists_are_shorter(study):
    text = GRID + "[block.small]\ngrid.seed = [0]\n[[exclude]]\nseed = 1"
    assert len(study(text).cells) == len(study(text, "small").cells) == 4
    assert len(study(text, "full", "seed=5").cells) == 4


def test_reading_a_study_loads_neither_torch_nor_mpi(tmp_path):
    path = ROOT / "configs" / "studies" / "scalability.toml"
    program = (
        "import sys; from hpcfl.study.study_file import read_study; "
        f"n = len(read_study({str(path)!r}).cells); "
        "print(n, sorted({'torch', 'mpi4py'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1017 []"
