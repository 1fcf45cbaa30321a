"""The devices and links of all clients, drawn by key; the same on every rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from hpcfl.config.system import LOG_NORMAL, Quantity, SystemConfig
from hpcfl.errors import unknown
from hpcfl.system.profiles import QUANTITIES, quantity
from hpcfl.system.tables import read_properties
from hpcfl.utils.seeds import key, uniforms

GIGA, BYTES_PER_MEGABIT = 1e9, 1e6 / 8


@dataclass(frozen=True)
class Devices:
    """What each client computes and sends with, in the units of the configuration."""

    speed_M: np.ndarray
    up_M: np.ndarray
    down_M: np.ndarray
    latency_M: np.ndarray
    watts_M: np.ndarray
    radio_watts_M: np.ndarray
    availability_M: np.ndarray

    def seconds(self, bytes_down_M: np.ndarray, flops_M: np.ndarray, bytes_up_M: np.ndarray) -> Seconds:
        """Returns how long each part of a round takes; who sends and receives nothing has no latency."""
        talks_M = (bytes_down_M > 0) | (bytes_up_M > 0)
        return Seconds(
            np.where(talks_M, self.latency_M, 0.0),
            bytes_down_M / (self.down_M * BYTES_PER_MEGABIT),
            flops_M / (self.speed_M * GIGA),
            bytes_up_M / (self.up_M * BYTES_PER_MEGABIT),
        )

    def joules(self, compute_M: np.ndarray, transfer_M: np.ndarray) -> np.ndarray:
        """Returns the energy of computing and of sending and receiving; NaN: a device without watts."""
        return self.watts_M * compute_M + self.radio_watts_M * transfer_M


@dataclass(frozen=True)
class Seconds:
    """The parts of each client's round."""

    latency_M: np.ndarray
    down_M: np.ndarray
    compute_M: np.ndarray
    up_M: np.ndarray

    @property
    def total_M(self) -> np.ndarray:
        total: np.ndarray = self.latency_M + self.down_M + self.compute_M + self.up_M
        return total


def draw_devices(config: SystemConfig, seed: int, architectures: Sequence[str]) -> Devices:
    """Returns the devices of clients with these architectures."""
    clients = len(architectures)
    table = read_properties(config.table, QUANTITIES, clients) if config.table else {}
    values = {}
    for name in QUANTITIES:
        values[f"{name}_M"] = _draw(name, quantity(config, name), seed, architectures)
        for client, value in table.get(name, {}).items():
            values[f"{name}_M"][client] = value
    return Devices(**values)


def _draw(name: str, given: Quantity, seed: int, architectures: Sequence[str]) -> np.ndarray:
    """Returns a property of each client."""
    clients = len(architectures)
    if not isinstance(given, Mapping):
        return np.full(clients, float(given))
    if given.keys() == set(LOG_NORMAL):
        uniform_M = uniforms(key(seed, f"system {name}"), np.arange(clients), 1)[:, 0] + 2.0**-54
        return given["median"] * np.exp(given["sigma"] * ndtri(uniform_M))
    for other in [each for each in dict.fromkeys(architectures) if each not in given]:
        raise unknown(f"system.{name}", other, given)
    return np.array([float(given[each]) for each in architectures])
