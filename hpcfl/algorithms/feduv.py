"""FedUV: FedAvg whose clients keep the variance of their outputs and spread their features evenly."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hpcfl.algorithms.shared_network import SharedNetwork
from hpcfl.exchange.payload import Payload
from hpcfl.methods.baseline_metrics import FEDUV_METRICS
from hpcfl.methods.baseline_options import FedUvOptions
from hpcfl.training.local_client import LocalClient
from hpcfl.training.step.step import BatchOutputs, LossTerms


def variance_term(logit_BK: Tensor) -> Tensor:
    """Returns mean_k relu(1/√K − std_k), std_k over the batch of class k's probability.

    1/√K is that of K one-hot outputs, one of each class.
    """
    if len(logit_BK) < 2:
        return logit_BK.new_zeros(())
    std_K = logit_BK.softmax(1).std(0)
    return (1 / math.sqrt(len(std_K)) - std_K).relu().mean()


def uniformity_term(z_BD: Tensor) -> Tensor:
    """Returns the mean of exp(−‖z_a − z_b‖²/med) over all pairs a < b.

    med is the lower median of the squared distances that are not zero; gradients flow through it. Where all
    are zero, the term is 0.
    """
    if len(z_BD) < 2:
        return z_BD.new_zeros(())
    distance_P = torch.pdist(z_BD).square()
    median = distance_P.where(distance_P > 0, torch.nan).nanmedian()
    known = ~median.isnan()
    mean = (-distance_P / median.where(known, 1.0)).exp().mean()
    return mean.where(known, 0.0)


class FedUv(SharedNetwork):
    """CE + μ · variance + λ · uniformity; networks are averaged by samples, buffers included."""

    Options = FedUvOptions
    metrics = FEDUV_METRICS

    def local_loss(self, client: LocalClient, download: Payload) -> LossTerms:
        options = self.options

        def loss(outputs: BatchOutputs) -> dict[str, tuple[float, Tensor]]:
            return {
                "variance": (options.variance, variance_term(outputs.logit_BK)),
                "uniformity": (options.uniformity, uniformity_term(outputs.z_BD)),
            }

        return loss
