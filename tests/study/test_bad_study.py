"""Bad cells, which are named, and bad studies, which are refused in one sentence."""

import re

import pytest

from hpcfl.study.study_file import read_study

BLOCK = "[[block]]\nname = 'b'\n"
BAD_CELLS = {
    "train.lr = 0.0": "train.lr = 0.0: must be greater than 0",
    "train.lr = 'x'": "train.lr = 'x': must be a valid number",
    "federation.participation = 21": "federation.participation = 21: more than federation.clients = 20",
    "method.name = 'fedprot'": "(nearest: fedproto)",
    "method.tau = 3.0": "method.tau = 3.0: belongs to refine = tgp, not to 'none'",
    "models.group = 'mlp5'": "models.group = 'mlp5': allowed is one of ",
    "seed = 2026-01-01": "seed = datetime.date(2026, 1, 1): must be a valid integer",
    "ranks = 0": "ranks = 0: must be a whole number of at least 1",
    "ranks = true": "ranks = True: must be a whole number of at least 1",
    "ranks = 2.0": "ranks = 2.0: must be a whole number of at least 1",
    "partition = {style = 'published', name = 'iid'}": "only dirichlet and pathological have it, not iid",
}


def test_a_bad_cell_does_not_spoil_the_study(study):
    cells = ", ".join(f"{{{cell}}}" for cell in BAD_CELLS)
    good, *bad = study(f"[[block]]\nname = 'b'\ncells = [{{}}, {cells}]").cells
    assert (good.problem, good.name) == ("", "b")
    for cell, sentence in zip(bad, BAD_CELLS.values(), strict=True):
        assert cell.config is None
        assert sentence in cell.problem
        assert re.fullmatch(r"[A-Za-z0-9._+=-]{1,120}", cell.name)


