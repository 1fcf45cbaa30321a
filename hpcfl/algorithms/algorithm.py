"""The interface between the engine and an algorithm. The engine knows nothing else of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from hpcfl.config.section import Section
from hpcfl.exchange.codec import ClientUpload
from hpcfl.exchange.payload import Array, Payload
from hpcfl.federation.run_plan import RunPlan
from hpcfl.metrics.metric import Metric
from hpcfl.training.client_layout import ExtraNetwork
from hpcfl.training.local_client import LocalClient, Losses
from hpcfl.training.state import Block
from hpcfl.training.step.step import LossTerms
from hpcfl.utils.accelerator import with_float64

Values = Mapping[str, Any]
"""Values of the log by path."""
BACKWARD = 2
"""Cost of a backward pass in forward passes: gradients of inputs and of parameters."""


class Algorithm(ABC):
    """An algorithm of federated learning; one object per rank.

    A round: `receive` a download; for each participant `apply_download`, `train` and `upload`; on rank 0
    `aggregate`. What must survive from round to round is a block of the client, or in the server's `state`.
    """

    Options: ClassVar[type[Section]] = Section
    """The keys of the section `[method]` that belong to the algorithm."""
    metrics: ClassVar[tuple[Metric, ...]] = ()
    """Metrics beside those of every run."""
    dimensions: ClassVar[Mapping[str, int]] = {}
    """Lengths of the metrics' own dimensions, beside client, class and feature."""
    equal_heads: ClassVar[bool] = False
    """Whether all clients must have the same head."""
    equal_networks: ClassVar[bool] = False
    """Whether all clients must have the same architecture."""
    head_kind: ClassVar[str] = ""
    """The kind of head that clients have, whatever `models.head` says: "prototypes"; empty: as it says."""
    download_changes: Literal["nothing", "head", "network"] = "nothing"
    """What `apply_download` changes. A new head scores the test features of all clients again, a new network
    evaluates them again; both need `receivers = "all"`."""
    receivers: Literal["participants", "all", "once"] = "participants"
    """Who receives a download. once: all clients, in the round that makes it; after that nothing travels, and
    the first download, if there is one, is made from the seed on each client and does not travel either."""
    recovers: bool = False
    """Whether a client whose loss or upload is not finite is left out of that round only: it keeps its state
    of before, and the next download replaces its network. Otherwise it never takes part again."""
    predictions: tuple[str, ...] = ()
    """The names of what `predict` returns; each has a metric /client/accuracy_NAME."""
    passes_after_training: int = 0
    """Forward passes over the training samples after training; for `hpcfl plan`."""

    def __init__(self, plan: RunPlan, device: torch.device):
        self.plan, self.device = plan, device
        self.server_device = with_float64(device)
        """Where `aggregate` computes."""
        self.options: Any = plan.spec.settings
        self.pretrained: Mapping[str, Mapping[str, Tensor]] = {}
        """Initial weights by extractor, as `models.pretrained` names them; known when `initial` is called."""

    # --- what travels, and what a client keeps

    def download_arrays(self) -> Sequence[Array]:
        """Returns the declarations of what the server sends."""
        return ()

    def upload_arrays(self) -> Sequence[Array]:
        """Returns the declarations of what a client sends."""
        return ()

    def blocks(self, architecture: str) -> Sequence[Block]:
        """Returns the arrays of a client of this architecture beside its network: kept, or scratch."""
        return ()

    def networks(self, architecture: str) -> Mapping[str, ExtraNetwork]:
        """Returns further networks of a client of this architecture, by name: `client.extra_steps[name]`."""
        return {}

    # --- clients

    def receive(self, download: Payload) -> Payload:
        """Returns what clients use of a download; called once per download, with arrays on the device."""
        return download

    def apply_download(self, client: LocalClient, download: Payload) -> None:  # noqa: B027
        """Writes a download into the client's blocks, before it is trained, and evaluated after the round."""

    def local_loss(self, client: LocalClient, download: Payload) -> LossTerms | None:
        """Returns the terms that the client's training adds to the cross-entropy."""
        return None

    def train(self, client: LocalClient, download: Payload) -> Losses:
        """Trains the client and returns its losses."""
        return client.train(self.local_loss(client, download))

    def upload(self, client: LocalClient, download: Payload) -> Payload:
        """Returns what the client sends after its training; it is encoded before another client is loaded."""
        return {}

    def compress_upload(self, t: int, upload: Payload) -> Payload:
        """Returns what is sent in round t of what `upload` returned, whose arrays are on the host now."""
        return upload

    def predict(self, client: LocalClient, z_ND: Tensor) -> Mapping[str, Tensor]:
        """Returns predictions by other means than the head, from test features: /client/accuracy_NAME."""
        return {}

    def predict_by_download(self, client: int, z_ND: Tensor, download: Payload) -> Mapping[str, Tensor]:
        """Returns predictions by the download that follows the round, from test features."""
        return {}

    def samples_passed(self, t: int, client: int) -> int:
        """Returns how many samples a client passes through its networks in round t, for the virtual clock.

        A backward pass counts as two.
        """
        trained = self.plan.config.train.epochs * self.plan.samples_per_epoch(client)
        return (1 + BACKWARD) * trained + self.passes_after_training * len(self.plan.clients[client].train)

    def client_flops(self, client: int) -> float:
        """Returns the FLOPs of a client in a round, beside those of passes through its networks.

        For `hpcfl plan`: of matrix products, from the second round on; a backward pass counts as two.
        """
        return 0.0

    def server_flops(self, clients: Sequence[int]) -> float:
        """Returns the FLOPs of rank 0 in a round with uploads of these clients, counted alike."""
        return 0.0

    # --- the server

    def initial(self) -> Payload:
        """Returns the first download."""
        return {}

    def start_round(self, t: int, receivers_M: np.ndarray) -> Values:
        """Returns values of the log that are known when round t starts, given the receiving participants."""
        return {}

    def drop_diverged(self, diverged_M: np.ndarray) -> None:  # noqa: B027
        """Drops what the server keeps of clients that have diverged so far; called before `aggregate`."""

    def receive_late(self, uploads: Sequence[ClientUpload]) -> None:  # noqa: B027
        """Takes what clients send only once, from uploads that do not count in their round."""

    @abstractmethod
    def aggregate(self, t: int, last: Payload, uploads: Sequence[ClientUpload]) -> Payload:
        """Returns the next download from the last one and the uploads of round t, in client order.

        Clients that diverged, had nothing to upload, or were late, are not among them. Without any upload it
        must return the last download.
        """

    def round_values(
        self, t: int, download: Payload, uploads: Sequence[ClientUpload], receivers_M: np.ndarray
    ) -> Values:
        """Returns values of the log that are known after `aggregate`.

        `receivers_M` are the clients that receive the new download within this round: those of "once".
        """
        return {}

    def derived_values(self, row: Values) -> Values:
        """Returns values of the log that follow from those that all ranks measured."""
        return {}

    def state(self) -> Mapping[str, Tensor]:
        """Returns what the server keeps from round to round, to be checkpointed."""
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:  # noqa: B027
        """Restores a checkpointed state."""
