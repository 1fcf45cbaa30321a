"""`hpcfl bench growth`: its model, the prediction before the largest run, and the units of its table."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from hpcfl.bench import growth
from hpcfl.bench.growth_model import Cost, Size, fit, predict


def made_up(size: Size) -> Cost:
    """A run of 0.1 s + 20 ms for each participant, and so on."""
    each = {"seconds": 0.1 + 0.02 * size.participants, "cpu_seconds": 0.2 + 0.04 * size.participants}
    by_clients = {
        "memory": 2.0**30 + 2**14 * size.clients,
        "log": 1e5 + 2e3 * size.clients,
        "start": 3 + 1e-3 * size.clients,
    }
    return Cost(**each, **by_clients, checkpoint=1e4 + 6e4 * size.trained)


SIZES = [Size(n, min(50, n), 20) for n in (20, 100, 1000, 10_000)]


def test_memory_is_in_binary_units_and_files_in_decimal_ones():
    cost = Cost(0.004, 0.002, 3 * 1024**2, 3 * 1000**2, 3 * 1000**2, 1.0)
    assert growth._words(cost, Size(10, 4, 20)) == ["1.00", "0.50", "3.0 MiB", "3.0 MB", "3.0 MB", "1.0 s"]


def test_clients_that_were_trained_at_least_once():
    """Half of the clients in each of two rounds: a quarter is never chosen."""
    assert Size(100, 50, 2).trained == pytest.approx(75)
    assert Size(20, 20, 5).trained == 20


def test_the_model_finds_the_lines_that_costs_follow():
    lines = fit({size: made_up(size) for size in SIZES[:3]})
    assert lines["seconds"].each == pytest.approx(0.02)
    assert lines["checkpoint"].each == pytest.approx(6e4)
    got, want = predict(lines, SIZES[3]), made_up(SIZES[3])
    assert asdict(got) == pytest.approx(asdict(want))


def test_without_different_numbers_of_participants_all_of_a_round_is_theirs():
    sizes = [Size(100, 50, 20), Size(1000, 50, 20)]
    line = fit({size: made_up(size) for size in sizes})["seconds"]
    assert line.fixed == 0
    assert line.each == pytest.approx(1.1 / 50)


def test_the_prediction_is_printed_before_the_largest_run_begins(monkeypatch, capsys):
    seen: dict[int, list[str]] = {}

    def run(ranks, out, settings, size):
        seen.setdefault(size.clients, []).append(capsys.readouterr().out)
        return made_up(size)

    monkeypatch.setattr(growth, "_run", run)
    assert growth.bench_growth([20, 100, 1000, 10_000], 50, 50, 3, 20, 2, ()) == 0
    after = capsys.readouterr().out
    assert [len(printed) for printed in seen.values()] == [2, 4, 2, 2]  # 100 clients also beside the largest
    assert not any(seen[20] + seen[1000])
    named = "".join(seen[100] + seen[10_000])
    assert "now the run of 10000 clients begins" in named
    rows = {line.split("  ")[0]: line.split() for line in (named + after).splitlines() if line}
    assert rows["log"][-2:] == ["20.1", "MB"]
    assert rows["10000, predicted"][2:] == rows["10000"][1:]
    assert rows["measured ÷ predicted"][-6:] == ["1.00"] * 6
    assert after.splitlines()[-1].endswith("50 participants, in turn: 1.00, CPU 1.00")
