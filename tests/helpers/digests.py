"""Digests of every `result` dataset of every case, and the machines on which they hold.

Equal bits are promised for one torch on one kind of CPU, so digests are kept by machine. After a change that
alters results on purpose, and on a new kind of machine at a commit known to be right, write them with

    python -m tests.helpers.digests
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path

import h5py
import numpy as np
import torch
from torch.nn.functional import conv2d

from tests.helpers.cases import prepare_images, run_cases
from tests.helpers.mpi import ROOT

DIGESTS = Path(__file__).parents[1] / "mpi" / "digests.json"
SIZE = 4
"""Bytes of a digest."""


def read_digests(log: Path) -> dict[str, str]:
    """Returns the digest of every `result` dataset in a log, by its path."""
    found = {}
    with h5py.File(log, "r") as file:
        groups = [group for group in file.values() if isinstance(group, h5py.Group)]
        for dataset in (each for group in groups for each in group.values()):
            if dataset.attrs["kind"] == "result":
                values = dataset.asstr()[()] if h5py.check_string_dtype(dataset.dtype) else dataset[()]
                data = repr(values.tolist()).encode() if values.dtype == object else values.tobytes()
                found[dataset.name] = _digest(data + repr(values.shape).encode())
    return found


@cache
def machine() -> str:
    """Returns the key of this machine: versions, the instruction set, and a digest of its arithmetic.

    The last is needed because BLAS and oneDNN choose their kernels by the CPU's model, too. All is found in a
    fresh process, so that no setting of hpcfl changes the key.
    """
    environ = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"} | os.environ
    command = [sys.executable, "-m", "tests.helpers.digests", "machine"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ, cwd=ROOT)
    return done.stdout.strip()


def _machine() -> str:
    arithmetic = _digest(b"".join(part.tobytes() for part in _arithmetic()))
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy", "scipy", "torchvision"))
    return f"{versions}, {torch.backends.cpu.get_cpu_capability()}, {arithmetic}"


def _arithmetic() -> list[np.ndarray]:
    """Returns the results of the operations that runs consist of, at the sizes of the cases."""
    torch.set_num_threads(1)
    draw = np.random.default_rng(0)

    def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.from_numpy(draw.standard_normal(shape)).to(dtype)

    found = []
    for rows in (1, 7, 32, 256):
        x, w = normal(rows, 64), normal(64, 32).requires_grad_()
        y = (x @ w).log_softmax(1)
        y.square().mean().backward()
        assert w.grad is not None
        found += [y.detach(), w.grad]
    for channels, size, kernel, stride in ((3, 16, 7, 2), (64, 4, 3, 1), (10, 7, 5, 1), (64, 4, 1, 1)):
        for layout in (torch.channels_last, torch.contiguous_format):
            x = normal(7, channels, size, size).contiguous(memory_format=layout).requires_grad_()
            w = normal(64, channels, kernel, kernel).contiguous(memory_format=layout).requires_grad_()
            y = conv2d(x, w, stride=stride, padding=kernel // 2)
            y.square().mean().backward()
            assert x.grad is not None
            assert w.grad is not None
            found += [y.detach(), x.grad, w.grad]
            with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
                found.append(conv2d(x, w, stride=stride).float())
    square = normal(6, 32, dtype=torch.float64)
    found += [*torch.linalg.svd(square, full_matrices=False), *torch.linalg.qr(square.T), square @ square.T]
    table = draw.standard_normal((20, 6))
    return [*(part.numpy() for part in found), np.linalg.norm(table), np.exp(table @ table.T).sum()]


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=SIZE).hexdigest()


def known_digests() -> dict[str, dict[str, dict[str, str]]]:
    """Returns the digests that are kept: by machine, case and dataset."""
    return json.loads(DIGESTS.read_text()) if DIGESTS.exists() else {}


def write_digests(logs: Path) -> None:
    """Keeps the digests of the logs in a directory, one per case, for this machine."""
    own = {log.stem: read_digests(log) for log in sorted(logs.glob("*.h5"))}
    kept = known_digests() | {machine(): own}
    lines = [
        f"{json.dumps(key)}: {{\n"
        + ",\n".join(f" {json.dumps(case)}: {json.dumps(found)}" for case, found in cases.items())
        + "\n}"
        for key, cases in kept.items()
    ]
    DIGESTS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main() -> None:
    """Runs all cases and keeps their digests."""
    with tempfile.TemporaryDirectory() as directory:
        logs, data = Path(directory, "logs"), Path(directory, "data")
        for path in (logs, data):
            path.mkdir()
        prepare_images(data)
        run_cases(logs, data)
        write_digests(logs)


if __name__ == "__main__":
    print(_machine()) if sys.argv[1:] == ["machine"] else main()
