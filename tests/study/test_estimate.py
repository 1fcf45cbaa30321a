"""The time that cells will take, against numbers derived by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from hpcfl.errors import BadInput
from hpcfl.federation.run_plan import plan_run
from hpcfl.log.summary import Summary
from hpcfl.study import estimate
from hpcfl.study.cells import Cell
from hpcfl.study.estimate import CELL_OVERHEAD, DEFAULT_SPEED, ROUND_OVERHEAD, Estimate
from hpcfl.study.run_store import CellProgress
from hpcfl.study.study_file import read_study

STUDY = """
[set]
data.samples_per_class = 60
partition.alpha = 10.0
models.list = ["mlp_64"]
models.features = 4
federation.clients = 6
federation.rounds = 10
[[block]]
name = "a"
[block.grid]
method.name = ["fedproto", "local"]
seed = [0, 1]
"""
WAITING = CellProgress("waiting")


@pytest.fixture
def cells(tmp_path: Path) -> tuple[Cell, ...]:
    path = tmp_path / "s.toml"
    path.write_text(STUDY)
    return read_study(path).cells


def ran(rounds: int, seconds: float, state: str = "finished", ranks: int = 7) -> CellProgress:
    return CellProgress(state, rounds, "", Summary(seconds=seconds), ranks)


def test_flops_are_counted_by_hand(cells: tuple[Cell, ...]):
    """mlp_64 is 2→64→4 with a head 4→6: 2 FLOPs a weight; training is three passes, prototypes take one."""
    forward = 2 * (2 * 64 + 64 * 4 + 4 * 6)
    samples = 6 * 60 * 0.75 / 6  # of a client; rounding leaves some clients one more or less
    assert Estimate(cells, [WAITING] * 4, 7)._worker_flops(0, 7) == pytest.approx(
        forward * 4 * samples, rel=0.05
    )


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client's round is 3e9 FLOPs, in every cell."""
    monkeypatch.setattr(estimate, "_flops", lambda config: 3e9)


@pytest.mark.parametrize(
    ("ranks", "workers"), [(1, 1), (2, 1), (3, 2), (4, 3), (7, 6), (21, 6), (None, 6)], ids=str
)
@pytest.mark.usefixtures("by_hand")
def test_before_any_cell_has_run(cells: tuple[Cell, ...], ranks: int | None, workers: int):
    """Six participants of 3e9 FLOPs at 2e9 FLOP/s are 9 s of one worker, in each of 10 rounds."""
    assert DEFAULT_SPEED == 2e9
    want = CELL_OVERHEAD + 10 * (ROUND_OVERHEAD + 9 / workers)
    assert Estimate(cells, [WAITING] * 4, ranks).seconds_left(0) == pytest.approx(want)


@pytest.mark.usefixtures("by_hand")
def test_a_cells_own_ranks_count(cells: tuple[Cell, ...]):
    own = [replace(cells[0], ranks=3), *cells[1:]]
    assert Estimate(own, [WAITING] * 4, 7).seconds_left(0) == pytest.approx(
        CELL_OVERHEAD + 10 * (ROUND_OVERHEAD + 4.5)
    )


@pytest.mark.usefixtures("by_hand")
def test_a_cells_own_pace_counts_most(cells: tuple[Cell, ...]):
    seen = [ran(4, 7.0, "unfinished"), WAITING, WAITING, ran(10, 1.0)]
    assert Estimate(cells, seen, 7).seconds_left(0) == pytest.approx(CELL_OVERHEAD + 7.0 * (10 - 4))


@pytest.mark.usefixtures("by_hand")
def test_speed_is_that_of_the_same_method(cells: tuple[Cell, ...]):
    """On 7 ranks a worker has 3e9 FLOPs a round: 1.5 s are 2e9 FLOP/s, 0.5 s are 6e9, 1 s is 3e9."""
    fedproto = [ran(10, ROUND_OVERHEAD + 1.5), WAITING]
    slow = Estimate(cells, [*fedproto, WAITING, WAITING], 7)
    assert slow.speed("fedproto") == pytest.approx(2e9)
    assert slow.speed("local") == pytest.approx(2e9), "of others, as long as none of its own has run"
    both = Estimate(
        cells, [*fedproto, ran(10, ROUND_OVERHEAD + 0.5), ran(3, ROUND_OVERHEAD + 1.0, "diverged")], 7
    )
    assert both.speed("fedproto") == pytest.approx(2e9)
    assert both.speed("local") == pytest.approx((6e9 + 3e9) / 2), "the median of its two"
    assert both.seconds_left(1) == pytest.approx(CELL_OVERHEAD + 10 * (ROUND_OVERHEAD + 1.5))


