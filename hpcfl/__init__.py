"""hpcfl: prototype-based heterogeneous federated learning on clusters, over MPI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["BadInput", "RunFailed", "open_run", "open_study", "prepare", "train"]

if TYPE_CHECKING:
    from hpcfl.api import open_run, open_study, prepare, train
    from hpcfl.errors import BadInput, RunFailed


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:
    """Returns what is there for Python users; loaded when it is asked for, so that commands start fast."""
    if name not in __all__:
        raise AttributeError(f"module 'hpcfl' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("hpcfl.errors" if name in ("BadInput", "RunFailed") else "hpcfl.api"), name)
