"""Federated learning with class prototypes: the algorithm that all prototype methods are compositions of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from hpcfl.algorithms.algorithm import BACKWARD, Algorithm, Values
from hpcfl.algorithms.prototype_values import derived_values, distance_table, uploaded_MKD
from hpcfl.algorithms.semi_supervised import ActiveSet, SemiSupervised
from hpcfl.exchange.codec import ClientUpload
from hpcfl.exchange.payload import Array, Payload, Rows, class_rows
from hpcfl.federation.run_plan import RunPlan
from hpcfl.methods import sparse
from hpcfl.methods.aggregate import Upload
from hpcfl.methods.metrics import prototype_metrics
from hpcfl.methods.prototype_method import build_method
from hpcfl.methods.prototypes import ClassMeans, Prototypes
from hpcfl.methods.pseudo_labels import with_last_length
from hpcfl.methods.spec import PrototypeSpec
from hpcfl.training.local_client import LocalClient, Losses
from hpcfl.training.state import Block
from hpcfl.training.step.step import LossTerms
from hpcfl.utils.accelerator import in_float64, to_device


class PrototypeAlgorithm(Algorithm):
    """Clients upload the means of their features by class; the server aggregates and refines them."""

    predictions: tuple[str, ...] = ("local",)

    def __init__(self, plan: RunPlan, device: torch.device):
        super().__init__(plan, device)
        assert isinstance(plan.spec, PrototypeSpec)
        self.spec = plan.spec
        samples = int(plan.class_counts_MK.sum())
        self.method = build_method(self.spec, plan.config, plan.dims, device, samples)
        self.semi = SemiSupervised(plan, self.spec)
        self.source = plan.config.method.prototypes
        self.receivers = "once" if self.spec.fixed else "participants"
        self.passes_after_training = 0 if self.source == "running" else 1
        self.has_masks_M = torch.zeros(len(plan.clients), dtype=torch.bool)
        """The clients that know the masks of CPS."""

    # --- what travels, and what a client keeps

    def download_arrays(self) -> Sequence[Array]:
        has_all = self.spec.refinement.learns or self.spec.initial == "random"
        return [self._rows(all_classes=has_all)] if self.spec.exchange else []

    def upload_arrays(self) -> Sequence[Array]:
        if not self.spec.has_uploads:
            return []
        counts = Rows("counts", self.plan.dims[0], 1, torch.int32, counted=False, present_as="prototypes")
        return [self._rows(), counts] if self.spec.sends_counts else [self._rows()]

    def _rows(self, all_classes: bool = False) -> Rows:
        return Rows("prototypes", *self.plan.dims, mask_KD=self.method.mask_KD, all_classes=all_classes)

    def blocks(self, architecture: str) -> Sequence[Block]:
        classes, features = self.plan.dims
        return [
            Block("local.value", torch.float32, (classes, features)),
            Block("local.present", torch.bool, (classes,)),
            Block("thresholds", torch.float64, (2,), start=np.nan),
        ]

    def _prototypes(self, payload: Payload) -> Prototypes:
        return class_rows(payload, "prototypes") if payload else Prototypes.none(*self.plan.dims)

    @staticmethod
    def _local(client: LocalClient) -> Prototypes:
        return Prototypes(client.blocks["local.value"], client.blocks["local.present"])

    # --- clients

    def receive(self, download: Payload) -> Payload:
        """Returns γ times the global prototypes: ProtoNorm (15)."""
        return {"prototypes": self.method.client_target(self._prototypes(download))} if download else {}

    def local_loss(self, client: LocalClient, download: Payload) -> LossTerms | None:
        if not download:
            return None
        bound = self.method.local_loss.bind(client.round, self._prototypes(download), client.count_K)
        return lambda outputs: bound(outputs.z_BD, outputs.y_B, outputs.strong)

    def train(self, client: LocalClient, download: Payload) -> Losses:
        """Trains the client, stores its local prototypes in its blocks, and measures them."""
        t, i = client.round, client.id
        means = ClassMeans(*self.plan.dims, device=self.device)
        active = self._active_set(client, download) if download and self.method.is_semi(t) else None
        if self.source == "before":
            self._add_pass(client, active, means)
        losses = client.train(
            self.local_loss(client, download),
            (lambda outputs: means.add(outputs.z_BD, outputs.y_B)) if self.source == "running" else None,
            (lambda epoch: self.semi.batches(active, t, i, epoch)) if active else None,
            measure_ratios=True,
        )
        if self.source != "before":
            self._add_pass(client, active, means)
        prototypes = means.prototypes()
        if self.method.is_semi(t):
            prototypes = with_last_length(prototypes, self._local(client))
        client.blocks["local.value"].copy_(prototypes.value_KD)
        client.blocks["local.present"].copy_(prototypes.present_K)
        dead_K = means.dead_K()
        finite = prototypes.value_KD.isfinite().all().to(dead_K.device)
        client.measured["dead"] = dead_K.where(finite, torch.nan)
        client.measured["margin"] = self.method.local_margin_K(prototypes).where(finite, torch.nan)
        return losses

    def _add_pass(self, client: LocalClient, active: ActiveSet | None, means: ClassMeans) -> None:
        """Adds a pass in eval mode to the class means; to running means only pseudo-labelled samples."""
        if self.source != "running":
            for z_BD, y_B in client.features():
                means.add(z_BD, y_B)
        if active:
            self.semi.add_to_means(active, client.round, client.id, client.step, means)

    def _active_set(self, client: LocalClient, download: Payload) -> ActiveSet | None:
        """Returns the unlabelled samples that the client trains on; None if there are none."""
        saved_2, target = client.saved("thresholds"), self._prototypes(download)
        own = Prototypes(target.value_KD, target.present_K & (client.count_K > 0))
        first, unlabelled = bool(saved_2.isnan().any()), client.samples("unlabelled")
        limits = client.samples() if first else saved_2
        active, thresholds_2 = self.semi.active_set(
            client.round, client.id, client.step, unlabelled, own, limits
        )
        if first:
            block = client.blocks["thresholds"]
            block.copy_(to_device(thresholds_2.view(block.dtype), self.device))
        client.metrics["thresholds"] = thresholds_2.numpy()
        client.metrics["accepted"] = len(active)
        if not len(active):
            return None
        client.metrics["pseudo_accuracy"] = active.num_correct / len(active)
        return active

    def samples_passed(self, t: int, client: int) -> int:
        """Returns the samples of labelled and, in the semi-supervised phase, of unlabelled passes.

        Weak views of all unlabelled samples are passed once; of strong views a batch for each labelled one,
        and all once more for the prototypes, as if every pseudo-label were accepted.
        """
        passed, split = super().samples_passed(t, client), self.plan.clients[client].split
        if not self.method.is_semi(t) or not len(split.unlabelled):
            return passed
        batches = (1 + BACKWARD) * self.plan.config.train.epochs * len(split.train)
        return passed + batches + 2 * len(split.unlabelled)

    def upload(self, client: LocalClient, download: Payload) -> Payload:
        """Returns the local prototypes, and the sample counts if the aggregation needs them."""
        local = self._local(client)
        if not self.spec.has_uploads:
            return {}
        count_K1 = (client.count_K * local.present_K)[:, None]
        if self.spec.sends_products:  # the sparse-prototype paper's Algorithm 1, line 11
            product_KD = in_float64(local.value_KD) * in_float64(count_K1)
            local = Prototypes(product_KD.float(), local.present_K)
        if not self.spec.sends_counts:
            return {"prototypes": local}
        return {"prototypes": local, "counts": Prototypes(count_K1.int(), local.present_K)}

    def predict(self, client: LocalClient, z_ND: Tensor) -> Mapping[str, Tensor]:
        return {"local": self.method.nearest_N(z_ND, self._local(client))}

    def predict_by_download(self, client: int, z_ND: Tensor, download: Payload) -> Mapping[str, Tensor]:
        if not download:
            return {}
        target = self._prototypes(download)
        if self.plan.config.method.own_classes:
            owned_K = to_device(torch.from_numpy(self.plan.class_counts_MK[client] > 0), self.device)
            target = Prototypes(target.value_KD, target.present_K & owned_K)
        return {"global": self.method.nearest_N(z_ND, target)}

    # --- the server

    def initial(self) -> Payload:
        return self._payload(self.method.initial())

    def start_round(self, t: int, receivers_M: np.ndarray) -> Values:
        self.bytes_masks = self._send_masks(receivers_M)
        return {"/round/weight": self.method.local_loss.weight(t) if self.spec.exchange else np.nan}

    def drop_diverged(self, diverged_M: np.ndarray) -> None:
        self.method.aggregate.drop(np.flatnonzero(diverged_M).tolist())

    def aggregate(self, t: int, last: Payload, uploads: Sequence[ClientUpload]) -> Payload:
        current = self._prototypes(last)
        return self._payload(self.method.update_global(t, current, [*map(self._decoded, uploads)]))

    def server_flops(self, clients: Sequence[int]) -> float:
        return self.method.refine.flops(int((self.plan.class_counts_MK[[*clients]] > 0).sum()))

    def _payload(self, prototypes: Prototypes) -> Payload:
        """Returns what is sent; the statistics of the refinement come to the host with it."""
        value_KD, present_K = self.method.refine.stats.with_values(prototypes.value_KD, prototypes.present_K)
        return {"prototypes": Prototypes(value_KD, present_K)} if present_K.any() else {}

    def _decoded(self, upload: ClientUpload) -> Upload:
        prototypes = self._prototypes(upload.payload)
        count_K = torch.zeros(len(prototypes.present_K), dtype=torch.int64)
        if "counts" in upload.payload:
            count_K = class_rows(upload.payload, "counts").value_KD[:, 0].long()
        on_device = prototypes.to(self.server_device), to_device(count_K, self.server_device)
        return Upload(*on_device, upload.client, prototypes.present_K)

    def round_values(
        self, t: int, download: Payload, uploads: Sequence[ClientUpload], receivers_M: np.ndarray
    ) -> Values:
        new, stats = self._prototypes(download), self.method.refine.stats
        present_K, fresh_K = new.present_K.numpy(), np.zeros(len(new.present_K), dtype=bool)
        decoded = {upload.client: self._prototypes(upload.payload) for upload in uploads}
        for rows in decoded.values():
            fresh_K |= rows.present_K.numpy()
        sizes = self.spec.dimension_sizes(self.plan.config)
        self.bytes_masks += self._send_masks(receivers_M)
        return {
            "/round/bytes_masks": self.bytes_masks,
            "/prototypes/present": present_K,
            "/prototypes/stale": present_K & ~fresh_K,
            "/refine/iterations": stats.iterations,
            "/refine/loss": stats.loss,
            "/refine/delta": stats.delta,
            **{f"/prototypes/{name}": value for name, value in prototype_metrics(new).items()},
            "/prototypes/global": new.value_KD.numpy(),
            "/prototypes/local": uploaded_MKD(decoded, sizes["uploader"], self.plan.dims),
            "/refine/distances": distance_table(stats.distances, sizes["iteration"]),
        }

    def _send_masks(self, to_M: np.ndarray) -> int:
        """Returns the bytes that send the masks to those of these clients that do not have them yet."""
        new = int((torch.from_numpy(to_M) & ~self.has_masks_M).sum())
        self.has_masks_M |= torch.from_numpy(to_M)
        return new * sparse.bytes_of_masks(*self.plan.dims) if self.spec.sparsity else 0

    def derived_values(self, row: Values) -> Values:
        return derived_values(row)

    def state(self) -> Mapping[str, Tensor]:
        return {**self.method.state(), "has_masks": self.has_masks_M}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.method.load(state)
        self.has_masks_M.copy_(state["has_masks"])
