"""A module with parts and algorithms of a user's own, and how runs with it are started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.helpers.mpi import ROOT

IDEAS = '''
import torch
import own_helper
from hpcfl.algorithms.algorithm import Algorithm
from hpcfl.algorithms.prototype_algorithm import PrototypeAlgorithm
from hpcfl.config.section import Positive, Section
from hpcfl.exchange.payload import Rows
from hpcfl.methods.aggregate import Aggregate, Upload, mean, weighted
from hpcfl.methods.local_loss import distance
from hpcfl.methods.prototypes import Prototypes
from hpcfl.methods.refine.base import Refinement
from hpcfl.methods.refine.thomson import Thomson


class Shrink(Refinement):
    """Multiplies prototypes by a factor that falls from round to round."""

    class Options(Section):
        strength: Positive = 0.5
        """The factor of a round."""

    def __init__(self, context):
        super().__init__(context)
        self.factor = torch.ones(1)

    def __call__(self, t, last, new, uploads):
        own_helper.kill_after_a_checkpoint()
        self.factor *= own_helper.power(self.context.options["strength"])
        return Prototypes(new.value_KD * self.factor, new.present_K)

    def state(self):
        return {"factor": self.factor}


class Unit(Refinement):
    unit_length = True
    no_masks = "has its reasons"
    min_classes = 7

    @staticmethod
    def impossible(classes, features):
        return "is odd" if features % 2 else ""


class Learner(Refinement):
    learns = True


class MyThomson(Thomson):
    """Inherits what Thomson declares."""


class Counts(Aggregate):
    needs_counts = True

    def __call__(self, uploads):
        assert all(upload.count_K.sum() > 0 for upload in uploads)
        return weighted(uploads)


class Keeps(Aggregate):
    keeps_uploads = True
    sends_products = True

    class Options(Section):
        strength: Positive = 1.0


@distance(weight=3.0, by_angle=True)
def angle(z, target):
    return 1 - torch.cosine_similarity(z, target)


def plain(z, target):
    return (z - target).abs().mean(1)


class Noisy(PrototypeAlgorithm):
    """A variant of prototype methods."""

    class Options(Section):
        noise: Positive = 0.1
        """How much."""

    def upload(self, client, download):
        payload = super().upload(client, download)
        for rows in payload.values():
            rows.value_KD.add_(self.options.noise)
        return payload


class Means(Algorithm):
    """Uploads the counts of classes and does nothing else."""

    def upload_arrays(self):
        return [Rows("counts", self.plan.dims[0], 1)]

    def upload(self, client, download):
        count_K = client.count_K.float()
        return {"counts": Prototypes(count_K[:, None], count_K > 0)}

    def aggregate(self, t, last, uploads):
        return {}


class Slotted(Refinement):
    class Options(Section):
        weight: float = 1.0


class BadMask(Refinement):
    no_masks = True


class BadOptions(Refinement):
    Options = dict


class BadAlgorithm(Means):
    download_changes = "heads"


class BadReceivers(Means):
    download_changes = "head"


class Incomplete(Algorithm):
    pass


class Unrelated:
    pass


number = 3


class FailsOnServer(Refinement):
    def __call__(self, t, last, new, uploads):
        raise ZeroDivisionError("own mistake")  # the server's line


class FailsOnClient(Means):
    def upload(self, client, download):
        if client.id == 3:
            raise ZeroDivisionError("own mistake")  # the client's line
        return super().upload(client, download)


class FailsAtStart(Means):
    def __init__(self, plan, device):
        raise ZeroDivisionError("own mistake")  # the line at the start
'''
HELPER = """
import glob, os, time


def power(x):
    return x**2


def kill_after_a_checkpoint():
    if os.environ.get("OWN_KILL"):
        time.sleep(0.05)
        if glob.glob("parts.h5.ckpt/manifest-*.json"):
            os.kill(os.getpid(), 9)
"""
SHORT = ["data.samples_per_class=100", "federation.rounds=3", "federation.participation=6"]
SHORT += ["models.features=8"]


def write_ideas(directory: Path) -> Path:
    (directory / "own_ideas.py").write_text(IDEAS)
    (directory / "own_helper.py").write_text(HELPER)
    return directory


def train(
    directory: Path,
    *settings: str,
    out: str = "run.h5",
    more: tuple[str, ...] = (),
    env: dict[str, str] | None = None,
) -> subprocess.CompletedProcess:
    """Runs `hpcfl train` in a directory, in a process of its own."""
    command = [sys.executable, "-m", "hpcfl", "train", "--out", out, *more]
    return start(directory, command, *settings, env=env)


def start(
    directory: Path, command: list[str], *settings: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess:
    options = [f"--set={setting}" for setting in (*SHORT, *settings)]
    environ = os.environ | {"PYTHONPATH": str(ROOT)} | (env or {})
    return subprocess.run(
        [*command, *options], cwd=directory, env=environ, capture_output=True, text=True, timeout=120
    )
