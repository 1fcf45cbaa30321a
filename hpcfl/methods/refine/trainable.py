"""Global prototypes that the server trains on the uploaded prototypes: the base of FedTGP and FedORGP."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear

from hpcfl.methods.aggregate import Upload
from hpcfl.methods.context import MethodContext
from hpcfl.methods.parts import ServerOptions
from hpcfl.methods.prototypes import Prototypes
from hpcfl.methods.refine.base import Refinement
from hpcfl.utils import seeds


class TrainablePrototypes(Refinement):
    """Trainable embeddings P̃ of the K classes and F: Linear(d, d), ReLU, Linear(d, d) (FedTGP, Fig. 3).

    They persist across rounds. Every round trains them by SGD on all uploaded prototypes, with the clients'
    learning rate and batch size unless the server has its own. Without F (`server_network`) the embeddings
    are the prototypes.
    """

    Options = ServerOptions
    learns = True

    def __init__(self, context: MethodContext):
        super().__init__(context)
        rng = torch.Generator().manual_seed(seeds.key(context.seed, "server network"))
        classes, width = context.classes, context.features
        bound = 1 / math.sqrt(width)  # torch's default for Linear; N(0, 1) is that of Embedding
        initial = {"table": torch.randn(classes, width, generator=rng)}
        if context.options["server_network"]:
            for name, shape in {
                "w1": (width, width),
                "b1": (width,),
                "w2": (width, width),
                "b2": (width,),
            }.items():
                initial[name] = (2 * torch.rand(*shape, generator=rng) - 1) * bound
        self.weights = {name: value.to(context.device).requires_grad_() for name, value in initial.items()}

    def state(self) -> dict[str, Tensor]:
        return {name: weight.detach() for name, weight in self.weights.items()}

    def prototypes(self) -> Tensor:
        """Returns P̂ = F(P̃), [K, D], zero outside the masks."""
        rows_KD, mask_KD = self.weights["table"], self.context.mask_KD
        if self.context.options["server_network"]:
            hidden_KD = linear(rows_KD, self.weights["w1"], self.weights["b1"]).relu()
            rows_KD = linear(hidden_KD, self.weights["w2"], self.weights["b2"])
        return rows_KD if mask_KD is None else rows_KD * mask_KD

    def initial(self) -> Prototypes:
        """Returns F(P̃) before any training: what the algorithm boxes of both papers send first."""
        with torch.no_grad():
            value_KD = self.prototypes().detach().clone()
        return Prototypes(value_KD, torch.ones(len(value_KD), dtype=torch.bool, device=value_KD.device))

    def loss(self, upload_BD: Tensor, y_B: Tensor, proto_KD: Tensor) -> Tensor:
        """Returns the loss of a batch of uploaded prototypes with classes `y_B`."""
        raise NotImplementedError

    def __call__(self, t: int, last: Prototypes, new: Prototypes, uploads: Sequence[Upload]) -> Prototypes:
        """Trains on the uploads of round t and returns all K classes; absent ones serve as negatives only."""
        self.skip_round()
        upload_RD = torch.cat([upload.prototypes.value_KD[upload.prototypes.present_K] for upload in uploads])
        y_R = torch.cat([upload.prototypes.present_K.nonzero()[:, 0] for upload in uploads])
        weights, options = list(self.weights.values()), self.context.options
        lr = options["server_lr"] or self.context.lr
        batch_size = options["server_batch"] or self.context.batch_size
        for epoch in range(options["server_epochs"]):
            order_R = torch.from_numpy(
                seeds.generator(self.context.seed, "server shuffle", t, epoch).permutation(len(y_R))
            )
            total = 0.0
            for rows_B in order_R.to(y_R.device).split(batch_size):
                loss = self.loss(upload_RD[rows_B], y_R[rows_B], self.prototypes())
                gradients = torch.autograd.grad(loss, weights)
                with torch.no_grad():
                    torch._foreach_add_(weights, gradients, alpha=-lr)
                total += loss.item() * len(rows_B)
                self.stats.iterations += 1
            self.stats.loss = total / len(y_R)
        with torch.no_grad():
            trained_KD = self.prototypes().detach().clone()
        return Prototypes(trained_KD, torch.ones_like(new.present_K))
