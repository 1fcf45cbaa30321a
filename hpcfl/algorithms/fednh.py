"""FedNH: networks are averaged; their heads are fixed prototypes, which the server moves slowly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from hpcfl.algorithms.algorithm import Values
from hpcfl.algorithms.shared_network import SharedNetwork
from hpcfl.exchange.codec import ClientUpload
from hpcfl.exchange.payload import Array, Payload, Rows, class_rows, tensor
from hpcfl.federation.run_plan import RunPlan
from hpcfl.methods.aggregate import Upload, weighted
from hpcfl.methods.baseline_metrics import FEDNH_METRICS
from hpcfl.methods.baseline_options import FedNhOptions
from hpcfl.methods.prototypes import ClassMeans, Prototypes
from hpcfl.methods.sphere import normalise
from hpcfl.models.heads import EPS
from hpcfl.models.registry import PROTOTYPE_HEAD
from hpcfl.training.local_client import LocalClient
from hpcfl.utils.accelerator import in_float64


def moved_prototypes(last_KD: Tensor, uploads: Sequence[Upload], rho: float) -> Tensor:
    """Returns W ← normalise(ρW + (1 − ρ)·m), m = normalise(Σ n_ij û_ij / Σ n_ij).

    Classes that nobody uploads keep their prototypes, and so do those whose sums are zero.
    """
    old_KD, mean_KD = last_KD.double(), normalise(weighted(uploads).value_KD.double())
    new_KD = normalise(rho * old_KD + (1 - rho) * mean_KD)
    moves_K = mean_KD.any(1) & new_KD.any(1)
    return torch.where(moves_K[:, None], new_KD, old_KD).float()


class FedNh(SharedNetwork):
    """Cross-entropy of s·⟨z/‖z‖, W⟩; body, scale and buffers are averaged without weights."""

    Options = FedNhOptions
    metrics = FEDNH_METRICS
    head_kind = PROTOTYPE_HEAD
    weighted = False
    passes_after_training = 1

    def __init__(self, plan: RunPlan, device: torch.device):
        super().__init__(plan, device)
        head = {array.name.rpartition(".")[2]: array for array in self.arrays if array.name[:5] == "head."}
        self.prototypes, self.scale = replace(head["weight"], counted=True), head["scale"]
        self.arrays.remove(head["weight"])
        """What is averaged."""

    def download_arrays(self) -> Sequence[Array]:
        return [*self.arrays, self.prototypes]

    def upload_arrays(self) -> Sequence[Array]:
        classes, features = self.plan.dims
        counts = Rows("counts", classes, 1, torch.int32, counted=False, present_as="prototypes")
        return [*self.arrays, Rows("prototypes", classes, features), counts]

    def initial(self) -> Payload:
        start = torch.tensor(self.options.scale)
        return {**self.initial_values(self.download_arrays()), self.scale.name: start}

    def upload(self, client: LocalClient, download: Payload) -> Payload:
        """Returns the network, and û_ij: the means of normalised features by class, normalised."""
        means = ClassMeans(*self.plan.dims, device=self.device)
        for z_BD, y_B in client.features():
            means.add(normalize(z_BD, dim=1, eps=EPS), y_B)
        mean, count_K1 = means.prototypes(), client.count_K[:, None]
        unit_KD = normalise(in_float64(mean.value_KD)).float()
        return {
            **super().upload(client, download),
            "prototypes": Prototypes(unit_KD, mean.present_K),
            "counts": Prototypes(count_K1.int(), mean.present_K),
        }

    def aggregate(self, t: int, last: Payload, uploads: Sequence[ClientUpload]) -> Payload:
        if not uploads:
            return last
        rows = [
            Upload(
                class_rows(upload.payload, "prototypes"),
                class_rows(upload.payload, "counts").value_KD[:, 0],
                upload.client,
            )
            for upload in uploads
        ]
        last_KD = tensor(last, self.prototypes.name)
        moved_KD = moved_prototypes(last_KD, rows, self.options.smoothing)
        return {**self.average(uploads), self.prototypes.name: moved_KD}

    def round_values(
        self, t: int, download: Payload, uploads: Sequence[ClientUpload], receivers_M: np.ndarray
    ) -> Values:
        return {"/round/scale": tensor(download, self.scale.name).item()}
