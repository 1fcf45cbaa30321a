"""Estimates how long cells will take: FLOPs from their plans, speed from cells that have run."""

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

DEFAULT_SPEED = 2e9
"""FLOP/s of a worker while no cell has run; a low guess, so that walltimes are not too short."""
CELL_OVERHEAD = 2.0
"""Seconds that a cell takes in addition to its rounds."""
ROUND_OVERHEAD = 0.05
"""Seconds that a round takes in addition to its clients' work."""
BACKWARD = 2
"""Cost of a backward pass in forward passes."""


@dataclass
class Estimate:
    """Estimated times of a study's cells, from the speed of the cells that have run."""

    cells: Sequence[Cell]
    progress: Sequence[CellProgress]
    ranks: int | None
    """Ranks of cells that set none; None: as most cells that have run, else a worker per participant."""
    flops_cache: dict[str, float | BadInput] = field(default_factory=dict)

    def seconds_left(self, i: int) -> float:
        """Returns the seconds that a cell still needs: 0 if it is over, NaN if it cannot be planned."""
        cell, progress = self.cells[i], self.progress[i]
        if progress.is_over:
            return 0.0
        assert cell.config is not None
        seconds_per_round, ranks = progress.summary.seconds, self._ranks_of(i)
        if np.isnan(seconds_per_round) or progress.ranks != ranks:
            speed = self.speed(cell.config.method.name)
            seconds_per_round = ROUND_OVERHEAD + self._worker_flops(i, ranks) / speed
        return CELL_OVERHEAD + seconds_per_round * max(0, cell.config.federation.rounds - progress.rounds)

    def cannot_run(self, indices: Sequence[int]) -> tuple[list[int], str]:
        """Returns the cells that cannot run here, for example without prepared data, and a message."""
        found = [i for i in indices if np.isnan(self._worker_flops(i, 1))]
        if not found:
            return [], ""
        first = self.cells[found[0]]
        assert first.config is not None
        reason = self._client_flops(first.config)
        return found, f"{plural(len(found), 'cell')} cannot be run here, as {first.name}: {reason}"

    def speed(self, method: str) -> float:
        """Returns a worker's FLOP/s: the median over cells of the method that have run, else over all."""
        speeds = self._speeds.get(method) or [speed for speeds in self._speeds.values() for speed in speeds]
        return float(np.median(speeds)) if speeds else DEFAULT_SPEED

    @cached_property
    def _speeds(self) -> dict[str, list[float]]:
        """FLOP/s of a worker in each cell that has run, by method."""
        speeds: dict[str, list[float]] = {}
        for i, (cell, progress) in enumerate(zip(self.cells, self.progress, strict=True)):
            if cell.config and progress.summary.seconds > 0:
                flops = self._worker_flops(i, progress.ranks)
                seconds = max(progress.summary.seconds - ROUND_OVERHEAD, 1e-3)
                if flops > 0:
                    speeds.setdefault(cell.config.method.name, []).append(flops / seconds)
        return speeds

    def _ranks_of(self, i: int) -> int:
        """Returns the number of ranks that a cell will probably run on."""
        cell = self.cells[i]
        assert cell.config is not None
        return cell.ranks or self.ranks or self._usual_ranks or cell.config.federation.per_round + 1

    @cached_property
    def _usual_ranks(self) -> int:
        """The number of ranks that most cells ran on; 0 if none has run."""
        pairs = zip(self.cells, self.progress, strict=True)
        counts = Counter(progress.ranks for cell, progress in pairs if progress.ranks and not cell.ranks)
        return counts.most_common(1)[0][0] if counts else 0

    def _worker_flops(self, i: int, ranks: int) -> float:
        """Returns a worker's mean FLOPs per round of a cell; NaN if the cell cannot be planned."""
        config = self.cells[i].config
        assert config is not None
        flops, number = self._client_flops(config), config.federation.per_round
        return np.nan if isinstance(flops, BadInput) else flops * number / max(1, min(ranks - 1, number))

    def _client_flops(self, config: Config) -> float | BadInput:
        """Returns a client's mean FLOPs per round, or why they are unknown; similar cells share it."""
        key = repr(
            (config.data, config.partition, config.models, config.train.epochs, config.federation.clients)
        )
        if key not in self.flops_cache:
            try:
                self.flops_cache[key] = _flops(config)
            except BadInput as error:
                self.flops_cache[key] = error
        return self.flops_cache[key]


def _flops(config: Config) -> float:
    from hpcfl.models.costs import costs

    # the result is shared by cells of other methods, so this method's checks must not reject it
    plan = plan_run(config.model_copy(update={"method": Config().method, "log": Config().log}))
    batches = config.train.batch_size, config.runtime.inference_batch
    counts = costs(plan.architectures, plan.data.shape, *plan.dims, *batches, plan.data.input_type)
    passes = (1 + BACKWARD) * config.train.epochs + 1
    return float(np.mean([counts[c.architecture].flops * len(c.train) * passes for c in plan.clients]))
