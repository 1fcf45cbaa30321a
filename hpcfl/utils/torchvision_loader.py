"""torchvision, imported where it is needed: it takes its time, and not every build fits every torch."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

from hpcfl.errors import BadInput

_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_LIBRARIES: list[object] = []
"""Kept alive: a library's definitions go with it."""
_COMPILER = ("torch._dynamo", "torch._dynamo.utils")


def load_torchvision() -> ModuleType:
    """Returns the package.

    A CUDA build of it beside a CPU build of torch lacks two compiled operators, which hpcfl does not use, and
    fails on their names alone: then they are declared.
    """
    if "torchvision" in sys.modules:
        return sys.modules["torchvision"]
    import torch

    try:
        try:
            return _imported()
        except RuntimeError as error:
            if "does not exist" not in str(error):
                raise
            library = torch.library.Library("torchvision", "DEF")
            for name in ("nms", "qnms"):
                library.define(name + _SIGNATURE)
            _LIBRARIES.append(library)
            return _imported()
    except (ImportError, RuntimeError) as error:
        raise BadInput(
            f"torchvision cannot be loaded ({error}); install the build for torch {torch.__version__}"
        ) from None


def _imported() -> ModuleType:
    """Imports the package without torch's compiler: 0.3 s in place of 2.3 s, and 70 MB less in every rank.

    It asks the compiler whether it can compile a detection operator, which hpcfl does not use. For that
    moment a stand-in answers no; a version that asks for more gets the compiler itself.
    """
    if not any(name in sys.modules for name in _COMPILER):
        for name in _COMPILER:
            sys.modules[name] = ModuleType(name)
        vars(sys.modules[_COMPILER[1]])["is_compile_supported"] = lambda device: False
        try:
            return _whole()
        except (ImportError, AttributeError):
            pass
        finally:
            for name in _COMPILER:
                del sys.modules[name]
    return _whole()


def _whole() -> ModuleType:
    """Imports the package; an import that fails half-way is taken back."""
    try:
        return import_module("torchvision")
    except Exception:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        raise
