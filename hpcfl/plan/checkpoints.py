"""The size of a run's checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

from hpcfl.plan.forecast import Forecast


@dataclass(frozen=True)
class CheckpointSizes:
    """Bytes of a checkpoint."""

    clients: int
    """The states of all clients; those that were never trained are not saved."""
    server: int
    """What rank 0 keeps, as far as it has it before the first round."""
    factor: float
    """runtime.checkpoint_disk."""

    @property
    def total(self) -> int:
        return self.clients + self.server

    @property
    def disk(self) -> int:
        """Most bytes on disk: of the last two checkpoints, with what they share."""
        return int(self.factor * self.clients) + 2 * self.server


def checkpoint_sizes(forecast: Forecast) -> CheckpointSizes:
    """Returns the sizes of the checkpoints of a run."""
    plan = forecast.plan
    clients = [forecast.layouts.state(i).nbytes for i in range(len(plan.clients))]
    own = sum(value.nbytes for value in forecast.algorithm.state().values())
    by_client = len(clients) * (1 + 8 + 8 * plan.dims[0])  # diverged, best accuracy, norms of the head
    server = forecast.messages.download + own + by_client
    return CheckpointSizes(sum(clients), server, plan.config.runtime.checkpoint_disk)
