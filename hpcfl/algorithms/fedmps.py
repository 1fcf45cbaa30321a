"""FedMPS: prototypes of two levels of features, and soft labels of a classifier that the server trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool1d, kl_div, log_softmax, normalize, softmax

from hpcfl.algorithms.algorithm import BACKWARD, Algorithm, Values
from hpcfl.algorithms.initial_network import initial_network
from hpcfl.algorithms.server_classifier import train_classifier
from hpcfl.config.train import TrainConfig
from hpcfl.errors import BadInput
from hpcfl.exchange.codec import ClientUpload
from hpcfl.exchange.payload import Array, ClassRows, Payload, Rows, class_rows
from hpcfl.federation.run_plan import RunPlan
from hpcfl.methods.aggregate import Upload, mean
from hpcfl.methods.infer import nearest_N
from hpcfl.methods.prototypes import ClassMeans
from hpcfl.models.costs import linear_flops
from hpcfl.models.low_level import low_level_layer, low_level_outputs, low_level_width
from hpcfl.models.network import build_on_meta
from hpcfl.runtime.devices import seed_torch
from hpcfl.training.local_client import LocalClient, Losses
from hpcfl.training.step.step import BatchOutputs
from hpcfl.utils import seeds
from hpcfl.utils.accelerator import to_device, to_host

BASE_TEMPERATURE = 0.07
"""The contrastive loss is multiplied by its temperature ÷ this number, as in published code."""
WIDEST = 4096
"""The largest width of the lower level that is chosen by default."""


def unit(z_BD: Tensor) -> Tensor:
    """Returns features of length 1."""
    return normalize(z_BD, eps=1e-6)


def contrastive(z_BD: Tensor, anchor_BD: Tensor, y_B: Tensor, temperature: float) -> Tensor:
    """Returns the supervised contrastive loss of features and their labels' prototypes, 2B anchors.

    Each anchor is compared with all others; those of its label are its positives.
    """
    all_AD, label_A = torch.cat([z_BD, anchor_BD]), torch.cat([y_B, y_B])
    itself_AA = torch.eye(len(all_AD), dtype=torch.bool, device=all_AD.device)
    similarity_AA = (all_AD @ all_AD.T / temperature).masked_fill(itself_AA, -torch.inf)
    log_share_AA = similarity_AA - similarity_AA.logsumexp(1, keepdim=True)
    positive_AA = (label_A[:, None] == label_A) & ~itself_AA
    mean_A = log_share_AA.where(positive_AA, 0.0).sum(1) / positive_AA.sum(1)
    return -(temperature / BASE_TEMPERATURE) * mean_A.mean()


def soft_label_loss(logit_BK: Tensor, target_BK: Tensor, known_B: Tensor, temperature: float) -> Tensor:
    """Returns KL(soft label ‖ prediction), at a temperature, as a batch mean; unknown labels add zero."""
    log_BK, share_BK = log_softmax(logit_BK / temperature, 1), softmax(target_BK / temperature, 1)
    return torch.where(known_B, kl_div(log_BK, share_BK, reduction="none").sum(1), 0.0).mean()


class FedMps(Algorithm):
    """CE + α·high + β·low + γ·soft; the server averages prototypes and trains a classifier on the high ones.

    A client's prototypes are means of its normalised features in the batches of the last epoch. A class that
    nobody uploads in a round keeps what it had.
    """

    def __init__(self, plan: RunPlan, device: torch.device):
        super().__init__(plan, device)
        classes, features = plan.dims
        widths = [
            low_level_width(name, plan.data.shape, *plan.dims, plan.data.input_type)
            for name in plan.architectures
        ]
        if plan.config.runtime.graphs:
            raise BadInput("runtime.graphs = true: fedmps reads an inner layer, which a replayed graph hides")
        if (self.options.low_features or 0) > max(widths):
            raise BadInput(
                f"method.low_features = {self.options.low_features}: the widest lower level of the clients' "
                f"networks has {max(widths)} features"
            )
        self.low_width = self.options.low_features or min(WIDEST, *widths)
        self.levels = [
            Rows("high", classes, features),
            Rows("low", classes, self.low_width, present_as="high"),
        ]
        self.head_flops = linear_flops(
            build_on_meta(plan.clients[0].architecture, plan.data.shape, *plan.dims).head
        )
        self.means: dict[str, ClassMeans] = {}
        self.steps, self.loss = 0, np.nan

    @cached_property
    def classifier(self) -> nn.Module:
        """The server's classifier, shaped like client 0's head."""
        return initial_network(self.plan, 0).head.to(self.server_device)

    def download_arrays(self) -> Sequence[Array]:
        classes = self.plan.dims[0]
        return [*self.levels, Rows("logits", classes, classes, present_as="high")]

    def upload_arrays(self) -> Sequence[Array]:
        return self.levels

    # --- clients

    def train(self, client: LocalClient, download: Payload) -> Losses:
        classes, settings = self.plan.dims[0], self.plan.config.train
        widths = {"high": self.plan.dims[1], "low": self.low_width}
        self.means = {name: ClassMeans(classes, width, self.device) for name, width in widths.items()}
        before_last_epoch = (settings.epochs - 1) * self.plan.samples_per_epoch(client.id)
        seen = 0

        layer = low_level_layer(client.network, self.plan.clients[client.id].architecture)
        with low_level_outputs(layer) as output:

            def observe(outputs: BatchOutputs) -> None:
                nonlocal seen
                if seen >= before_last_epoch:
                    for name, z_BD in self._levels(outputs, output).items():
                        self.means[name].add(z_BD, outputs.y_B)
                seen += len(outputs.y_B)

            def loss(outputs: BatchOutputs) -> dict[str, tuple[float, Tensor]]:
                terms, options = {}, self.options
                for name, z_BD in self._levels(outputs, output).items():
                    anchor_BD = self._anchors(z_BD, outputs.y_B, class_rows(download, name))
                    term = contrastive(z_BD, anchor_BD, outputs.y_B, options.contrast_temperature)
                    terms[name] = getattr(options, name), term
                soft, y_B = class_rows(download, "logits"), outputs.y_B
                terms["soft"] = (
                    options.soft,
                    soft_label_loss(
                        outputs.logit_BK, soft.value_KD[y_B], soft.present_K[y_B], options.soft_temperature
                    ),
                )
                return terms

            return client.train(loss if download else None, observe)

    def _levels(self, outputs: BatchOutputs, output: Callable[[], Tensor]) -> dict[str, Tensor]:
        """Returns both levels of features of a batch, with length 1; the lower is pooled to its width."""
        low_BF = output()
        if low_BF.shape[1] != self.low_width:
            low_BF = adaptive_avg_pool1d(low_BF[:, None], self.low_width)[:, 0]
        return {"high": unit(outputs.z_BD), "low": unit(low_BF)}

    def _anchors(self, z_BD: Tensor, y_B: Tensor, prototypes: ClassRows) -> Tensor:
        """Returns the global prototypes of the labels; the feature itself where there is none."""
        return prototypes.value_KD[y_B].where(prototypes.present_K[y_B, None], z_BD.detach())

    def upload(self, client: LocalClient, download: Payload) -> Payload:
        return {name: means.prototypes() for name, means in self.means.items()}

    def predict_by_download(self, client: int, z_ND: Tensor, download: Payload) -> Mapping[str, Tensor]:
        if not download:
            return {}
        high = class_rows(download, "high")
        if self.options.own_classes:
            owned_K = to_device(torch.from_numpy(self.plan.class_counts_MK[client] > 0), self.device)
            high = ClassRows(high.value_KD, high.present_K & owned_K)
        return {"global": nearest_N(unit(z_ND), high, False)}

    def client_flops(self, client: int) -> float:
        """Returns the FLOPs of comparing all 2B anchors of each batch on both levels."""
        train, width = self.plan.config.train, self.plan.dims[1] + self.low_width
        full, rest = divmod(self.plan.samples_per_epoch(client), train.batch_size)
        pairs = train.epochs * (full * (2 * train.batch_size) ** 2 + (2 * rest) ** 2)
        return 2.0 * width * (1 + BACKWARD) * pairs

    # --- the server

    def aggregate(self, t: int, last: Payload, uploads: Sequence[ClientUpload]) -> Payload:
        self.steps, self.loss = 0, np.nan
        if not uploads:
            return last
        rows = [class_rows(upload.payload, "high") for upload in uploads]
        new = {"high": _mean(rows), "low": _mean([class_rows(upload.payload, "low") for upload in uploads])}
        new["logits"] = _mean(self._soft_labels(t, rows))
        if not last:
            return new
        return {name: _keep(value, class_rows(last, name)) for name, value in new.items()}

    def _soft_labels(self, t: int, rows: Sequence[ClassRows]) -> list[ClassRows]:
        """Trains the classifier on the uploaded prototypes; returns its logits of each, in eval mode."""
        options, seed, classifier = self.options, self.plan.config.seed, self.classifier.train()
        seed_torch(seeds.key(seed, "classifier", t), self.server_device)  # dropout
        settings = TrainConfig(
            optimizer="adam",
            lr=options.server_lr,
            epochs=options.server_epochs,
            batch_size=options.server_batch,
        )
        self.steps, mean_loss = train_classifier(classifier, settings, rows, seed, t)
        classifier.eval()
        with torch.no_grad():
            logits = [classifier(to_device(each.value_KD, self.server_device)) for each in rows]
        loss, *logits = to_host(mean_loss, *logits)
        self.loss = loss.item()
        return [ClassRows(each_KK, each.present_K) for each_KK, each in zip(logits, rows, strict=True)]

    def server_flops(self, clients: Sequence[int]) -> float:
        """Returns the FLOPs of training the classifier, and of its logits of all rows of every upload."""
        owned_MK = self.plan.class_counts_MK[[*clients]] > 0
        trained = (1 + BACKWARD) * self.options.server_epochs * int(owned_MK.sum())
        return float((trained + owned_MK.size) * self.head_flops)

    def round_values(
        self, t: int, download: Payload, uploads: Sequence[ClientUpload], receivers_M: np.ndarray
    ) -> Values:
        return {"/refine/iterations": self.steps, "/refine/loss": self.loss}

    def state(self) -> Mapping[str, Tensor]:
        return {name: value.detach() for name, value in self.classifier.named_parameters()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        for name, value in self.state().items():
            value.copy_(state[name])


def _mean(rows: Sequence[ClassRows]) -> ClassRows:
    """Returns the unweighted mean over the clients that have a class."""
    return mean([Upload(each, each.present_K.long(), 0) for each in rows])


def _keep(new: ClassRows, last: ClassRows) -> ClassRows:
    """Returns the new rows, and the last ones of classes that have no new row."""
    return ClassRows(
        new.value_KD.where(new.present_K[:, None], last.value_KD), new.present_K | last.present_K
    )
