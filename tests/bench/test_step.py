import json

import numpy as np
import pytest
from click.testing import CliRunner

from hpcfl.bench.step_table import ALL_TOGETHER, ratios, shares
from hpcfl.cli import main


def bench(*arguments: str):
    return CliRunner().invoke(main, ["bench", "step", *arguments], env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    """A small measurement, kept."""
    path = tmp_path_factory.mktemp("bench") / "old.json"
    done = bench(
        *("--repeats", "2", "--samples", "24", "--each", "--json", str(path)),
        *("--set", "models.list=['mlp_64', 'mlp_taper']", "--set", "train.augment=[]"),
    )
    assert done.exit_code == 0, done.output
    return path, json.loads(path.read_text()), done.output


def test_all_contestants_do_the_same_work(figures):
    """The first round's loss is the plain loop's, whichever way it is computed."""
    _, kept, output = figures
    assert list(kept["seconds"]) == ["mlp_64", "mlp_taper"]
    for losses in kept["losses"].values():
        assert next(iter(losses)) == "plain loop"
        assert len(losses) == 5
        np.testing.assert_allclose(list(losses.values()), losses["plain loop"], rtol=1e-5)
    assert "GFLOP/s" in output
    assert output.count("all together") == 5


def test_figures_by_hand():
    kept = {
        "seconds": {
            "a": {"plain loop": [2.0, 4.0], "ours": [1.0, 1.0]},
            "b": {"plain loop": [2.0, 2.0], "ours": [1, 2]},
        },
        "limits": {"gemm": [10.0, 20.0]},
        "flops": {"a": 5, "b": 15},
    }
    assert ratios(kept, "a", "ours").tolist() == [0.5, 0.25]
    assert ratios(kept, ALL_TOGETHER, "ours").tolist() == [0.5, 0.5]
    assert shares(kept, "a", "ours").tolist() == [0.5, 0.25]
    assert shares(kept, ALL_TOGETHER, "plain loop").tolist() == [20 / 4 / 10, 20 / 6 / 20]


def test_against_older_figures(figures, tmp_path):
    path, kept, _ = figures
    del kept["seconds"]["mlp_taper"]
    half = tmp_path / "half.json"
    half.write_text(json.dumps(kept))
    again = ["--repeats", "1", "--samples", "24", "--set", "models.list=['mlp_64', 'mlp_taper']"]
    for old in (path, half):
        done = bench(*again, "--baseline", str(old))
        assert done.exit_code == 0, done.output
        assert "now ÷ before" in done.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--baseline", "nowhere.json"], "--baseline nowhere.json: No such file"),
        (["--baseline", __file__], "not a file that hpcfl bench step --json wrote"),
        (["--json", "no/where/x.json"], "--json no/where/x.json: cannot be written"),
        (["--json", "."], "--json .: cannot be written"),
        (["--set", "train.lr=1e30", "--samples", "24"], "diverges: nothing to compare"),
        (["--set", "models.list=['nosuch:net']"], "nosuch:net cannot be imported"),
        (["--set", "models.group=resnet8"], "resnet8 takes images"),
        (["--set", "models.group=none"], "models.group"),
        (["--set", "runtime.precision=bfloat16", "--set", "runtime.step=direct"], "only with"),
    ],
)
def test_bad_input(arguments, says):
    done = bench(*arguments)
    assert done.exit_code == 2
    assert says in done.output
    assert "Traceback" not in done.output
