"""FML: each client's network and a small one that is averaged over clients learn from each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor
from torch.nn.functional import cross_entropy

from hpcfl.algorithms.mutual_learning import MutualLearning, divergence
from hpcfl.exchange.codec import ClientUpload
from hpcfl.exchange.payload import Array, Dense, Payload
from hpcfl.training.local_client import LocalClient
from hpcfl.training.step.joint import JointLoss
from hpcfl.training.step.optimizer import Optimizer
from hpcfl.training.step.step import BatchOutputs


class Fml(MutualLearning):
    """Own network: α·CE + (1 − α)·KL(p_g ‖ p); auxiliary network: β·CE_g + (1 − β)·KL(p ‖ p_g)."""

    def download_arrays(self) -> Sequence[Array]:
        return [Dense(name, shape) for name, shape in self.shapes.items()]

    def upload_arrays(self) -> Sequence[Array]:
        return self.download_arrays()

    def joint_loss(self, client: LocalClient) -> tuple[JointLoss, Sequence[Optimizer]]:
        alpha, beta, published = self.options.alpha, self.options.beta, self.options.published

        def loss(own: BatchOutputs, other: BatchOutputs) -> tuple[Tensor, Mapping[str, Tensor]]:
            teacher, teacher_g = (own, other) if published else (own.detach(), other.detach())
            ce, ce_g = (cross_entropy(each.logit_BK, each.y_B) for each in (own, other))
            kl = divergence(own.logit_BK, teacher_g.logit_BK, published)
            kl_g = divergence(other.logit_BK, teacher.logit_BK, published)
            loss = alpha * ce + (1 - alpha) * kl
            loss_g = beta * ce_g + (1 - beta) * kl_g
            return loss + loss_g, {"loss": loss, "ce": ce, "mutual": kl, "auxiliary": loss_g}

        return loss, ()

    def initial(self) -> Payload:
        return self.initial_parameters()

    def upload(self, client: LocalClient, download: Payload) -> Payload:
        return self.auxiliary_parameters(client)

    def aggregate(self, t: int, last: Payload, uploads: Sequence[ClientUpload]) -> Payload:
        if not uploads:
            return last
        return {name: mean.float() for name, mean in self.mean_parameters(uploads).items()}
