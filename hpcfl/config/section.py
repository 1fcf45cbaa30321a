"""The base class of all sections of the configuration, and common field types."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Weight = Annotated[float, Field(ge=0, le=1e38)]
Positive = Annotated[float, Field(gt=0, le=1e38)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
Names = list[str]
Weights = list[Annotated[int, Field(ge=1, le=10_000)]]
Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]


class Section(BaseModel):
    """A section (TOML table) of the configuration; refuses unknown keys, wrong types, NaN and infinity."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )
