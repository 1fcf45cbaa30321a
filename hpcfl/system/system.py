"""The system of a run: its devices, and who can be selected and who fails; the same on every rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpcfl.config.system import SystemConfig
from hpcfl.system.devices import Devices, draw_devices
from hpcfl.system.tables import available_in_trace, read_trace
from hpcfl.utils.seeds import key, uniforms


@dataclass(frozen=True)
class System:
    """Everything about a federation's devices that does not depend on what is sent."""

    config: SystemConfig
    seed: int
    devices: Devices
    trace: Sequence[tuple[int, int, int]] | None
    """Client, first and last round; None: there is none."""

    @property
    def clients(self) -> np.ndarray:
        return np.arange(len(self.devices.speed_M))

    def available_M(self, t: int) -> np.ndarray:
        """Returns which clients can be selected in round t (from 0)."""
        uniform_M = uniforms(key(self.seed, "system available", t), self.clients, 1)[:, 0]
        available_M: np.ndarray = uniform_M < self.devices.availability_M
        if self.trace is not None:
            available_M &= available_in_trace(self.trace, t, len(self.clients))
        return available_M

    def failure_M(self, t: int) -> np.ndarray:
        """Returns after which share of its training each client would fail in round t; NaN: it would not."""
        fails, share = uniforms(key(self.seed, "system failure", t), self.clients, 2).T
        return np.where(fails < self.config.failure, share, np.nan)


def make_system(config: SystemConfig, seed: int, architectures: Sequence[str]) -> System | None:
    """Returns the system of clients with these architectures; None: the run has no virtual clock."""
    if config.profile == "off":
        return None
    trace = read_trace(config.trace, len(architectures)) if config.trace else None
    return System(config, seed, draw_devices(config, seed, architectures), trace)