@pytest.mark.usefixtures("by_hand")
def test_ranks_are_those_that_a_cell_ran_on(cells: tuple[Cell, ...]):
    """On 3 ranks a worker has 9e9 FLOPs a round: 4.5 s are 2e9 FLOP/s; on 7 ranks that is 1.5 s a round."""
    seen = [
        ran(10, ROUND_OVERHEAD + 4.5, ranks=3),
        ran(4, ROUND_OVERHEAD + 4.5, "unfinished", ranks=3),
        WAITING,
        WAITING,
    ]
    assert Estimate(cells, seen, 7).speed("fedproto") == pytest.approx(2e9)
    assert Estimate(cells, seen, 7).seconds_left(1) == pytest.approx(
        CELL_OVERHEAD + 6 * (ROUND_OVERHEAD + 1.5)
    )
    unknown = Estimate(cells, seen, None)
    assert unknown.seconds_left(1) == pytest.approx(CELL_OVERHEAD + 6 * (ROUND_OVERHEAD + 4.5)), (
        "where nobody says, as before"
    )
    assert unknown.seconds_left(2) == pytest.approx(CELL_OVERHEAD + 10 * (ROUND_OVERHEAD + 4.5))


@pytest.mark.usefixtures("by_hand")
def test_what_is_over_needs_nothing(cells: tuple[Cell, ...]):
    seen = [ran(10, 1.0), CellProgress("failed"), CellProgress("bad"), ran(2, 1.0, "diverged")]
    assert [Estimate(cells, seen, 7).seconds_left(i) for i in range(4)] == [0, 0, 0, 0]


@pytest.mark.usefixtures("by_hand")
def test_a_log_with_more_rounds_than_asked_for_needs_no_negative_time(cells: tuple[Cell, ...]):
    assert Estimate(cells, [ran(12, 1.0, "unfinished")] * 4, 7).seconds_left(0) == CELL_OVERHEAD


def test_what_cannot_be_planned_is_unknown_and_spoils_nothing(
    cells: tuple[Cell, ...], monkeypatch: pytest.MonkeyPatch
):
    def refuse(config: object) -> float:
        raise BadInput("not prepared")

    monkeypatch.setattr(estimate, "_flops", refuse)
    found = Estimate(cells, [ran(10, 1.0), WAITING, ran(5, 1.0, "unfinished"), WAITING], 7)
    assert math.isnan(found.seconds_left(1))
    assert found.seconds_left(2) == CELL_OVERHEAD + 5.0, "its own pace is known"
    assert found.speed("fedproto") == DEFAULT_SPEED
    assert found.cannot_run([1, 3]) == (
        [1, 3],
        f"2 cells cannot be run here, as {cells[1].name}: not prepared",
    )
    assert found.cannot_run([]) == ([], "")


def test_a_rule_of_one_method_does_not_stand_for_others(tmp_path: Path):
    """FedSAP's semi-supervised phase needs unlabelled samples, FedProto with the same data does not."""
    path = tmp_path / "s.toml"
    path.write_text(STUDY.replace('"fedproto", "local"', '"fedsap-ssl", "fedproto"'))
    made = read_study(path).cells
    assert made[0].config is not None
    with pytest.raises(BadInput, match="unlabelled"):
        plan_run(made[0].config)
    assert Estimate(made, [WAITING] * 4, 7).cannot_run(range(4)) == ([], "")


def test_cells_alike_are_planned_once(cells: tuple[Cell, ...], monkeypatch: pytest.MonkeyPatch):
    planned: list[object] = []

    def flops(config: object) -> float:
        planned.append(config)
        return 1.0

    monkeypatch.setattr(estimate, "_flops", flops)
    found = Estimate(cells, [WAITING] * 4, 7)
    assert len({found.seconds_left(i) for i in range(4)}) == 1
    assert len(planned) == 1
