"""The schema of a log: path, dimensions, type and kind of every dataset.

A `result` is equal bit for bit on any number of ranks; a `measured` value (times, ranks, MPI bytes) is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

VERSION = 2

Kind = Literal["result", "measured"]
STRING = "string"


@dataclass(frozen=True)
class Entry:
    """One dataset. By its first dimension it grows every `round`, every `saved` round, or not at all."""

    path: str
    dims: tuple[str, ...]
    dtype: str
    kind: Kind
    about: str


def _r(path: str, dims: str, dtype: str, about: str) -> Entry:
    return Entry(path, tuple(dims.split()), dtype, "result", about)


def _m(path: str, dims: str, dtype: str, about: str) -> Entry:
    return Entry(path, tuple(dims.split()), dtype, "measured", about)


ENTRIES = (
    _r("/round/accuracy", "round", "f8", "correct answers ÷ test samples, over all clients"),
    _r("/round/accuracy_mean", "round", "f8", "mean of the clients' accuracies"),
    _r("/round/loss", "round", "f8", "training loss, mean over the participants' samples"),
    _r("/round/participants", "round client", "?", "selected clients"),
    _r("/round/uploads", "round", "i8", "number of clients whose prototypes were aggregated"),
    _r("/round/loss_ce", "round", "f8", "cross-entropy part of the loss; all parts are unweighted"),
    _r("/round/loss_align", "round", "f8", "alignment part: distance to the labels' prototypes; NaN: none"),
    _r("/round/loss_proxy", "round", "f8", "proxy part, FedSAP (9): softmax over cosines; NaN: none"),
    _r("/round/loss_consistency", "round", "f8", "consistency part, FedSAP (12): strong views; NaN: none"),
    _r("/round/weight", "round", "f8", "λ of the round; NaN: the method has none"),
    _r("/round/gradient_align", "round", "f8", "‖λ∇align‖ ÷ ‖∇cross-entropy‖ w.r.t. features, first batches"),
    _r("/round/gradient_proxy", "round", "f8", "the same for the proxy term"),
    _r("/round/silhouette", "round", "f8", "mean over clients of /client/silhouette"),
    _r("/round/accepted", "round", "i8", "number of unlabelled samples that got a pseudo-label"),
    _r("/round/pseudo_accuracy", "round", "f8", "correct pseudo-labels ÷ all pseudo-labels; NaN: none"),
    _r("/round/personalisation", "round", "f8", "distance of head norms and class counts; 0: proportional"),
    _r("/round/bytes_up", "round", "i8", "bytes of uploaded prototypes, as papers count: Σ K_i·d·4"),
    _r("/round/bytes_down", "round", "i8", "bytes of prototypes sent to clients that need them: Σ K·d·4"),
    _r("/round/bytes_masks", "round", "i8", "bytes of sparsity masks, sent once to every client"),
    _r("/round/bytes_side", "round", "i8", "bytes of class bitmaps and sample counts with the rows"),
    _m("/round/bytes_mpi", "round", "i8", "all bytes between processes, with control and evaluation"),
    _m("/round/seconds", "round", "f8", "time from row to row on rank 0; its parts follow"),
    _m("/round/seconds_train", "round", "f8", "time until the last upload was ready"),
    _m("/round/seconds_comm", "round", "f8", "time for encoding, transfer and decoding"),
    _m("/round/seconds_refine", "round", "f8", "time for aggregation and refinement"),
    _m("/round/seconds_evaluate", "round", "f8", "time until the last metrics were ready"),
    _m("/round/seconds_log", "round", "f8", "time for logging the previous row"),
    _m("/round/cpu_seconds", "round", "f8", "CPU seconds of all ranks, waiting included"),
    _m("/round/efficiency", "round", "f8", "CPU seconds on clients ÷ (min(workers, cores) × seconds)"),
    _r("/round/best", "round", "i8", "round (from 0) of the best accuracy so far; -1: none yet"),
    _r("/client/accuracy", "round client", "f8", "accuracy by the method's inference; NaN: not evaluated"),
    _r("/client/accuracy_head", "round client", "f8", "accuracy by the network's head"),
    _r("/client/accuracy_global", "round client", "f8", "accuracy by global prototypes; NaN: none"),
    _r("/client/accuracy_local", "round client", "f8", "accuracy by local prototypes; NaN: none yet"),
    _r("/client/best", "round client", "f8", "the client's best accuracy so far; NaN: none yet"),
    _r("/client/loss", "round client", "f8", "mean training loss; NaN: did not train"),
    _r("/client/diverged", "round client", "?", "loss or prototypes became NaN or infinite; stays true"),
    _r("/client/silhouette", "round client", "f8", "silhouette of test features, by cosine; NaN: unknown"),
    _r("/client/accepted", "round client", "i8", "number of its pseudo-labels in the round"),
    _r("/client/pseudo_accuracy", "round client", "f8", "correct pseudo-labels ÷ all; NaN: none"),
    _r("/client/thresholds", "round client pair", "f8", "pseudo-labels: minimum margin, maximum distance"),
    _r("/client/head_norms", "saved client class", "f8", "norm of head weights per class; NaN: untrained"),
    _m("/client/seconds", "round client", "f8", "time for training and prototypes; NaN: did not take part"),
    _m("/client/rank", "round client", "i4", "rank that trained it; -1: did not take part"),
    _r("/clients/architecture", "client", STRING, "name of the network"),
    _r("/clients/parameters", "client", "i8", "parameters of the network with its head"),
    _r("/clients/flops", "client", "i8", "FLOPs of a forward pass over one sample"),
    _r("/clients/train_samples", "client", "i8", "number of training samples"),
    _r("/clients/test_samples", "client", "i8", "number of test samples"),
    _r("/clients/class_counts", "client class", "i8", "training samples per class"),
    _r("/prototypes/global", "saved class feature", "f4", "global prototypes after a saved round"),
    _r("/prototypes/saved_round", "saved", "i8", "rounds (from 0) of /prototypes/global"),
    _r("/prototypes/present", "round class", "?", "whether the class has a global prototype"),
    _r("/prototypes/stale", "round class", "?", "present, but no client uploaded the class in this round"),
    _r(
        "/prototypes/local",
        "saved uploader class feature",
        "f4",
        "uploads as sent; only if log.local_prototypes",
    ),
    _r("/prototypes/margin", "round class", "f8", "distance to the nearest other class; NaN: none"),
    _r("/prototypes/margin_normalised", "round class", "f8", "margin ÷ the largest margin of the round"),
    _r("/prototypes/margin_clients", "round class", "f8", "largest margin of participants' local prototypes"),
    _r("/prototypes/margin_clients_normalised", "round class", "f8", "the same ÷ the largest of the round"),
    _r("/prototypes/dead", "round class", "f8", "share of features that are 0 for the class, client mean"),
    _r("/prototypes/distance", "round statistic", "f8", "pairwise distances: least, mean, largest"),
    _r("/prototypes/cosine", "round statistic", "f8", "pairwise cosines: least, mean, largest"),
    _r("/prototypes/energy", "round", "f8", "energy of the directions, ProtoNorm (10): Σ log 1/distance"),
    _r("/prototypes/energy_bound", "round", "f8", "lower bound of the energy, by a simplex"),
    _r("/prototypes/unreachable", "round class", "f8", "‖min(c, 0)‖² ÷ ‖c‖²: not reachable after a ReLU"),
    _r("/refine/iterations", "round", "i8", "iterations of the solver, or SGD steps of the server"),
    _r("/refine/loss", "round", "f8", "loss of the server's last epoch; NaN: it does not train"),
    _r("/refine/delta", "round", "f8", "FedTGP's margin δ(t); NaN: the method has none"),
    _r("/refine/distances", "saved iteration statistic", "f8", "pairwise, by iteration; if log.distances"),
)

COMPONENT_NAMES = {"statistic": ("least", "mean", "largest"), "pair": ("margin", "distance")}
"""Names of the components along dimensions that are not an index."""

ROUND_PARTS = ("train", "comm", "refine", "evaluate", "log")
"""The parts of a round's seconds: /round/seconds_train and so on."""

BY_PATH = {entry.path: entry for entry in ENTRIES}
