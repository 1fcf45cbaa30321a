"""The section [system]: the devices, links and policy of the federation that is simulated."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from hpcfl.config.section import Positive, Section, Share

LOG_NORMAL = ("median", "sigma")
"""The keys of a log-normal quantity; a table with other keys is by architecture."""


def _check_quantity(value: Any, smallest: str = "≥ 0") -> Any:
    numbers = value if isinstance(value, dict) else {"": value}
    is_log_normal = bool(set(numbers) & set(LOG_NORMAL))
    for name, number in numbers.items():
        limit = 0 if smallest == "≥ 0" or (is_log_normal and name == "sigma") else 1e-30
        if type(number) not in (int, float) or not limit <= number <= 1e30:
            numbers = {}
            break
    if not numbers:
        raise ValueError(
            f"must be a number {smallest}, {{ median = …, sigma = … }} or {{ ARCHITECTURE = …, … }}"
        )
    if is_log_normal and set(numbers) != set(LOG_NORMAL):
        raise ValueError("a log-normal quantity has the keys median and sigma, and no others")
    return value


def _check_rate(value: Any) -> Any:
    return _check_quantity(value, "> 0")


Quantity = Annotated[float | dict[str, float], BeforeValidator(_check_quantity)]
"""A property of devices: constant, log-normal, or by architecture."""
Rate = Annotated[float | dict[str, float], BeforeValidator(_check_rate)]
"""The same, above zero."""


class SystemConfig(Section):
    profile: Literal["off", "ideal", "phones", "hospitals", "lan"] = "off"
    """Simulated devices: off; ideal (infinitely fast); or phones, hospitals, lan, as in docs/devices.md."""
    speed: Rate | None = None
    """GFLOP/s in training: 5.0, { median = 5.0, sigma = 0.6 } or { mlp_64 = 5.0 }; unset: the profile's."""
    up: Rate | None = None
    """Link from the client in Mbit/s; likewise."""
    down: Rate | None = None
    """Link to the client in Mbit/s; likewise."""
    latency: Quantity | None = None
    """Seconds per round that both directions wait beside the transfer; likewise."""
    watts: Quantity | None = None
    """Watts of a device while it computes; likewise."""
    radio_watts: Quantity | None = None
    """Watts of a device while it sends or receives; likewise."""
    table: str | None = None
    """CSV file with the column client, and any of the six above or availability: values of single clients."""
    availability: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Probability that a client can be selected in a round."""
    trace: str | None = None
    """CSV file with the columns client, first, last: rounds (from 1) in which clients can be selected."""
    failure: Share = 0.0
    """Probability that a participant fails in the middle of its training and loses it."""
    deadline: Positive | None = None
    """Virtual seconds after which a round ends; unset: it waits for all participants."""
    extra: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Participants beyond federation.participation; the round ends without the slowest of that number."""
    late: Literal["drop", "keep"] = "drop"
    """Uploads after the end of a round: drop; or keep them for the round in which they arrive."""

    @model_validator(mode="before")
    @classmethod
    def _set_profile(cls, given: Any) -> Any:
        """Sets `profile` to `ideal` where other keys are given without it."""
        return {"profile": "ideal"} | given if isinstance(given, dict) and given else given

    @property
    def problem(self) -> str:
        """Returns why these keys do not go together; empty: they do."""
        changed = [
            name for name, field in type(self).model_fields.items() if getattr(self, name) != field.default
        ]
        if self.profile == "off" and changed:
            return (
                f"system.profile = 'off': there are no devices for system.{changed[0]}; "
                "'ideal' has infinitely fast ones"
            )
        if self.late == "keep" and self.deadline is None and not self.extra:
            return (
                "system.late = 'keep': no upload is late where a round waits for all; set system.deadline "
                "or system.extra"
            )
        return ""