BAD: dict[str, tuple[str, str]] = {
    "not TOML": ("[set", " is not TOML: "),
    "no cells": ("about = 'x'", ": no cells: write at least one [[block]]"),
    "unknown key": ("abuot = 'x'", ": unknown key abuot (nearest: about)"),
    "a key at the top": ("seed = 1", ": unknown key seed; seed of the configuration goes into set"),
    "a table at the top": (
        "[train]\nlr = 1",
        ": unknown key train; train of the configuration goes into set",
    ),
    "about": ("about = 5", ": about = 5: must be a string"),
    "config": ("config = ['a']", ": config = ['a']: must be a string"),
    "missing base": (f"config = 'no.toml'\n{BLOCK}", "/no.toml: No such file or directory"),
    "impossible base": (f'config = "a\\u0000b"\n{BLOCK}', "cannot read configuration "),
    "bad base": (f"config = 'base.toml'\n{BLOCK}", "/base.toml: unknown key train.lrate (nearest: train.lr)"),
    "ranks in base": (
        f"config = 'ranks.toml'\n{BLOCK}",
        "ranks is not a key of a configuration; it goes into set",
    ),
    "one block": ("[block]\nname = 'b'", ": block = {'name': 'b'}: must be a list, [[block]]"),
    "block of numbers": ("block = [1]", ": block: 1 must be a table of keys"),
    "no name": ("[[block]]", ": block 1: name = '': a block needs a name of letters, digits and _"),
    "bad name": (
        f"{BLOCK}[[block]]\nname = 'a-b'",
        ": block 2: name = 'a-b': a block needs a name of letters",
    ),
    "name of a number": ("[[block]]\nname = 1", ": block 1: name = 1: must be a string"),
    "same name": (f"{BLOCK}[[block]]\nname = 'B'", ": several blocks are called 'B'"),
    "key of a block": (f"{BLOCK}gird = 1", ": block 1: unknown key gird (nearest: grid)"),
    "set": ("set.train.lrate = 1\n" + BLOCK, ": [set]: unknown key train.lrate (nearest: train.lr)"),
    "set of a table": ("set.train = 1\n" + BLOCK, ": [set]: train = 1: must be a table of keys"),
    "option in set": ("set.method.taw = 1\n" + BLOCK, ": unknown key method.taw (nearest: method.tau)"),
    "option in a cell": (
        f"{BLOCK}cells = [{{}}, {{method.taw = 3}}]",
        ": unknown key method.taw (nearest: method.tau)",
    ),
    "table in method": (f"{BLOCK}set.method.a.b = 3", "unknown key method.a"),
    "set in a block": (f"{BLOCK}set.rank = 1", ": block 'b', set: unknown key rank (nearest: ranks)"),
    "set below a key": (
        f"{BLOCK}set.'train.lr.x' = 1",
        ": block 'b', set: unknown key train.lr.x (nearest: train.lr)",
    ),
    "set twice": (
        f"{BLOCK}set = {{seed = 1, 'train.lr' = 1, train.lr = 2}}",
        ": block 'b', set: train.lr is given twice",
    ),
    "grid": (
        f"{BLOCK}grid.federation.client = [1]",
        ": block 'b', grid: unknown key federation.client (nearest: federation.clients)",
    ),
    "grid of a value": (f"{BLOCK}grid.seed = 1", ": block 'b', grid: seed = 1: must be a list of values"),
    "grid of nothing": (
        f"{BLOCK}grid.seed = []",
        ": block 'b', grid: seed = []: must have at least one value",
    ),
    "grid twice": (f"{BLOCK}grid.seed = [1, 2, 1]", ": block 'b', grid: seed has the value 1 twice"),
    "grid, 1 twice": (
        f"{BLOCK}grid.train.lr = [1, 1.0]",
        ": block 'b', grid: train.lr has the value 1.0 twice",
    ),
    "cells": (f"{BLOCK}cells = {{seed = 1}}", ": block 1: cells = {'seed': 1}: must be a list"),
    "no cells in a list": (f"{BLOCK}cells = []", ": block 'b', cells = []: must have at least one cell"),
    "cells of numbers": (f"{BLOCK}cells = [1]", ": block 'b', cells: 1 must be a table of keys"),
    "key of a cell": (
        f"{BLOCK}cells = [{{}}, {{sed = 1}}]",
        ": block 'b', cell 2: unknown key sed (nearest: seed)",
    ),
    "cells twice": (
        f"{BLOCK}cells = [{{seed = 1}}, {{}}, {{seed = 1}}]",
        ": block 'b', cells 1 and 3 are the same",
    ),
    "grid and cells": (
        f"{BLOCK}cells = [{{seed = 1}}]\ngrid.seed = [2]",
        ": block 'b': seed is in the grid and in the cells",
    ),
    "the same run": (
        f"{BLOCK}grid.seed = [0, 1]\n[[block]]\nname = 'c'\nset.seed = 1",
        ": the cells b-s1 and c are the same run",
    ),
    "the default again": (
        f"{BLOCK}cells = [{{}}, {{federation.clients = 20}}]",
        ": the cells b and b-clients=20 are the same run",
    ),
    "the same bad run": (
        f"{BLOCK}set.train.lr = 0\n[[block]]\nname = 'c'\nset.train.lr = 0",
        ": the cells b and c are the same run",
    ),
    "exclude": (f"{BLOCK}[exclude]\nseed = 1", ": exclude = {'seed': 1}: must be a list, [[exclude]]"),
    "exclude nothing": (f"{BLOCK}[[exclude]]", ": exclude 1: names no key"),
    "exclude no value": (
        f"{BLOCK}exclude = [{{seed = []}}]",
        ": block 'b', exclude 1: seed = []: must have at least one value",
    ),
    "key of an exclusion": (f"{BLOCK}[[exclude]]\nsed = 1", ": exclude 1: unknown key sed (nearest: seed)"),
    "exclude what nobody has": (f"{BLOCK}[[exclude]]\nseed = 1", ": exclude 1: no cell sets seed"),
    "exclude what is not there": (
        f"{BLOCK}grid.seed = [1, 2]\n[[exclude]]\nseed = 1\n[[exclude]]\nseed = 3",
        ": exclude 2: no cell has these values, so that nothing is left out",
    ),
    "exclude in another block": (
        f"{BLOCK}exclude = [{{seed = 1}}]\n[[block]]\nname = 'c'\ngrid.seed = [1, 2]",
        ": block 'b', exclude 1: no cell sets seed",
    ),
    "exclude all": (
        f"{BLOCK}set.seed = 1\n[[exclude]]\nseed = [0, 1]",
        ": no cell is left: all are excluded",
    ),
    "too many": (
        f"{BLOCK}grid.seed = {list(range(400))}\ngrid.partition.seed = {list(range(300))}",
        ": 120000 cells, before exclusions: more than 100000 are refused",
    ),
    "small": (f"{BLOCK}[small]\ncells = [{{ seed = 1 }}]", ": [small]: unknown key cells"),
    "rule": (f"{BLOCK}[[when]]\nset.seed = 1", ": when 1: if: names no key"),
    "rule without effect": (f"{BLOCK}[[when]]\nif.seed = 1", ": when 1: sets nothing"),
    "replacement": (
        f"{BLOCK}[[small.replace]]\nif.sed = 1\nset.seed = 2",
        ": [small] replace 1: if: unknown key sed",
    ),
    "base file": (f"base = 'no.toml'\n{BLOCK}", "no.toml: No such file or directory"),
    "small set": (f"{BLOCK}[small.set]\nsed = 1", ": [small] set: unknown key sed (nearest: seed)"),
    "small of a block": (f"{BLOCK}small.name = 'x'", ": block 'b', small: unknown key name"),
    "small grid": (
        f"{BLOCK}small.grid.sed = [1]",
        ": block 'b', small grid: unknown key sed (nearest: seed)",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_study_is_one_sentence(study, tmp_path, kind, refused):
    (tmp_path / "base.toml").write_text("[train]\nlrate = 1")
    (tmp_path / "ranks.toml").write_text("ranks = 1")
    text, sentence = BAD[kind]
    said = refused(study, text)
    assert said.startswith(f"{tmp_path}/s.toml")
    assert sentence in said
    assert "\n" not in said


SEEDS = f"{BLOCK}grid.seed = [0, 1]"


def test_what_is_asked_for_may_be_bad_too(study, tmp_path, refused):
    assert refused(study, SEEDS, "small").endswith(
        "s.toml: no scale 'small': neither [small] nor [block.small] is there"
    )
    assert refused(study, SEEDS, "smal") == "--scale smal: allowed is full or small (nearest: small)"
    assert refused(study, SEEDS, "full", "seed") == "--set seed: write KEY=VALUE, for example train.lr=0.1"
    assert refused(study, SEEDS, "full", "sed=1") == "--set sed=1: unknown key sed (nearest: seed)"
    assert refused(study, SEEDS, "full", "train=1") == "--set train=1: train = 1: must be a table of keys"
    listed = "[[block]]\nname = 'b'\ncells = [{seed = 1}, {seed = 2}]"
    assert "are the same run" in refused(study, listed, "full", "seed=3")
    missing = tmp_path / "missing.toml"
    assert refused(read_study, missing) == f"cannot read study {missing}: No such file or directory"
    assert refused(read_study, tmp_path) == f"cannot read study {tmp_path}: Is a directory"
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    assert refused(read_study, tmp_path / "bytes.toml").endswith("bytes.toml is not UTF-8 text (byte 0)")
