"""LG-FedAvg: clients keep their extractors, and their heads are averaged."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hpcfl.algorithms.shared_head import SharedHead
from hpcfl.exchange.codec import ClientUpload
from hpcfl.exchange.payload import Array, Dense, Payload, tensor
from hpcfl.training.local_client import LocalClient


class LgFedAvg(SharedHead):
    """Cross-entropy on the clients; the server averages the heads by the participants' training samples."""

    def upload_arrays(self) -> Sequence[Array]:
        return [*self.arrays, Dense("samples", (1,), torch.int64, counted=False)]

    def upload(self, client: LocalClient, download: Payload) -> Payload:
        return {**self.head_payload(client.network.head), "samples": client.count_K.sum()[None]}

    def aggregate(self, t: int, last: Payload, uploads: Sequence[ClientUpload]) -> Payload:
        """Returns Σ n_i h_i / Σ n_i, summed in float64."""
        if not uploads:
            return last
        count_U = torch.stack([tensor(upload.payload, "samples")[0] for upload in uploads]).double()
        weight_U = (count_U / count_U.sum()).tolist()
        return self.mean_head(uploads, weight_U)
