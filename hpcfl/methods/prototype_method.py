"""A prototype method that computes: built from a `PrototypeSpec`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hpcfl.config.schema import Config
from hpcfl.methods import sparse
from hpcfl.methods.aggregate import Aggregate, Upload
from hpcfl.methods.context import MethodContext
from hpcfl.methods.infer import nearest_masked_N, nearest_N
from hpcfl.methods.local_loss import LocalLoss
from hpcfl.methods.plugins import load
from hpcfl.methods.prototypes import Prototypes, margin_K
from hpcfl.methods.refine.base import Refinement
from hpcfl.methods.spec import PrototypeSpec
from hpcfl.methods.sphere import keyed_direction
from hpcfl.utils.accelerator import to_host, with_float64


@dataclass(frozen=True)
class PrototypeMethod:
    """Aggregation and refinement on the server, local loss and inference on the clients."""

    spec: PrototypeSpec
    aggregate: Aggregate
    refine: Refinement
    local_loss: LocalLoss
    forget: bool

    @property
    def mask_KD(self) -> np.ndarray | None:
        """The dimensions of each class that are exchanged; None: all."""
        return None if self.local_loss.mask_KD is None else self.local_loss.mask_KD.cpu().numpy()

    def initial(self) -> Prototypes:
        """Returns the global prototypes before the first round: none, or all classes.

        All classes have one if anchor = 'seed', or if initial = 'random', as in the algorithm boxes of
        FedTGP, FedORGP and ProtoNorm (its Algorithm 2, line 1: of length 1, not aligned yet).
        """
        context = self.refine.context
        none = Prototypes.none(context.classes, context.features)
        if self.spec.initial == "random":
            own = self.refine.initial()
            return self._complete(none) if own is None else own
        if self.spec.anchor != "seed":
            return none
        return self.refine(0, none, self._complete(none), ())

    def update_global(self, t: int, last: Prototypes, uploads: Sequence[Upload]) -> Prototypes:
        """Returns the global prototypes after round t; a class without upload keeps its last prototype.

        The last ones are on the host, the uploads and the result on the device.
        """
        if not uploads or (self.spec.fixed and last.present_K.any()):
            self.refine.skip_round()
            return last
        last, new = last.to(self.refine.context.device), self.aggregate(uploads)
        if self.spec.fixed and not self.refine.covers_all_classes:
            new = self._complete(new)
        elif not self.spec.fixed and not self.forget:
            value_KD = new.value_KD.where(new.present_K[:, None], last.value_KD)
            new = Prototypes(value_KD, new.present_K | last.present_K)
        refined = self.refine(t, last, new, self.aggregate.training_uploads(uploads))
        present_K = refined.present_K | self.spec.fixed
        if self.forget:
            present_K = present_K & new.present_K
        return Prototypes(refined.value_KD * present_K[:, None], present_K)

    def is_semi(self, t: int) -> bool:
        """Returns whether clients train on pseudo-labelled samples in round t (from 0)."""
        return 0 < self.spec.semi <= t

    def client_target(self, current: Prototypes) -> Prototypes:
        """Returns γ times the global prototypes, which clients align to and infer by: ProtoNorm (15)."""
        return Prototypes(self.spec.scale * current.value_KD, current.present_K)

    def local_margin_K(self, local: Prototypes) -> Tensor:
        """Returns the margins of local prototypes, comparable with global ones: as sent (masked), before γ.

        Features align to γ times the global prototypes, so local prototypes are γ times as long.
        """
        mask_KD = self.local_loss.mask_KD
        value_KD = local.value_KD if mask_KD is None else local.value_KD * mask_KD
        return margin_K(Prototypes(value_KD, local.present_K)) / self.spec.scale

    def nearest_N(self, z_ND: Tensor, prototypes: Prototypes) -> Tensor:
        """Returns the class of the nearest prototype, by angle if the local loss is, else by distance."""
        by_angle, mask_KD = self.spec.distance_part.by_angle, self.local_loss.mask_KD
        if self.spec.masked == "always" and mask_KD is not None:
            return nearest_masked_N(z_ND, prototypes, mask_KD, by_angle)
        return nearest_N(z_ND, prototypes, by_angle)

    def state(self) -> dict[str, Tensor]:
        """Returns the server's tensors to checkpoint, by name; the global prototypes are saved apart."""
        parts = {"aggregate": self.aggregate.state(), "refine": self.refine.state()}
        return {f"{part}.{name}": tensor for part, state in parts.items() for name, tensor in state.items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restores a checkpointed state."""
        for name, part in (("aggregate.", self.aggregate), ("refine.", self.refine)):
            part.load({key.removeprefix(name): value for key, value in state.items() if key.startswith(name)})

    def _complete(self, partial: Prototypes) -> Prototypes:
        """Returns prototypes of all classes: absent ones get a keyed direction and the others' mean length.

        With a fixed anchor prototypes are chosen only once, so every class needs one.
        """
        context = self.refine.context
        value_KD, present_K = (part.clone() for part in to_host(partial.value_KD, partial.present_K))
        length = value_KD[present_K].norm(dim=1).mean() if present_K.any() else 1.0
        for k in (~present_K).nonzero()[:, 0].tolist():
            unit_D = keyed_direction(context.seed, k, context.features, context.mask_KD)
            value_KD[k] = length * unit_D.to(value_KD)
        return Prototypes(value_KD, torch.ones_like(present_K)).to(context.device)


def build_method(
    spec: PrototypeSpec,
    config: Config,
    dims: tuple[int, int],
    device: torch.device | str = "cpu",
    samples: int = 1,
) -> PrototypeMethod:
    """Returns the method of a specification; `dims` are K and D, `samples` all clients' training samples."""
    mask_KD = None
    if spec.sparsity:
        mask_KD = torch.from_numpy(sparse.masks(*dims, spec.sparsity, config.seed)).to(device)
    server = with_float64(torch.device(device))
    context = MethodContext(
        *dims,
        seed=config.seed,
        lr=config.train.lr,
        batch_size=config.train.batch_size,
        device=server,
        options=spec.options,
        clients=config.federation.clients,
        samples=samples,
        mask_KD=None if mask_KD is None else mask_KD.to(server),
        trace=config.log.distances,
    )
    return PrototypeMethod(
        spec=spec,
        aggregate=load(spec.aggregation.path)(context),
        refine=load(spec.refinement.path)(context),
        local_loss=LocalLoss(spec, mask_KD),
        forget=config.method.forget,
    )
