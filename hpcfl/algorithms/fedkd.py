"""FedKD: mutual distillation of logits and features with an auxiliary network that travels as factors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from hpcfl.algorithms.algorithm import BACKWARD
from hpcfl.algorithms.mutual_learning import MutualLearning, divergence
from hpcfl.exchange.codec import ClientUpload
from hpcfl.exchange.payload import Array, Dense, Payload, Shaped, tensor
from hpcfl.methods.low_rank import factorise, factorise_flops, is_smaller, multiply_flops
from hpcfl.training.local_client import LocalClient
from hpcfl.training.state import Block, bind
from hpcfl.training.step.joint import JointLoss
from hpcfl.training.step.optimizer import Optimizer
from hpcfl.training.step.step import BatchOutputs

EPS = 1e-6
"""The least sum of cross-entropies by which the distillation is divided."""


class FedKd(MutualLearning):
    """Own network: CE + (KL(p_g ‖ p) + MSE)/s; auxiliary: CE_g + (KL(p ‖ p_g) + MSE)/s; s = CE + CE_g.

    MSE is that of z and W·z_g, with a linear map W that each client keeps.
    """

    receivers = "all"

    def blocks(self, architecture: str) -> Sequence[Block]:
        features = self.plan.dims[1]
        return [Block("map", torch.float32, (features, features), bound=1 / math.sqrt(features))]

    def energy(self, t: int) -> float:
        """Returns the share of the squared singular values that factors keep in round t, counted from 0."""
        options = self.options
        done = min(1.0, t / options.energy_rounds)
        return float(options.energy_start + done * (options.energy_end - options.energy_start))

    # --- training

    def joint_loss(self, client: LocalClient) -> tuple[JointLoss, Sequence[Optimizer]]:
        published, features = self.options.published, self.plan.dims[1]
        linear_map = nn.Linear(features, features, bias=False, device="meta")
        bind(linear_map, {"weight": client.blocks["map"]})
        optimizer = client.step.options.optimizer(linear_map, client.step.settings)
        optimizer.rule.lr = client.step.optimizer.rule.lr

        def loss(own: BatchOutputs, other: BatchOutputs) -> tuple[Tensor, Mapping[str, Tensor]]:
            teacher, teacher_g = (own, other) if published else (own.detach(), other.detach())
            ce, ce_g = (cross_entropy(each.logit_BK, each.y_B) for each in (own, other))
            mapped_BD = linear_map(other.z_BD)
            mse = mse_loss(own.z_BD, mapped_BD if published else mapped_BD.detach())
            mse_g = mse_loss(mapped_BD, teacher.z_BD)
            kl = divergence(own.logit_BK, teacher_g.logit_BK, published)
            kl_g = divergence(other.logit_BK, teacher.logit_BK, published)
            s = ce + ce_g if published else (ce + ce_g).detach().clamp_min(EPS)
            loss, loss_g = ce + (kl + mse) / s, ce_g + (kl_g + mse_g) / s
            terms = {"loss": loss, "ce": ce, "mutual": kl, "features": mse, "auxiliary": loss_g}
            return loss + loss_g, terms

        return loss, [optimizer]

    def client_flops(self, client: int) -> float:
        """Returns the FLOPs of training W, and at most those of factorising the auxiliary network."""
        samples = self.plan.config.train.epochs * self.plan.samples_per_epoch(client)
        return 2 * self.plan.dims[1] ** 2 * (1 + BACKWARD) * samples + self._factorise_flops()

    def server_flops(self, clients: Sequence[int]) -> float:
        """Returns at most the FLOPs of multiplying the factors of all uploads, and factorising the mean."""
        published = self.options.published
        multiply = sum(multiply_flops(shape, published) for shape in self.shapes.values() if len(shape) > 1)
        return len(clients) * multiply + self._factorise_flops()

    def _factorise_flops(self) -> int:
        return sum(factorise_flops(shape) for shape in self.shapes.values() if len(shape) > 1)

    # --- what travels: a matrix, or its factors

    def download_arrays(self) -> Sequence[Array]:
        return [array for name, shape in self.shapes.items() for array in self._arrays(name, shape)]

    def upload_arrays(self) -> Sequence[Array]:
        return self.download_arrays()

    def _arrays(self, name: str, shape: tuple[int, ...]) -> list[Array]:
        """Returns the declarations of a parameter; `hpcfl plan` counts the most that may be sent."""
        if len(shape) < 2:
            return [Dense(name, shape)]
        dims = len(shape)
        if not self.options.published:  # factors are sent only where they are smaller
            return [Dense(name, shape), Shaped(f"{name}.left", dims, 0), Shaped(f"{name}.right", dims, 0)]
        rank, matrices = min(shape[-2:]) - 1, math.prod(shape[:-2])
        return [
            Shaped(name, dims, 0),  # only if it is not finite, which ends the client's part
            Shaped(f"{name}.left", dims, matrices * shape[-2] * rank),
            Shaped(f"{name}.sigma", dims - 1, matrices * rank),
            Shaped(f"{name}.right", dims, matrices * rank * shape[-1]),
        ]

    def compress(self, parameters: Mapping[str, Tensor], t: int) -> Payload:
        """Returns the parameters to send: factors where they are smaller, or always, as published."""
        payload: dict[str, Tensor] = {}
        for name, value in parameters.items():
            payload |= self._factors(name, value, self.energy(t)) or {name: value.float()}
        return payload

    def _factors(self, name: str, value: Tensor, energy: float) -> dict[str, Tensor]:
        """Returns the factors of a parameter; nothing where it is sent as it is."""
        if value.dim() < 2 or not value.isfinite().all():
            return {}
        left, sigma, right = factorise(value, energy, self.options.published)
        if self.options.published:
            factors = {"left": left, "sigma": sigma, "right": right}
        elif is_smaller(value, sigma.shape[-1]):
            factors = {"left": left, "right": sigma[..., None] * right}
        else:
            return {}
        return {f"{name}.{part}": factor.float() for part, factor in factors.items()}

    def restored(self, payload: Payload, name: str) -> Tensor:
        """Returns a parameter of a payload, multiplied out if it was sent as factors."""
        if name in payload:
            return tensor(payload, name)
        left, right = tensor(payload, f"{name}.left"), tensor(payload, f"{name}.right")
        if self.options.published:
            right = tensor(payload, f"{name}.sigma")[..., None] * right
        return left @ right

    def receive(self, download: Payload) -> Payload:
        return {name: self.restored(download, name) for name in self.shapes}

    def uploaded(self, payload: Payload, name: str) -> Tensor:
        names = {name, *(f"{name}.{part}" for part in ("left", "sigma", "right"))}
        return self.restored({key: tensor(payload, key).double() for key in names & payload.keys()}, name)

    def initial(self) -> Payload:
        return self.compress(self.initial_parameters(), 0)

    def upload(self, client: LocalClient, download: Payload) -> Payload:
        return self.auxiliary_parameters(client)

    def compress_upload(self, t: int, upload: Payload) -> Payload:
        return self.compress({name: tensor(upload, name) for name in upload}, t)

    def aggregate(self, t: int, last: Payload, uploads: Sequence[ClientUpload]) -> Payload:
        """Returns the compressed mean of the uploads."""
        return self.compress(self.mean_parameters(uploads), t) if uploads else last
