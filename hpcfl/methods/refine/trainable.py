"""Global prototypes that the server trains on the uploaded prototypes: the base of FedTGP and FedORGP."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from hpcfl.methods.aggregate import Upload
from hpcfl.methods.context import MethodContext
from hpcfl.methods.parts import ServerOptions
from hpcfl.methods.prototypes import Prototypes
from hpcfl.methods.refine.base import Refinement
from hpcfl.methods.refine.server_network import ServerNetwork
from hpcfl.utils import seeds
from hpcfl.utils.accelerator import to_device

Scratch = Sequence[Tensor | None]
"""Memory of [K, D] float64 for a loss and its gradient, which a step then does not allocate."""
NONE: Scratch = (None, None, None)


class TrainablePrototypes(Refinement):
    """The outputs of a server network, which is kept across rounds.

    Every round trains it by SGD on all uploaded prototypes, with the clients' learning rate and batch size
    unless the server has its own. The loss and its gradient by the prototypes are computed in float64, and
    nothing waits for a value on the device before the end of the round.
    """

    Options = ServerOptions
    learns = True

    def __init__(self, context: MethodContext):
        super().__init__(context)
        self.network = ServerNetwork(context)

    def state(self) -> dict[str, Tensor]:
        return dict(self.network.weights)

    def initial(self) -> Prototypes:
        """Returns F(P̃) before any training: what the algorithm boxes of both papers send first."""
        return self._prototypes()

    def _prototypes(self) -> Prototypes:
        value_KD = self.network.forward().clone()
        return Prototypes(value_KD, torch.ones(len(value_KD), dtype=torch.bool, device=value_KD.device))

    def flops(self, uploads: int) -> float:
        """Returns the FLOPs of six products with F in each step, and two with all prototypes per upload."""
        options, classes, features = self.context.options, self.context.classes, self.context.features
        steps = math.ceil(uploads / (options["server_batch"] or self.context.batch_size))
        network = 12 * classes * features**2 if self.network.has_layers else 0
        return float(options["server_epochs"] * (steps * network + 4 * uploads * classes * features))

    def loss(
        self, upload_BD: Tensor, own_BK: Tensor, proto_KD: Tensor, scratch: Scratch
    ) -> tuple[Tensor, Tensor]:
        """Returns the loss of a batch of uploaded prototypes, and its gradient by the global ones.

        `own_BK` is 1 for the class of each upload, else 0.
        """
        raise NotImplementedError

    def __call__(self, t: int, last: Prototypes, new: Prototypes, uploads: Sequence[Upload]) -> Prototypes:
        """Trains on the uploads of round t and returns all K classes; absent ones serve as negatives only."""
        self.skip_round()
        options, device = self.context.options, self.context.device
        class_R, row_R = (to_device(each, device) for each in present_rows(uploads))
        upload_RD = torch.cat([upload.prototypes.value_KD for upload in uploads])[row_R].double()
        own_RK = torch.eye(self.context.classes, dtype=torch.float64, device=device)[class_R]
        lr = options["server_lr"] or self.context.lr
        batch_size = options["server_batch"] or self.context.batch_size
        total = upload_RD.new_zeros(())
        # memory for all steps
        gradient_KD = torch.empty_like(self.network.weights["table"])
        proto_KD, *scratch = (torch.empty_like(gradient_KD, dtype=torch.float64) for _ in range(4))
        for epoch in range(options["server_epochs"]):
            shuffle = seeds.generator(self.context.seed, "server shuffle", t, epoch)
            order_R = to_device(torch.from_numpy(shuffle.permutation(len(upload_RD))), device)
            batches = zip(
                upload_RD[order_R].split(batch_size), own_RK[order_R].split(batch_size), strict=True
            )
            total.zero_()
            for upload_BD, own_BK in batches:
                proto_KD.copy_(self.network.forward())
                loss, exact_KD = self.loss(upload_BD, own_BK, proto_KD, scratch)
                self.network.step(gradient_KD.copy_(exact_KD), lr)
                total.add_(loss, alpha=len(upload_BD))
                self.stats.iterations += 1
        self.stats.loss = total / len(upload_RD)
        return self._prototypes()


def present_rows(uploads: Sequence[Upload]) -> tuple[Tensor, Tensor]:
    """Returns the classes of all uploaded prototypes, and their rows among those of all classes."""
    classes = [upload.class_R for upload in uploads]
    starts = [u * len(upload.prototypes.present_K) for u, upload in enumerate(uploads)]
    return torch.cat(classes), torch.cat([own + start for own, start in zip(classes, starts, strict=True)])
