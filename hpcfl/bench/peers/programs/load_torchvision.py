"""Imports torchvision also where it is built for CUDA and torch is not.

Then it lacks two compiled operators, which no program here uses, and its import fails: they are declared.
"""

import sys

import torch

try:
    import torchvision
except RuntimeError as error:
    if "does not exist" not in str(error):
        raise
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision  # noqa: F401
