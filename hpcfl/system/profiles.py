"""Named profiles: typical devices and links. docs/devices.md has the source of each number."""

from __future__ import annotations

from hpcfl.config.system import Quantity, SystemConfig

QUANTITIES = ("speed", "up", "down", "latency", "watts", "radio_watts", "availability")
"""The properties of a device, in the units of the configuration."""
IDEAL: dict[str, Quantity] = {
    "speed": float("inf"),
    "up": float("inf"),
    "down": float("inf"),
    "latency": 0.0,
    "watts": float("nan"),
    "radio_watts": 0.0,
}
"""NaN: not known."""
PROFILES: dict[str, dict[str, Quantity]] = {
    "ideal": {},
    "phones": {
        "speed": {"median": 1.5, "sigma": 0.6},
        "up": {"median": 11.0, "sigma": 0.7},
        "down": {"median": 36.0, "sigma": 0.5},
        "latency": 0.04,
        "watts": 3.0,
        "radio_watts": 2.0,
    },
    "hospitals": {
        "speed": 2000.0,
        "up": 100.0,
        "down": 100.0,
        "latency": 0.02,
        "watts": 70.0,
        "radio_watts": 0.0,
    },
    "lan": {
        "speed": 50.0,
        "up": 1000.0,
        "down": 1000.0,
        "latency": 0.001,
        "watts": 65.0,
        "radio_watts": 0.0,
    },
}


def quantity(config: SystemConfig, name: str) -> Quantity:
    """Returns a property as configured, else that of the profile, else that of an ideal device."""
    own: Quantity | None = getattr(config, name)
    return PROFILES[config.profile].get(name, IDEAL[name]) if own is None else own
