"""The task that every program here does, and how it reports; needs numpy and torch only."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Task:
    """A federation; the command writes it as JSON, and programs get the name of that file."""

    method: str
    network: str
    """Name of a function of this module: shape of a sample and number of features → extractor.

    Or `htcnn8`, which HtFLlib builds itself.
    """
    features: int
    classes: int
    shape: tuple[int, ...]
    data: str
    """Directory of x.npy (normalised, channels first), y.npy, and first.npy: where each client begins."""
    clients: int
    participants: int
    rounds: int
    batch_size: int
    epochs: int
    lr: float
    weight: float
    """Weight of the prototype loss."""
    server_epochs: int
    """Epochs of the server's training (FedTGP)."""
    workers: int
    """Processes that may train at the same time; a program of one process has so many threads."""


def read_task() -> Task:
    """Returns the task that the first argument names."""
    values = json.loads(Path(sys.argv[1]).read_text())
    return Task(**values | {"shape": tuple(values["shape"])})


class ClientData:
    """The training samples of all clients; a client's are read from the file when they are asked for."""

    def __init__(self, task: Task):
        directory = Path(task.data)
        self.x = np.load(directory / "x.npy", mmap_mode="r")
        self.y = np.load(directory / "y.npy")
        self.first = np.load(directory / "first.npy")

    def __len__(self) -> int:
        return len(self.first) - 1

    def __getitem__(self, client: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns inputs and labels of a client."""
        rows = slice(self.first[client], self.first[client + 1])
        return np.array(self.x[rows]), self.y[rows]

    def tensors(self, client: int) -> tuple[Tensor, Tensor]:
        x, y = self[client]
        return torch.from_numpy(x), torch.from_numpy(y)


def pixels(shape: tuple[int, ...], features: int) -> nn.Module:
    """Returns an extractor whose features are the pixels: with a linear head, logistic regression."""
    return nn.Flatten()


def simple_cnn(shape: tuple[int, ...], features: int) -> nn.Module:
    """Returns two 3×3 convolutions (32 and 64 channels), a max pool, and a dense layer."""
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * ((height - 4) // 2) * ((width - 4) // 2), features),
        nn.ReLU(),
    )


class Classifier(nn.Module):
    """The network of a task: extractor and linear head."""

    def __init__(self, task: Task):
        super().__init__()
        self.extractor = globals()[task.network](tuple(task.shape), task.features)
        self.fc = nn.Linear(task.features, task.classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.extractor(x))
        return logits


def report(number: int) -> None:
    """Prints that a round, counted from 1, is done; the command takes the time when it reads the line."""
    print(f"round {number}", flush=True)
