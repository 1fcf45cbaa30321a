"""Metrics of runs with a virtual clock: docs/devices.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hpcfl.metrics.metric import Metric, declare

if TYPE_CHECKING:
    from hpcfl.system.devices import Devices

DEVICES = {
    "speed": "training speed of the device in GFLOP/s",
    "up": "link from the client in Mbit/s",
    "down": "link to the client in Mbit/s",
    "latency": "seconds that both directions wait in a round, beside the transfer",
    "watts": "watts of the device while it computes; NaN: not known",
    "radio_watts": "watts of the device while it sends or receives",
}
PARTS = {
    "wait": "until it has finished its work of an earlier round",
    "latency": "of latency",
    "down": "of the download",
    "compute": "of training and the passes after it; until it fails, if it does",
    "up": "of the upload",
}
VIRTUAL_METRICS: tuple[Metric, ...] = (
    declare("/virtual/seconds", "round", "f8", "virtual seconds of the round"),
    declare("/virtual/joules", "round", "f8", "energy of all clients in the round; NaN: no device has watts"),
    declare(
        "/virtual/status",
        "round client",
        "i4",
        "0 not selected, 1 in time, 2 late, 3 surplus (later than the uploads needed), 4 failed, 5 diverged, "
        "6 unavailable",
    ),
    declare(
        "/virtual/earlier",
        "round client",
        "?",
        "whether its late upload of an earlier round counts in this one",
    ),
    declare(
        "/virtual/client_seconds",
        "round client",
        "f8",
        "virtual seconds from the start of the round until its upload is in, or until it fails; NaN: idle",
    ),
    *(
        declare(f"/virtual/seconds_{name}", "round client", "f8", f"virtual seconds {about}; NaN: idle")
        for name, about in PARTS.items()
    ),
    declare("/virtual/client_joules", "round client", "f8", "energy of the client; NaN: it has no watts"),
    declare(
        "/virtual/bytes_down",
        "round client",
        "i8",
        "bytes that the client receives, with those beside payloads",
    ),
    declare(
        "/virtual/bytes_up", "round client", "i8", "bytes that the client sends, counted or late; likewise"
    ),
    *(declare(f"/virtual/{name}", "client", "f8", about) for name, about in DEVICES.items()),
)


def device_values(devices: Devices) -> dict[str, np.ndarray]:
    """Returns the properties of the devices, by path."""
    return {f"/virtual/{name}": getattr(devices, f"{name}_M") for name in DEVICES}
