"""Clients' networks as programs that torch alone loads; prototypes and features as tensors."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from hpcfl.data.dataset import Dataset
from hpcfl.export.saved_clients import SavedClient, SavedClients
from hpcfl.log.reader import Run
from hpcfl.methods.infer import num_correct
from hpcfl.models.network import Network
from hpcfl.training.step.options import StepOptions
from hpcfl.utils.formatting import print_line


class FeaturesAndLogits(nn.Module):
    """Returns the features and the logits of a batch."""

    def __init__(self, network: Network, options: StepOptions):
        super().__init__()
        self.network, self.options = network, options

    def forward(self, x_B: Tensor) -> tuple[Tensor, Tensor]:
        with self.options.autocast("cpu"):
            z_BD = self.network.extractor(x_B)
        z_BD = z_BD.float()
        with self.options.autocast("cpu"):
            logit_BK = self.network.head(z_BD)
        return z_BD, logit_BK.float()


class Programs:
    """Programs by architecture: torch.export takes seconds, so clients of one architecture share one."""

    def __init__(self, clients: SavedClients):
        self.clients = clients
        self.made: dict[str, tuple[FeaturesAndLogits, ExportedProgram | None, str]] = {}

    def of(self, client: SavedClient) -> tuple[FeaturesAndLogits, ExportedProgram | None, str]:
        """Returns a client's network, its program or None, and why there is none."""
        network, name = client.network(), client.architecture
        if name not in self.made:
            module = FeaturesAndLogits(network, self.clients.options[name]).eval()
            self.made[name] = module, *_export(module, self.clients.plan.data)
        else:
            with torch.no_grad():
                for own, new in zip(_tensors(self.made[name][0].network), _tensors(network), strict=True):
                    own.copy_(new)
        return self.made[name]


def _export(module: nn.Module, data: Dataset) -> tuple[ExportedProgram | None, str]:
    """Returns the program of a module for batches of any size, or None and why torch cannot make one."""
    sizes = ({0: Dim("batch", min=1)},)
    example_B = torch.zeros(2, *data.shape, dtype=getattr(torch, data.input_type))
    try:
        with warnings.catch_warnings(action="ignore"):
            return torch.export.export(module, (example_B,), dynamic_shapes=sizes, strict=False), ""
    except Exception as error:  # a network may be anything
        return None, f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"


def _tensors(network: Network) -> list[Tensor]:
    return [*network.parameters(), *network.buffers()]


@dataclass(frozen=True)
class TorchExport:
    """What is exported of a run, beside its prototypes and features."""

    clients: Sequence[int] = ()
    """Empty: all that have not diverged."""
    samples: bool = False
    """Whether each client's test samples are written, too."""

    def write(self, run: Run, directory: Path) -> Iterator[str]:
        """Writes the files of a run and yields their names."""
        saved = SavedClients(run)
        programs, chosen = Programs(saved), self.clients
        if saved.round + 1 < run.rounds_done:
            print_line(
                f"{run.path}: its newest checkpoint is of round {saved.round + 1} of {run.rounds_done}"
            )
        if not chosen:
            chosen = [i for i in range(len(saved.plan.clients)) if i not in saved.diverged]
            if saved.diverged:
                print_line(f"{run.path}: left out, as they diverged: {', '.join(map(str, saved.diverged))}")
        for i in dict.fromkeys(chosen):
            yield from self._write_client(run, saved.client(i), programs, directory)
        for name, rounds in (("prototypes", "/prototypes/saved_round"), ("features", "/features/round")):
            if len(run.datasets.get(rounds, ())):
                yield _save(directory, f"{name}.pt", logged_tensors(run, name))

    def _write_client(
        self, run: Run, client: SavedClient, programs: Programs, directory: Path
    ) -> Iterator[str]:
        """Writes the program of a client, or its parameters, and what they are."""
        module, program, problem = programs.of(client)
        name, (x_N, y_N) = f"client-{client.id}", client.samples("test")
        measured = accuracy_by_head(module, x_N, y_N, run.config.runtime.inference_batch)
        logged = float(run["/client/accuracy_head"][client.round - 1, client.id])
        if not np.isnan(logged) and measured != logged:
            print_line(
                f"{run.path}: client {client.id} has {measured:.2%} by head here, {logged:.2%} in the log"
            )
        about = describe(client) | {"accuracy_head": measured}
        if program is None:
            about |= {"file": f"{name}.pt", "no_program": problem}
            yield _save(directory, about["file"], module.network.state_dict())
        else:
            about |= {"file": f"{name}.pt2"}
            torch.export.save(program, directory / about["file"])
            yield about["file"]
        (directory / f"{name}.json").write_text(json.dumps(about, indent=1))
        yield f"{name}.json"
        if self.samples:
            yield _save(directory, f"{name}-test.pt", {"x": x_N, "y": y_N})


def describe(client: SavedClient) -> dict[str, Any]:
    """Returns what a program needs to know about a client's network and its inputs."""
    plan = client.clients.plan
    config, data, source = plan.config, plan.data, client.clients.source
    statistics = {}
    if data.is_images:  # x = (pixel − mean) / std, pixels 0 … 255
        statistics = {"mean": source.mean_HWC[0, 0].tolist(), "std": source.std_HWC[0, 0].tolist()}
    elif source.mean is not None:
        statistics = {"mean": source.mean.flatten().tolist(), "std": source.std.flatten().tolist()}
    return {
        "client": client.id,
        "round": client.round,
        "method": config.method.name,
        "data": config.data.name,
        "architecture": client.architecture,
        "classes": list(data.class_names),
        "features": plan.dims[1],
        "input": {"shape": ["batch", *data.shape], "dtype": data.input_type, **statistics},
        "output": ["features", "logits"],
        "precision": config.runtime.precision,
        "batch": config.runtime.inference_batch,
        "test_samples": len(plan.clients[client.id].test),
        "torch": torch.__version__,
    }


@torch.no_grad()
def accuracy_by_head(module: FeaturesAndLogits, x_N: Tensor, y_N: Tensor, batch: int) -> float:
    """Returns the share of correct predictions by the head."""
    correct = [
        int(num_correct(module(x_B)[1].argmax(1), y_B))
        for x_B, y_B in zip(x_N.split(batch), y_N.split(batch), strict=True)
    ]
    return sum(correct) / len(y_N)


def logged_tensors(run: Run, group: str) -> dict[str, Tensor]:
    """Returns the saved datasets of a group of the log, by path, as tensors."""
    found = {path: values for path, values in run.datasets.items() if path.startswith(f"/{group}/")}
    rounds = run["/prototypes/saved_round"]
    return {
        path: torch.from_numpy(values[rounds] if run.metrics[path].dims[0] == "round" else values)
        for path, values in found.items()
        if path not in run.lacking
    }


def _save(directory: Path, name: str, tensors: Mapping[str, Tensor]) -> str:
    torch.save(dict(tensors), directory / name)
    return name
