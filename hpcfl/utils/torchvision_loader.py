"""Imports torchvision only where it is needed, quickly, and also where its build does not match torch."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

from hpcfl.errors import BadInput

_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_LIBRARIES: list[object] = []
"""Keeps libraries alive, because their operators vanish with them."""
_COMPILER = ("torch._dynamo", "torch._dynamo.utils")


def load_torchvision() -> ModuleType:
    """Returns the module torchvision.

    A CUDA build of torchvision with a CPU build of torch lacks two compiled operators, which hpcfl does not
    use, and its import fails; then these operators are declared and the import is repeated.
    """
    if "torchvision" in sys.modules:
        return sys.modules["torchvision"]
    import torch

    try:
        try:
            return _import_without_compiler()
        except RuntimeError as error:
            if "does not exist" not in str(error):
                raise
            library = torch.library.Library("torchvision", "DEF")
            for name in ("nms", "qnms"):
                library.define(name + _SIGNATURE)
            _LIBRARIES.append(library)
            return _import_without_compiler()
    except (ImportError, RuntimeError) as error:
        raise BadInput(
            f"torchvision cannot be loaded ({error}); install the build for torch {torch.__version__}"
        ) from None


def _import_without_compiler() -> ModuleType:
    """Imports torchvision without torch's compiler: in 0.3 s instead of 2.3 s, with 70 MB less per rank.

    At import, torchvision asks the compiler whether it can compile a detection operator, which hpcfl does not
    use. Stand-in modules answer no during the import; if they do not suffice, the compiler is imported.
    """
    if not any(name in sys.modules for name in _COMPILER):
        for name in _COMPILER:
            sys.modules[name] = ModuleType(name)
        vars(sys.modules[_COMPILER[1]])["is_compile_supported"] = lambda device: False
        vars(sys.modules[_COMPILER[0]])["allow_in_graph"] = lambda function: function  # of torchvision 0.17
        try:
            return _import_torchvision()
        except (ImportError, AttributeError):
            pass
        finally:
            for name in _COMPILER:
                del sys.modules[name]
    return _import_torchvision()


def _import_torchvision() -> ModuleType:
    """Imports torchvision; if that fails, removes its partly imported modules."""
    try:
        return import_module("torchvision")
    except Exception:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        raise
