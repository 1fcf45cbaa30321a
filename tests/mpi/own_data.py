"""`python -m tests.mpi.own_data DIR` trains every case of `CASES` on the data that are prepared in DIR."""

from __future__ import annotations

import math
import os
import sys

from torch import Tensor, nn

import hpcfl


def flat(shape: tuple[int, ...], features: int) -> nn.Module:
    """A user's own network for numbers."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), features), nn.Tanh())


class Words(nn.Module):
    """A user's own network for token numbers."""

    def __init__(self, features: int):
        super().__init__()
        self.embedding = nn.Embedding(50, 8)
        self.cells = nn.GRU(8, features, batch_first=True)

    def forward(self, token_BL: Tensor) -> Tensor:
        z_BLD: Tensor = self.cells(self.embedding(token_BL))[0]
        return z_BLD[:, -1]


def words(shape: tuple[int, ...], features: int) -> nn.Module:
    return Words(features)


OWN = "tests.mpi.own_data:"
CASES = {
    "windows-ours": ("windows", "series3"),
    "windows-own": ("windows", f"{OWN}flat"),
    "table-ours": ("table", "vectors3"),
    "table-own": ("table", f"{OWN}flat"),
    "dataset-ours": ("dataset", "series3"),
    "dataset-own": ("dataset", f"{OWN}flat"),
    "tokens-own": ("tokens", f"{OWN}words"),
}
"""Names of datasets and of their networks."""


def main(directory: str) -> None:
    """Trains all cases; under mpirun on all of its ranks."""
    comm = None
    if "PMI_RANK" in os.environ or "OMPI_COMM_WORLD_RANK" in os.environ:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
    for case, (data, network) in CASES.items():
        hpcfl.train(
            {
                "data": {"name": data, "root": directory},
                "models": {"group": network, "features": 16},
                "federation": {"clients": 5, "rounds": 3, "participation": 4},
                "partition": {"alpha": 2.0},
                "train": {"lr": 0.1},
            },
            comm,
            out=f"{directory}/{case}{'' if comm is None else '-ranks'}.h5",
        )


if __name__ == "__main__":
    main(sys.argv[1])
