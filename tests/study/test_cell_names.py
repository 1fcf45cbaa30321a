"""Names of cells: file names that stay."""

import re


def test_names_do_not_depend_on_other_cells(study):
    few = "[[block]]\nname = 'b'\ncells = [{method.weight = 1.0}, {method.scale = 1.0}]\ngrid.seed = [0]"
    more = few.replace("[0]", "[0, 1]").replace("}]", "}, {method.scale = 2.0, train.lr = 1.0}]")
    more = '[[block]]\nname = "first"\n' + more
    names = [cell.name for cell in study(few).cells]
    assert names == ["b-weight=1.0-s0", "b-scale=1.0-s0"]
    assert {*names} < {cell.name for cell in study(more).cells}


def test_names_that_look_alike_get_a_digest(study):
    text = """
    [[block]]
    name = "b"
    grid = {data.root = ["a", "A", "a-b", "b"], models.group = ["mlp4", "b-mlp4", "%s"]}
    """
    made = [cell.name for cell in study(text % ("x" * 130)).cells]
    assert len({name.lower() for name in made}) == 12
    assert made[-1].startswith("b-b-xxxx")
    assert re.fullmatch(r"b-a-b-mlp4-\w{8}", made[1])
    assert "b-b-mlp4" in made
    long = '[[block]]\nname = "b"\n[block.grid]\n' + "\n".join(
        f'{key} = ["{"y" * 39}", "{"z" * 39}"]'
        for key in ("data.root", "models.group", "data.name", "partition.file")
    )
    names = [cell.name for cell in study(long).cells]
    assert len({*names}) == 16
    assert {len(name) for name in names} == {120}


def test_a_list_of_networks_is_named_as_the_page_says(study):
    [cell] = study("[[block]]\nname = 'b'\ngrid.models.list = [['mlp_64', 'mlp_256']]").cells
    assert cell.name == "b-mlp_64+mlp_256_767ac6"
