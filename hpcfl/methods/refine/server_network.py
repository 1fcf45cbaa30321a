"""The server's network of FedTGP and FedORGP, with its backward pass written out."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hpcfl.methods.context import MethodContext
from hpcfl.utils import seeds


class ServerNetwork:
    """Trainable embeddings P̃ of the K classes and F: Linear(d, d), ReLU, Linear(d, d) (FedTGP, Fig. 3).

    Without F (`server_network`) the embeddings are the prototypes. Prototypes are zero outside the masks.
    """

    def __init__(self, context: MethodContext):
        rng = torch.Generator().manual_seed(seeds.key(context.seed, "server network"))
        classes, width = context.classes, context.features
        bound = 1 / math.sqrt(width)  # torch's default for Linear; N(0, 1) is that of Embedding
        shapes = {"w1": (width, width), "b1": (width,), "w2": (width, width), "b2": (width,)}
        initial = {"table": torch.randn(classes, width, generator=rng)}
        if context.options["server_network"]:
            initial |= {
                name: (2 * torch.rand(*shape, generator=rng) - 1) * bound for name, shape in shapes.items()
            }
        self.weights = {name: value.to(context.device) for name, value in initial.items()}
        self.mask_KD, self.has_layers = context.mask_KD, context.options["server_network"]
        # memory for each step's results, so that a step allocates nothing as large
        table_KD = self.weights["table"]
        self.hidden_KD, self.proto_KD, self.gradient_KD = (torch.empty_like(table_KD) for _ in range(3))

    def forward(self) -> Tensor:
        """Returns P̂ = F(P̃), [K, D]; the next call overwrites it."""
        if self.has_layers:
            table_KD, w1, b1, w2, b2 = self.weights.values()
            torch.addmm(b1, table_KD, w1.T, out=self.hidden_KD).relu_()
            torch.addmm(b2, self.hidden_KD, w2.T, out=self.proto_KD)
        else:
            self.proto_KD.copy_(self.weights["table"])
        return self.proto_KD if self.mask_KD is None else self.proto_KD.mul_(self.mask_KD)

    def step(self, gradient_KD: Tensor, lr: float) -> None:
        """Does a step of SGD, given the gradient of the loss by what `forward` returned.

        Each weight is updated by the product that makes its gradient, after its last use.
        """
        g_KD = gradient_KD if self.mask_KD is None else gradient_KD.mul_(self.mask_KD)
        if not self.has_layers:
            self.weights["table"].sub_(g_KD, alpha=lr)
            return
        table_KD, w1, b1, w2, b2 = self.weights.values()
        torch.mm(g_KD, w2, out=self.gradient_KD)
        w2.addmm_(g_KD.T, self.hidden_KD, alpha=-lr)
        b2.sub_(g_KD.sum(0), alpha=lr)
        hidden_KD = self.gradient_KD.mul_(self.hidden_KD.sign_())  # ReLU: 1 where it let through, else 0
        torch.mm(hidden_KD, w1, out=self.proto_KD)
        w1.addmm_(hidden_KD.T, table_KD, alpha=-lr)
        b1.sub_(hidden_KD.sum(0), alpha=lr)
        table_KD.sub_(self.proto_KD, alpha=lr)
