"""FedAvg: the server averages the clients' networks."""

from __future__ import annotations

import torch

from hpcfl.algorithms.shared_network import SharedNetwork
from hpcfl.federation.run_plan import RunPlan
from hpcfl.methods.baseline_options import FedAvgOptions


class FedAvg(SharedNetwork):
    """Cross-entropy on the clients; the server averages their parameters and, on request, buffers."""

    Options = FedAvgOptions

    def __init__(self, plan: RunPlan, device: torch.device):
        for name, value in plan.spec.settings:
            setattr(self, name, value)  # weighted, buffers, first_download
        super().__init__(plan, device)
