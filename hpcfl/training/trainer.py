"""Local training of one client in one round: epochs, then local prototypes."""

from __future__ import annotations

import numpy as np
import torch

from hpcfl.federation.run_plan import RunPlan
from hpcfl.methods.prototype_method import PrototypeMethod
from hpcfl.methods.prototypes import ClassMeans, Prototypes, margin_K
from hpcfl.methods.pseudo_labels import with_last_length
from hpcfl.training.bound_network import BoundNetwork
from hpcfl.training.epochs import features, train_epochs
from hpcfl.training.samples import ClientSamples, SampleSource
from hpcfl.training.semi_supervised import TRAINING, ActiveSet, SemiSupervised, augmentation_of
from hpcfl.utils import seeds


class Trainer:
    """Trains clients whose state is in the worker's buffer."""

    def __init__(self, plan: RunPlan, method: PrototypeMethod, source: SampleSource, device: torch.device):
        self.plan, self.method, self.source, self.device = plan, method, source, device
        self.count_MK = torch.from_numpy(plan.class_counts_MK).to(device)
        self.owned_MK = self.count_MK > 0
        self.semi = SemiSupervised(plan)

    def train(self, t: int, i: int, network: BoundNetwork, target: Prototypes, metrics: np.ndarray) -> None:
        """Trains client i in round t, stores its local prototypes in its state, and measures."""
        config = self.plan.config
        samples = self._samples(self.plan.clients[i].train, network)
        means = ClassMeans(*self.plan.dims, device=self.device)
        running, aligned = config.method.prototypes == "running", bool(target.present_K.any())
        active = None
        if aligned and self.method.is_semi(t):
            active = self._active_set(t, i, network, target, metrics)
        losses = train_epochs(
            network.step,
            samples,
            self.method.local_loss.bind(t, target, self.count_MK[i]) if aligned else None,
            lambda epoch: seeds.generator(config.seed, "shuffle", i, t, epoch),
            means if running else None,
            lambda epoch: augmentation_of(self.plan, i, t, epoch, TRAINING, config.train.augment),
            (lambda epoch: self.semi.batches(active, t, i, epoch)) if active else None,
        )
        for name, value in losses.items():
            metrics[name] = value
        if not running:
            for z_BD, y_B in features(network.step, samples, config.runtime.inference_batch):
                means.add(z_BD, y_B)
        if active:
            self.semi.add_to_means(active, t, i, network.step, means)
        prototypes = means.prototypes()
        if self.method.is_semi(t):
            prototypes = with_last_length(prototypes, network.prototypes)
        network.views["local.value"].copy_(prototypes.value_KD)
        network.views["local.present"].copy_(prototypes.present_K)
        finite = bool(np.isfinite(losses["loss"])) and prototypes.finite
        network.views["diverged"].fill_(not finite)
        if finite:
            metrics["dead"] = means.dead_K().cpu().numpy()
            metrics["head_norms"] = network.step.network.head_norms().cpu().numpy()
            metrics["margin"] = margin_K(network.prototypes).cpu().numpy()

    def _active_set(
        self, t: int, i: int, network: BoundNetwork, target: Prototypes, metrics: np.ndarray
    ) -> ActiveSet | None:
        """Returns the unlabelled samples that client i trains on in round t; None if there are none."""
        client, thresholds_2 = self.plan.clients[i], network.views["thresholds"]
        own = Prototypes(target.value_KD, target.present_K & self.owned_MK[i])
        if thresholds_2.isnan().any():  # its first round of the semi-supervised phase
            labelled = self._samples(client.train, network)
            thresholds_2.copy_(self.semi.calibrate(network.step, labelled, own))
        metrics["thresholds"] = thresholds_2.cpu().numpy()
        unlabelled = self._samples(client.split.unlabelled, network)
        if not len(unlabelled):
            return None
        active = self.semi.active_set(t, i, network.step, unlabelled, own, thresholds_2)
        metrics["accepted"] = len(active)
        if not len(active):
            return None
        metrics["pseudo_accuracy"] = active.num_correct / len(active)
        return active

    def _samples(self, index_N: np.ndarray, network: BoundNetwork) -> ClientSamples:
        return self.source.samples(index_N, network.step.options.memory_format)
