"""`hpcfl bench profile` and the table of `hpcfl bench refine`: rows and shares."""

from __future__ import annotations

import pytest

from hpcfl.bench import refine_table
from tests.helpers.runs import options


def test_the_parts_of_a_round_add_up(hpcfl):
    done = hpcfl("bench", "profile", "--samples", 64, *options("models.list=['mlp_64', 'mlp_256']"))
    assert done.exit_code == 0, done.output
    rows = {line[:44].strip(): line[44:].split() for line in done.output.splitlines() if "%" in line}
    assert {"prototype pass", "test pass", "linear layers, and convolutions as products"} < {*rows}
    total = rows.pop("all")
    assert sum(float(row[0]) for row in rows.values()) == pytest.approx(
        float(total[0]), abs=0.001 * len(rows)
    )


def test_refinements_of_few_classes(capsys, monkeypatch):
    """1 + 3 rounds each; 20 clients with all six classes make 120 uploads: four batches an epoch."""
    monkeypatch.setattr(refine_table, "SHARE", 1.0)
    monkeypatch.setenv("COLUMNS", "200")
    assert refine_table.bench_refinements(8, 1, (6,)) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("6 ")]
    assert [row[1] for row in rows] == ["Thomson", "simplex", "TGP", "orthogonal"]
    assert [row[2] for row in rows] == [rows[0][2], "–", "400", "4"]
    assert 0 < int(rows[0][2]) <= 500
    assert [row[4] == "–" for row in rows] == [False, True, False, False]


def test_products_of_the_server_network():
    """K × d by d × d, 2·K·d² FLOPs each: two forward, four backward."""
    assert refine_table._flops("TGP", 3, 5) == 6 * 2 * 3 * 5 * 5
    assert refine_table._flops("Thomson", 3, 5) == 2 * (2 * 3 * 3 * 3)
