"""Builds the algorithm of a run."""

from __future__ import annotations

import torch

from hpcfl.algorithms.algorithm import Algorithm
from hpcfl.federation.run_plan import RunPlan
from hpcfl.methods.plugins import load


def build_algorithm(plan: RunPlan, device: torch.device) -> Algorithm:
    """Returns the algorithm that a plan names."""
    algorithm: Algorithm = load(plan.spec.algorithm)(plan, device)
    if algorithm.download_changes != "nothing" and algorithm.receivers != "all":
        raise ValueError(
            f"{plan.spec.algorithm}: a download that changes the {algorithm.download_changes} must go to all"
        )
    if algorithm.recovers and algorithm.download_changes != "network":
        raise ValueError(f"{plan.spec.algorithm}: clients recover only if a download changes the network")
    return algorithm
