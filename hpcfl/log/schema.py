"""Every dataset of a log, once: path, shape, type, and whether it is a result or a measurement.

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
    """One dataset. Its first dimension says when it grows: by `round`, by `saved` round, or never."""

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
    _r("/round/accuracy", "round", "f8", "right answers ÷ test samples, over all clients"),
    _r("/round/accuracy_mean", "round", "f8", "mean of the clients' accuracies"),
    _r("/round/loss", "round", "f8", "training loss, mean over the participants' samples"),
    _r("/round/participants", "round client", "?", "who was selected"),
    _r("/round/uploads", "round", "i8", "clients whose prototypes entered the aggregate"),
    _r("/round/loss_ce", "round", "f8", "its cross-entropy; the other parts are before their weights"),
    _r("/round/loss_align", "round", "f8", "its distance to the prototypes of the labels; NaN: none"),
    _r("/round/loss_proxy", "round", "f8", "its softmax over cosines to prototypes, FedSAP (9); NaN: none"),
    _r("/round/loss_consistency", "round", "f8", "its strong views, FedSAP (12); NaN: none"),
    _r("/round/weight", "round", "f8", "λ of the round; NaN: the method has none"),
    _r("/round/gradient_align", "round", "f8", "‖λ∇align‖ ÷ ‖∇cross-entropy‖, by features, first batches"),
    _r("/round/gradient_proxy", "round", "f8", "the same of the proxy term"),
    _r("/round/silhouette", "round", "f8", "mean over clients of /client/silhouette"),
    _r("/round/accepted", "round", "i8", "unlabelled samples that were given a pseudo-label"),
    _r("/round/pseudo_accuracy", "round", "f8", "right pseudo-labels ÷ all; NaN: none"),
    _r("/round/personalisation", "round", "f8", "distance of head norms to class counts; 0: proportional"),
    _r("/round/bytes_up", "round", "i8", "prototype rows sent up, as the papers count: Σ K_i·d·4"),
    _r("/round/bytes_down", "round", "i8", "prototype rows sent to those who need them: Σ K·d·4"),
    _r("/round/bytes_masks", "round", "i8", "masks of sparse rows, once to every client"),
    _r("/round/bytes_side", "round", "i8", "class bits and sample counts that travel with the rows"),
    _m("/round/bytes_mpi", "round", "i8", "all bytes between processes, control and evaluation too"),
    _m("/round/seconds", "round", "f8", "from row to row, on rank 0; its parts follow"),
    _m("/round/seconds_train", "round", "f8", "until the last upload was ready"),
    _m("/round/seconds_comm", "round", "f8", "packing, transfers, unpacking"),
    _m("/round/seconds_refine", "round", "f8", "aggregation and refinement"),
    _m("/round/seconds_evaluate", "round", "f8", "until the last report was ready"),
    _m("/round/seconds_log", "round", "f8", "logging of the row before"),
    _m("/round/cpu_seconds", "round", "f8", "CPU seconds of all ranks, waiting included"),
    _m("/round/efficiency", "round", "f8", "CPU seconds on clients ÷ (min(workers, cores) × seconds)"),
    _r("/round/best", "round", "i8", "the round, from 0, of the best accuracy so far; -1: none yet"),
    _r("/client/accuracy", "round client", "f8", "by the method's own inference; NaN: not evaluated"),
    _r("/client/accuracy_head", "round client", "f8", "by the network's head"),
    _r("/client/accuracy_global", "round client", "f8", "by global prototypes; NaN: there are none"),
    _r("/client/accuracy_local", "round client", "f8", "by local prototypes; NaN: there are none yet"),
    _r("/client/best", "round client", "f8", "the client's best accuracy so far; NaN: none yet"),
    _r("/client/loss", "round client", "f8", "mean training loss; NaN: did not train"),
    _r("/client/diverged", "round client", "?", "its loss or prototypes stopped being finite; final"),
    _r("/client/silhouette", "round client", "f8", "of its test features by class, cosine; NaN: unknown"),
    _r("/client/accepted", "round client", "i8", "its pseudo-labels of the round"),
    _r("/client/pseudo_accuracy", "round client", "f8", "right ones ÷ all of them; NaN: none"),
    _r("/client/thresholds", "round client pair", "f8", "of a pseudo-label: least margin, largest distance"),
    _r("/client/head_norms", "saved client class", "f8", "length of the head's weights; NaN: untrained"),
    _m("/client/seconds", "round client", "f8", "training and prototypes; NaN: did not take part"),
    _m("/client/rank", "round client", "i4", "where it was trained; -1: did not take part"),
    _r("/clients/architecture", "client", STRING, "name of the network"),
    _r("/clients/parameters", "client", "i8", "of the network with its head"),
    _r("/clients/flops", "client", "i8", "of a forward pass over one sample"),
    _r("/clients/train_samples", "client", "i8", ""),
    _r("/clients/test_samples", "client", "i8", ""),
    _r("/clients/class_counts", "client class", "i8", "training samples by class"),
    _r("/prototypes/global", "saved class feature", "f4", "global prototypes after a saved round"),
    _r("/prototypes/saved_round", "saved", "i8", "the rounds, from 0, of /prototypes/global"),
    _r("/prototypes/present", "round class", "?", "the class has a global prototype"),
    _r("/prototypes/stale", "round class", "?", "present, but nobody uploaded the class in this round"),
    _r(
        "/prototypes/local",
        "saved uploader class feature",
        "f4",
        "uploads as sent; log.local_prototypes",
    ),
    _r("/prototypes/margin", "round class", "f8", "distance to the nearest other class; NaN: none"),
    _r("/prototypes/margin_normalised", "round class", "f8", "the same ÷ the largest of the round"),
    _r("/prototypes/margin_clients", "round class", "f8", "largest among the participants' own prototypes"),
    _r("/prototypes/margin_clients_normalised", "round class", "f8", "the same ÷ the largest of the round"),
    _r("/prototypes/dead", "round class", "f8", "share of units that are 0 for all its samples, by client"),
    _r("/prototypes/distance", "round statistic", "f8", "of pairs: least, mean, largest"),
    _r("/prototypes/cosine", "round statistic", "f8", "of pairs: least, mean, largest"),
    _r("/prototypes/energy", "round", "f8", "of the directions: Σ log 1/distance, ProtoNorm's Eq. (10)"),
    _r("/prototypes/energy_bound", "round", "f8", "the least that so many directions could have: a simplex"),
    _r("/prototypes/unreachable", "round class", "f8", "‖min(c, 0)‖² ÷ ‖c‖²: where no ReLU's features go"),
    _r("/refine/iterations", "round", "i8", "of the solver, or steps of the server's SGD"),
    _r("/refine/loss", "round", "f8", "of the server's training, its last epoch; NaN: it does not train"),
    _r("/refine/delta", "round", "f8", "FedTGP's margin δ(t); NaN: the method has none"),
    _r("/refine/distances", "saved iteration statistic", "f8", "of pairs, by iteration; log.distances"),
)

NAMES = {"statistic": ("least", "mean", "largest"), "pair": ("margin", "distance")}
"""What stands at the places of dimensions that are no count of anything."""

PARTS = ("train", "comm", "refine", "evaluate", "log")
"""The parts of a round's seconds: /round/seconds_train and so on."""

BY_PATH = {entry.path: entry for entry in ENTRIES}
