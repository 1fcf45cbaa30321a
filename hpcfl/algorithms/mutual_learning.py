"""Base of algorithms whose clients train an auxiliary network, which travels, beside their own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import kl_div, log_softmax

from hpcfl.algorithms.algorithm import Algorithm
from hpcfl.algorithms.initial_network import initial_network
from hpcfl.errors import BadInput
from hpcfl.exchange.codec import ClientUpload
from hpcfl.exchange.payload import Payload, tensor
from hpcfl.federation.run_plan import RunPlan
from hpcfl.models.network import Network, build_on_meta
from hpcfl.training.client_layout import ExtraNetwork
from hpcfl.training.local_client import LocalClient, Losses
from hpcfl.training.step.joint import JointLoss, JointStep
from hpcfl.training.step.optimizer import Optimizer

AUXILIARY = "auxiliary"


def divergence(logit_BK: Tensor, teacher_BK: Tensor, published: bool) -> Tensor:
    """Returns KL(teacher ‖ student) as the mean over the batch; published code divides by K, too."""
    student_BK, target_BK = log_softmax(logit_BK, 1), log_softmax(teacher_BK, 1)
    mean = kl_div(student_BK, target_BK, reduction="batchmean", log_target=True)
    return mean / logit_BK.shape[1] if published else mean


def auxiliary_architecture(plan: RunPlan, choice: str) -> str:
    """Returns the auxiliary architecture: the smallest of the clients', that of the first, or a name."""
    if choice == "first":
        return plan.clients[0].architecture
    if choice != "smallest":
        return choice
    networks = {name: build_on_meta(name, plan.data.shape, *plan.dims) for name in plan.architectures}
    return min(networks, key=lambda name: sum(p.numel() for p in networks[name].parameters()))


class MutualLearning(Algorithm):
    """Each client trains its own network and the auxiliary one; the server averages the auxiliary ones.

    The auxiliary network is scratch: its parameters come with every download. Its buffers never travel; each
    client starts with those of the initial network.
    """

    def __init__(self, plan: RunPlan, device: torch.device):
        super().__init__(plan, device)
        if plan.config.runtime.graphs:
            name = plan.config.method.name
            raise BadInput(
                f"runtime.graphs = true: {name} trains two networks in one step, which has no graph"
            )
        self.architecture = auxiliary_architecture(plan, self.options.auxiliary)
        network = build_on_meta(self.architecture, plan.data.shape, *plan.dims)
        self.shapes = {name: tuple(value.shape) for name, value in network.named_parameters()}
        self.has_buffers = any(True for _ in network.buffers())

    def networks(self, architecture: str) -> Mapping[str, ExtraNetwork]:
        return {AUXILIARY: ExtraNetwork(self.architecture)}

    @cached_property
    def start(self) -> Network:
        """The auxiliary network before the first round."""
        return initial_network(self.plan, 0, AUXILIARY, self.architecture)

    @torch.no_grad()
    def apply_download(self, client: LocalClient, download: Payload) -> None:
        network = client.extra_steps[AUXILIARY].network
        for name, parameter in network.named_parameters():
            parameter.copy_(tensor(download, name))
        if self.has_buffers:
            for buffer, value in zip(network.buffers(), self.start.buffers(), strict=True):
                buffer.copy_(value)

    @abstractmethod
    def joint_loss(self, client: LocalClient) -> tuple[JointLoss, Sequence[Optimizer]]:
        """Returns the losses of both networks, and the optimisers of further parameters."""

    def train(self, client: LocalClient, download: Payload) -> Losses:
        step = JointStep(client.step, client.extra_steps[AUXILIARY], *self.joint_loss(client))
        return client.train(step=step)

    def auxiliary_parameters(self, client: LocalClient) -> dict[str, Tensor]:
        """Returns the parameters of a client's auxiliary network."""
        network = client.extra_steps[AUXILIARY].network
        return {name: value.detach() for name, value in network.named_parameters()}

    def initial_parameters(self) -> dict[str, Tensor]:
        """Returns the parameters of the auxiliary network before the first round."""
        return {name: value.detach() for name, value in self.start.named_parameters()}

    def mean_parameters(self, uploads: Sequence[ClientUpload]) -> dict[str, Tensor]:
        """Returns the unweighted means of the uploaded parameters, summed in client order, in float64."""
        sums = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in self.shapes.items()}
        for upload in uploads:
            for name, total in sums.items():
                total += self.uploaded(upload.payload, name)
        return {name: total / len(uploads) for name, total in sums.items()}

    def uploaded(self, payload: Payload, name: str) -> Tensor:
        """Returns an uploaded parameter in float64."""
        return tensor(payload, name).double()
