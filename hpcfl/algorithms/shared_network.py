"""Base of algorithms whose server averages the clients' networks and sends one to all."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from hpcfl.algorithms.algorithm import Algorithm
from hpcfl.algorithms.initial_network import initial_network
from hpcfl.exchange.codec import ClientUpload
from hpcfl.exchange.payload import Array, Dense, Payload, tensor
from hpcfl.federation.run_plan import RunPlan
from hpcfl.models.network import build_on_meta
from hpcfl.training.local_client import LocalClient

SAMPLES = Dense("samples", (1,), torch.int64, counted=False)


class SharedNetwork(Algorithm):
    """Client 0's initial network goes to all before the first round, the average before every other.

    Parameters count as the papers count, buffers (batch-norm statistics) go beside. Buffers of whole numbers
    do not travel: batch-norm's number of batches changes nothing.
    """

    equal_networks = True
    download_changes = "network"
    receivers = "all"
    recovers = True
    buffers = True
    """Whether buffers travel; if not, each client keeps its own."""
    weighted = True
    """Whether the average is weighted by the clients' training samples, which then travel too."""
    first_download = True
    """Whether there is a download before the first round; if not, clients start from their own networks."""

    def __init__(self, plan: RunPlan, device: torch.device):
        super().__init__(plan, device)
        network = build_on_meta(plan.clients[0].architecture, plan.data.shape, *plan.dims)
        self.arrays = [
            Dense(name, tuple(value.shape), value.dtype, counted=isinstance(value, nn.Parameter))
            for name, value in (*network.named_parameters(), *network.named_buffers())
            if isinstance(value, nn.Parameter) or (self.buffers and value.is_floating_point())
        ]
        """What travels of a network; the names are those of the blocks of a client."""

    def download_arrays(self) -> Sequence[Array]:
        return self.arrays

    def upload_arrays(self) -> Sequence[Array]:
        return [*self.arrays, SAMPLES] if self.weighted else self.arrays

    def initial(self) -> Payload:
        return self.initial_values(self.arrays) if self.first_download else {}

    def initial_values(self, arrays: Sequence[Array]) -> dict[str, Tensor]:
        """Returns arrays of client 0's network before the first round."""
        network = initial_network(self.plan, 0, pretrained=self.pretrained)
        values = dict((*network.named_parameters(), *network.named_buffers()))
        return {array.name: values[array.name].detach() for array in arrays}

    def apply_download(self, client: LocalClient, download: Payload) -> None:
        for name in download:
            client.blocks[name].copy_(tensor(download, name))

    def upload(self, client: LocalClient, download: Payload) -> Payload:
        payload = {array.name: client.blocks[array.name] for array in self.arrays}
        return payload | {"samples": client.count_K.sum()[None]} if self.weighted else payload

    def aggregate(self, t: int, last: Payload, uploads: Sequence[ClientUpload]) -> Payload:
        return self.average(uploads) if uploads else last

    def average(self, uploads: Sequence[ClientUpload]) -> Payload:
        """Returns Σ n_i w_i / Σ n_i, or the mean, of every array; summed in float64, one array at a time."""
        count_U = torch.ones(len(uploads), dtype=torch.float64)
        if self.weighted:
            count_U = torch.stack([tensor(upload.payload, "samples")[0] for upload in uploads]).double()
        weight_U = (count_U / count_U.sum()).tolist()
        payload: dict[str, Tensor] = {}
        for array in self.arrays:
            mean = torch.zeros(array.shape, dtype=torch.float64)
            for weight, upload in zip(weight_U, uploads, strict=True):
                mean.add_(tensor(upload.payload, array.name), alpha=weight)
            payload[array.name] = mean.to(array.dtype)
        return payload
