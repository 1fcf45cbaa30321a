"""Runs on one type of device in one start: python -m tests.mpi.on_devices TYPE DIRECTORY DATA.

TYPE is `standin`, two stand-in devices, `float32`, one without float64, or `cpu`. All train by torch's own
step.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch

from hpcfl.bench.stand_in import stand_in_devices
from hpcfl.comm.communicator import open_communicator
from hpcfl.comm.launcher import find_launcher
from hpcfl.engine import assemble, launch
from hpcfl.runtime.device_memory import DeviceMemory
from tests.helpers.cases import CASES, METHODS

ALIGN_SHORTLY = ["method.iterations=30"]
MORE = {"protonorm": ALIGN_SHORTLY, "sparse thomson": ALIGN_SHORTLY}
RUNS = {
    name: [*CASES[name], *MORE.get(name, []), "runtime.step=plain"]
    for name in (
        *METHODS,
        *("partial", "clipped", "images", "networks", "adamw", "unlabelled images"),
        *("sparse thomson", "clients that recover", "validation, prototypes"),
    )
} | {
    "nothing on the device": [*CASES["few"], "runtime.step=plain", "runtime.device_memory=0"],
    "few": [*CASES["few"], "runtime.step=plain"],
}


SHARED = {f"one device, {way}": [*RUNS["partial"], f"runtime.placement={way}"] for way in ("pool", "pinned")}
"""What several ranks run on one device."""
FLOAT32 = (
    "fedproto",
    "fedtgp",
    "fedsap-ssl",
    "fedproto-sparse",
    "simplex",
    "fedgh",
    "fedgen",
    "fedmps",
    "fednh",
)
"""What is run on the device without float64."""


def main(kind: str, directory: Path, root: str) -> None:
    launcher = find_launcher()
    comm = open_communicator(launcher)
    leave, comm.close = comm.close, comm.release  # type: ignore[method-assign]
    launch.open_communicator = lambda launcher: comm
    codes = {}
    kinds: dict[str, AbstractContextManager[object]] = {
        "cpu": nullcontext(),
        "standin": stand_in_devices(2),
        "float32": stand_in_devices(1, float64=False),
    }
    with kinds[kind]:
        for name, settings in RUNS.items():
            if kind == "float32" and name not in FLOAT32:
                continue
            log = str(directory / f"{name}.h5")
            codes[name] = launch.launch_train(None, [*settings, f"data.root={root}"], log, False)
    if comm.size > 1:
        sharing, divide_memory = [], assemble.divide_memory

        def divide(device: torch.device, share: float, ranks: int, data: int) -> DeviceMemory:
            sharing.append(ranks)
            return divide_memory(device, share, ranks, data)

        assemble.divide_memory = divide
        with stand_in_devices(1):
            for name, settings in SHARED.items():
                codes[name] = launch.launch_train(None, settings, str(directory / f"{name}.h5"), False)
        if comm.is_server:
            print("sharing", sharing)
        # rank 0 has no accelerator, the others have
        with nullcontext() if comm.is_server else stand_in_devices(1):
            codes["mixed"] = launch.launch_train(None, [], str(directory / "mixed.h5"), False)
    if comm.is_server:
        print("codes", codes)
    leave()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
