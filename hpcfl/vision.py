"""torchvision, imported where it is needed: it takes two seconds, and not every build fits every torch."""

from __future__ import annotations

from types import ModuleType

from hpcfl.errors import BadInput

_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_LIBRARIES: list[object] = []
"""Kept alive: a library's definitions go with it."""


def torchvision() -> ModuleType:
    """Returns the package.

    A CUDA build of it beside a CPU build of torch lacks two compiled operators, which hpcfl does not use, and
    fails on their names alone: then they are declared.
    """
    import torch

    try:
        try:
            import torchvision
        except RuntimeError as error:
            if "does not exist" not in str(error):
                raise
            library = torch.library.Library("torchvision", "DEF")
            for name in ("nms", "qnms"):
                library.define(name + _SIGNATURE)
            _LIBRARIES.append(library)
            import torchvision
    except (ImportError, RuntimeError) as error:
        raise BadInput(
            f"torchvision cannot be loaded ({error}); install the build for torch {torch.__version__}"
        ) from None
    return torchvision
