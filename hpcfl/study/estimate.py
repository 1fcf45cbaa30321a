"""How long cells will take: work from their plans, speed from cells that have run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from hpcfl.config.schema import Config
from hpcfl.errors import BadInput
from hpcfl.federation.run_plan import plan_run
from hpcfl.study.cells import Cell
from hpcfl.study.run_store import CellProgress
from hpcfl.utils.formatting import plural

SPEED = 2e9
"""FLOP/s of a worker as long as no cell has run: a guess on the low side, so that jobs are not too short."""
SETUP = 2.0
"""Seconds that a cell takes beside its rounds."""
ROUND = 0.05
"""Seconds that a round takes beside its clients' work."""
BACKWARD = 2
"""A backward pass ÷ a forward pass."""


@dataclass
class Estimate:
    """Of all cells of a study, by what those that have run took."""

    cells: Sequence[Cell]
    seen: Sequence[CellProgress]
    ranks: int | None
    """Of cells that do not say so themselves; None: as most that have run, else a worker per participant."""
    known: dict[str, float | BadInput] = field(default_factory=dict)

    def left(self, at: int) -> float:
        """Returns the seconds that a cell still needs: 0 where it is over, NaN where nobody can say."""
        cell, seen = self.cells[at], self.seen[at]
        if seen.is_over:
            return 0.0
        assert cell.config is not None
        pace, ranks = seen.summary.seconds, self._ranks(at)
        if np.isnan(pace) or seen.ranks != ranks:
            pace = ROUND + self._work(at, ranks) / self.speed(cell.config.method.name)
        return SETUP + pace * max(0, cell.config.federation.rounds - seen.rounds)

    def cannot_run(self, among: Sequence[int]) -> tuple[list[int], str]:
        """Returns those that cannot be run here, as where data is not prepared, and a sentence about them."""
        found = [at for at in among if np.isnan(self._work(at, 1))]
        if not found:
            return [], ""
        first = self.cells[found[0]]
        assert first.config is not None
        return (
            found,
            f"{plural(len(found), 'cell')} cannot be run here, as {first.name}: {self._client(first.config)}",
        )

    def speed(self, method: str) -> float:
        """FLOP/s of a worker: the median of the cells that have run, of the same method if there are any."""
        found = self._rates.get(method) or [rate for rates in self._rates.values() for rate in rates]
        return float(np.median(found)) if found else SPEED

    @cached_property
    def _rates(self) -> dict[str, list[float]]:
        rates: dict[str, list[float]] = {}
        for at, (cell, seen) in enumerate(zip(self.cells, self.seen, strict=True)):
            if cell.config and seen.summary.seconds > 0 and self._work(at, seen.ranks) > 0:
                took = max(seen.summary.seconds - ROUND, 1e-3)
                rates.setdefault(cell.config.method.name, []).append(self._work(at, seen.ranks) / took)
        return rates

    def _ranks(self, at: int) -> int:
        """Returns the number of ranks that a cell will run on, as far as is known."""
        cell = self.cells[at]
        assert cell.config is not None
        return cell.ranks or self.ranks or self._usual or cell.config.federation.per_round + 1

    @cached_property
    def _usual(self) -> int:
        """The number of ranks that most cells ran on; 0: none has run."""
        both = zip(self.cells, self.seen, strict=True)
        counted = Counter(seen.ranks for cell, seen in both if seen.ranks and not cell.ranks)
        return counted.most_common(1)[0][0] if counted else 0

    def _work(self, at: int, ranks: int) -> float:
        """Returns the FLOPs of a worker in a round of a cell, on average; NaN where it cannot be planned."""
        config = self.cells[at].config
        assert config is not None
        each, number = self._client(config), config.federation.per_round
        return np.nan if isinstance(each, BadInput) else each * number / max(1, min(ranks - 1, number))

    def _client(self, config: Config) -> float | BadInput:
        """Returns the FLOPs of a client's round, on average, or why there are none; cells alike share it."""
        key = repr(
            (config.data, config.partition, config.models, config.train.epochs, config.federation.clients)
        )
        if key not in self.known:
            try:
                self.known[key] = _flops(config)
            except BadInput as error:
                self.known[key] = error
        return self.known[key]


def _flops(config: Config) -> float:
    from hpcfl.models.costs import costs

    # no rule of one method may stand for cells of another
    plan = plan_run(config.model_copy(update={"method": Config().method, "log": Config().log}))
    batches = config.train.batch_size, config.runtime.inference_batch
    counted = costs(plan.architectures, plan.data.shape, *plan.dims, *batches)
    passes = (1 + BACKWARD) * config.train.epochs + 1
    return float(np.mean([counted[c.architecture].flops * len(c.train) * passes for c in plan.clients]))
