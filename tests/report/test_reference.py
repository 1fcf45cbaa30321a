"""`--reference`: published numbers beside ours, by numbers derived by hand, and refused files."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest

from hpcfl.errors import BadInput
from hpcfl.report.reference import paper_table, reference_table
from hpcfl.report.reference_file import read_reference
from hpcfl.report.series import make_settings
from tests.helpers.records import record

ENTRY = """
[[number]]
paper = "A <b> & $x$, 2024"
table = "Table 1"
row = "FedProto"
column = "spiral"
value = 58.0
match = {{ method.name = "{method}" }}
"""
HEAD = {"head": (0.5, 0.5)}


def rows(text: str, path: Path, *more: str) -> list[list[str]]:
    """Returns the texts of the rows for runs of `local` with 50% and 60%, and of fedproto with 70%."""
    path.write_text(text)
    runs = [record("local", HEAD, f"seed={s}", rounds=(accuracy,)) for s, accuracy in ((0, 0.5), (1, 0.6))]
    runs += [record("fedproto", HEAD, *more, rounds=(0.7,))]
    table = reference_table(read_reference(path).numbers, make_settings(runs))
    return [[cell.text for cell in row] for row in table.rows]


def test_the_difference_is_ours_minus_the_published_value(tmp_path):
    """Ours is the mean of 50% and 60%, 55.00 ± √50 = 7.07; 58.0 is 3 points higher."""
    entry = ENTRY.format(method="local")
    texts = [entry, entry + "deviation = 2.99", entry + "deviation = 3.0"]
    found = rows("".join(texts), tmp_path / "r.toml")
    assert [row[3:] for row in found] == [
        ["58.00", "55.00 ± 7.07", "−3.00", "none stated", "local"],
        ["58.00 ± 2.99", "55.00 ± 7.07", "−3.00", "no", "local"],
        ["58.00 ± 3.00", "55.00 ± 7.07", "−3.00", "yes", "local"],
    ]
    assert found[0][:3] == ["A <b> & $x$, 2024", "Table 1, FedProto, spiral", "accuracy in %"]


def test_units_are_those_of_the_paper(tmp_path):
    """40 bytes up in a round are 0.04 kB."""
    text = ENTRY.format(method="local") + 'unit = "kB"\nmeasure = "bytes_up"'
    assert rows(text, tmp_path / "r.toml")[0][4] == "0.04 ± 0.00"


def test_a_number_without_exactly_one_series_says_why(tmp_path):
    text = ENTRY.format(method="fedgh") + ENTRY.replace("method.name", "data.name").format(method="spiral")
    none, several = rows(text, tmp_path / "r.toml")
    assert none[4:] == ["–", "–", "–", "no run matches"]
    assert several[-1] == "2 series match (local, fedproto, …): match more keys"


def test_values_of_keys_are_compared_by_meaning(tmp_path):
    text = ENTRY.format(method="fedproto").replace("}", ", train.lr = 1 }")
    assert rows(text, tmp_path / "r.toml", "train.lr=1.0")[0][4] == "70.00"
    assert rows(text, tmp_path / "r.toml", "train.lr=0.5")[0][-1] == "no run matches"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it has no [[number]], no [[table]] and no [[claim]]"),
        ("number = []", "it has no [[number]], no [[table]] and no [[claim]]"),
        (ENTRY.format(method="local") + 'unit = "kB"', "unit = 'kB': accuracy has % or 1"),
        (ENTRY.format(method="local") + 'deviation = "2"', "number.0.deviation = '2'"),
        (ENTRY.format(method="local") + "deviation = -1.0", "number.0.deviation = -1.0"),
        (ENTRY.format(method="local") + "devation = 1.0", "unknown key number.0.devation"),
        (ENTRY.replace("method.name", "methd.name").format(method="local"), "match: unknown key methd"),
        (ENTRY.split("match")[0], "number.0.match"),
        ("[[number]", "is not TOML"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path, text, reason):
    (tmp_path / "r.toml").write_text(text)
    with pytest.raises(BadInput) as refused:
        read_reference(tmp_path / "r.toml")
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_report_has_the_table(hpcfl, study):
    shutil.copytree(study, "logs")
    text = ENTRY.format(method="fedproto").replace("}", ', block = "clients", federation.clients = 4 }')
    Path("published.toml").write_text(text)
    assert hpcfl("report", "logs", "-o", "out", "--reference", "published.toml").exit_code == 0
    [head, row] = csv.reader(Path("out/tables/reference.csv").read_text().splitlines())
    assert head[3:5] == ["published mean", "published std"]
    assert row[3] == "58.0"
    assert float(row[7]) == pytest.approx(float(row[5]) - 58.0)
    assert "A &lt;b&gt; &amp; $x$, 2024" in Path("out/index.html").read_text()
    missing = hpcfl("report", "logs", "-o", "other", "--reference", "nothing.toml")
    assert (missing.exit_code, Path("other").exists()) == (2, False)


def test_a_number_may_be_that_of_a_round(tmp_path):
    """A row wins over its column, and a column over its table."""
    path = tmp_path / "t.toml"
    path.write_text(
        """[[table]]
name = "Table 3, part 1"
caption = "Made up."
match = { method.name = "local" }
column = [
    { name = "Sil.", measure = "silhouette", unit = "1", round = 2 },
    { name = "last", measure = "silhouette", unit = "1" },
    { name = "Acc.", measure = "accuracy", round = 1, decimals = 1 },
    { name = "up", measure = "bytes_client", unit = "B", decimals = 0 },
]
row = [
    { name = "a", values = [[0.1], [0.2], [50.0], [3]] },
    { name = "b", round = 4, measure = "accuracy", unit = "%", values = [[1.0], [], [], []] },
]
"""
    )
    run = record("local", HEAD, "federation.participation=2", rounds=(0.5, 0.6, 0.7))
    run.run.datasets["/round/silhouette_pooled"] = np.array([0.0, 0.25, np.nan])
    published = read_reference(path).tables[0]
    table = paper_table(published, make_settings([run]), small=False)
    assert table is not None
    assert table.name == "paper-table3part1"
    assert [cell.text for cell in table.rows[1][2:]] == ["0.25", "0.25", "50.0", "20"]
    assert [cell.text for cell in table.rows[4][2:]] == ["–", "–", "–", "–"]
    assert "silhouette in 1, accuracy in %, bytes_client in B" in table.notes[0]
    assert table.notes[0].endswith("over finished seeds, runs of 3 rounds.")


def test_what_has_no_round_is_refused(tmp_path):
    (tmp_path / "t.toml").write_text(ENTRY.format(method="local") + 'measure = "best"\nround = 3')
    with pytest.raises(BadInput, match="round = 3: best is not measured after a round"):
        read_reference(tmp_path / "t.toml")
