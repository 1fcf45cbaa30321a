"""Groups of architectures from the papers; client i gets member i modulo the group's size."""

from __future__ import annotations

from hpcfl.models.registry import GROUPS, Group

FEDTGP, FEDORGP = "FedTGP", "FedORGP"
DEEP = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
HTFE8 = ("cnn", "googlenet", "mobilenet_v2", *DEEP)

GROUPS["mlp4"] = Group(("mlp_64", "mlp_256", "mlp_32x3", "mlp_taper"), "quick start")
GROUPS["series3"] = Group(("cnn1d", "cnn1d_wide", "cnn1d_deep"), "hpcfl, for series and sensor windows")
GROUPS["vectors3"] = Group(("mlp_vector", "mlp_vector_wide", "mlp_vector_deep"), "hpcfl, for vectors")
GROUPS["htfe2"] = Group(("cnn", "resnet18"), FEDTGP)
GROUPS["htfe3"] = Group(("resnet10", "resnet18", "resnet34"), FEDTGP)
GROUPS["htfe4"] = Group(("cnn", "googlenet", "mobilenet_v2", "resnet18"), FEDTGP)
GROUPS["htfe8"] = Group(HTFE8, FEDTGP)
GROUPS["htfe9"] = Group(("resnet4", "resnet6", "resnet8", "resnet10", *DEEP), FEDTGP)
GROUPS["htcnn8"] = Group(tuple(f"cnn{number}" for number in range(1, 9)), "FedTGP, Table 9")
GROUPS["hmg3"] = Group(("cnn", "googlenet", "mobilenet_v2"), FEDORGP)
GROUPS["hmg5"] = Group(DEEP, FEDORGP)
GROUPS["hmg8"] = Group(HTFE8, FEDORGP)
GROUPS["hmg10"] = Group((*HTFE8, "densenet121", "efficientnet_b0"), FEDORGP)
GROUPS["light4"] = Group(
    ("resnet8", "mobilenet_v2", "shufflenet_v2", "efficientnet_b0"), "ProtoNorm, sparse prototypes"
)
GROUPS["res34"] = Group(("resnet34",), FEDTGP)
