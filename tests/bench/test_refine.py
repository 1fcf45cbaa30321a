"""`hpcfl bench refine` on few classes: the rows, and what the ways must have in common."""

import pytest
from click.testing import CliRunner

from hpcfl.cli import main
from hpcfl.methods.sphere import simplex_bound


def bench(classes: int, features: int, iterations: int = 60):
    sizes = {"--classes": classes, "--features": features, "--iterations": iterations}
    arguments = [str(part) for pair in sizes.items() for part in pair]
    return CliRunner().invoke(main, ["bench", "refine", *arguments], env={"COLUMNS": "200"})


def rows(output: str) -> dict[str, list[str]]:
    """Returns the cells of every way: iterations, seconds, times as fast, energy, above the bound, cosine."""
    table = output.splitlines()[-4:]
    return {" ".join(line.split()[:-6]): line.split()[-6:] for line in table}


def test_both_solvers_agree_and_the_simplex_is_at_the_bound():
    done = bench(6, 8)
    assert done.exit_code == 0, done.output
    assert "6 classes, 8 features, float64" in done.output
    found = rows(done.output)
    assert list(found) == ["difference tensor", "Gram matrix", "Gram matrix, stopping = whole", "simplex"]
    slow, fast, whole, exact = found.values()
    assert slow[0] == fast[0]
    assert 0 < int(fast[0]) <= 60
    assert int(whole[0]) <= 60
    assert slow[3:] == [fast[3], slow[4], fast[5]]
    assert float(slow[4]) == pytest.approx(float(fast[4]), abs=1e-9)
    assert exact[0] == "–"
    assert float(exact[3]) == pytest.approx(simplex_bound(6), abs=5e-4)
    assert abs(float(exact[4])) < 1e-12
    assert exact[5] == "-0.2000"
    assert slow[2] == "1.0"
    for _, seconds, faster, *_ in found.values():
        assert float(seconds) >= 0
        assert float(faster) > 0


def test_beyond_the_simplex_it_is_lbfgs():
    found = rows(bench(12, 3, iterations=30).output)
    assert list(found)[-1] == "simplex (L-BFGS)"
    assert float(found["simplex (L-BFGS)"][3]) < float(found["Gram matrix"][3])
    assert int(found["simplex (L-BFGS)"][0]) > int(found["Gram matrix"][0])


def test_what_would_not_fit_into_memory_is_refused():
    done = bench(400, 512)
    assert done.exit_code == 2
    assert "--classes 400 --features 512: the difference tensor would take too much memory" in done.output
