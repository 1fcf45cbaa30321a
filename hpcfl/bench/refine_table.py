"""Speed of the refinements on the server by the number of classes, with the share of the GEMM limit."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from rich.table import Table

from hpcfl.bench.limits import MachineLimits
from hpcfl.config.method import MethodConfig
from hpcfl.config.schema import Config, RuntimeConfig
from hpcfl.config.train import TrainConfig
from hpcfl.methods.aggregate import Upload
from hpcfl.methods.catalogue import method_spec
from hpcfl.methods.prototype_method import build_method
from hpcfl.methods.prototypes import Prototypes
from hpcfl.methods.spec import PrototypeSpec
from hpcfl.runtime.devices import set_up_torch
from hpcfl.runtime.exit_handling import DONE
from hpcfl.utils.formatting import console, plural

CLASSES = (10, 100, 200, 1000)
CLIENTS, SHARE, BATCH = 20, 0.36, 32
"""Each client uploads this share of the classes: about 720 uploads of 100 classes."""
REPEATS = 3


@dataclass(frozen=True)
class Case:
    """A refinement and how it is measured."""

    method: str
    measured: Mapping[str, Any]
    """Options that bound the iterations which are measured."""
    factor: int
    """A round of the method has so many times these iterations, at most."""
    kind: torch.dtype
    """Of its largest products."""


CASES = {
    "Thomson": Case("protonorm", {"iterations": 10}, 50, torch.float64),
    "simplex": Case("simplex", {"iterations": 10}, 50, torch.float64),
    "TGP": Case("fedtgp", {"server_epochs": 1}, 100, torch.float32),
    "orthogonal": Case("fedorgp", {"server_epochs": 1}, 1, torch.float32),
}


def bench_refinements(features: int, threads: int, sizes: Sequence[int] = CLASSES) -> int:
    """Prints, for each number of classes and refinement, the time of an iteration and of a round."""
    device = set_up_torch(RuntimeConfig(threads=threads), 0, on="cpu")
    limits = {kind: MachineLimits(device, kind).multiplications() for kind in (torch.float32, torch.float64)}
    table = Table("classes", "refinement", box=None, pad_edge=False)
    for head in ("iterations", "ms each", "of GEMM limit", "s a round, at most"):
        table.add_column(head, justify="right")
    for classes in sizes:
        uploads = _uploads(classes, features)
        for name, case in CASES.items():
            iterations, seconds = _measure(case, classes, uploads)
            each, factor = seconds / max(1, iterations), case.factor if iterations else 1
            share = _flops(name, classes, features) / each / limits[case.kind]
            table.add_row(
                str(classes),
                name,
                str(iterations * factor or "–"),
                f"{1e3 * each:.2f}",
                f"{share:.0%}" if share else "–",
                f"{seconds * factor:.3f}",
            )
    console().print(
        f"{features} features, {CLIENTS} clients with {SHARE:.0%} of the classes each, batch {BATCH}, "
        f"{plural(threads, 'thread')}; GEMM limit {limits[torch.float32] / 1e9:.0f} GFLOP/s in float32, "
        f"{limits[torch.float64] / 1e9:.0f} in float64; medians of {REPEATS}"
    )
    console().print(table)
    return DONE


def _flops(name: str, classes: int, features: int) -> float:
    """Returns the FLOPs of the products of an iteration; 0: it has none that count.

    Thomson: the Gram matrix and the force, in the span of the classes. TGP and orthogonal: six products of
    the server's network.
    """
    if name == "Thomson":
        return 4.0 * classes**2 * min(classes, features)
    return 12.0 * classes * features**2 if name in ("TGP", "orthogonal") else 0.0


def _uploads(classes: int, features: int) -> list[Upload]:
    """Returns random uploads, the same at every call; together they have all classes."""
    random = torch.Generator().manual_seed(0)
    uploads = []
    for i in range(CLIENTS):
        present_K = torch.rand(classes, generator=random) < SHARE
        present_K[i::CLIENTS] = True
        value_KD = torch.rand(classes, features, generator=random) * present_K[:, None]
        uploads.append(Upload(Prototypes(value_KD, present_K), torch.ones(classes, dtype=torch.int64), i))
    return uploads


def _measure(case: Case, classes: int, uploads: list[Upload]) -> tuple[int, float]:
    """Returns iterations and seconds of a refinement; the first one is not counted."""
    features = uploads[0].prototypes.value_KD.shape[1]
    settings = MethodConfig(name=case.method, **case.measured)
    spec = method_spec(settings, "synthetic")
    assert isinstance(spec, PrototypeSpec)
    config = Config(method=settings, train=TrainConfig(batch_size=BATCH))
    method = build_method(spec, config, (classes, features))
    last, mean, seconds = Prototypes.none(classes, features), method.aggregate(uploads), []
    for t in range(REPEATS + 1):
        start = time.perf_counter()
        method.refine(t, last, mean, uploads)
        seconds.append(time.perf_counter() - start)
    return method.refine.stats.iterations, median(seconds[1:])
