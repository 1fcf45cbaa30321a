"""The metrics that methods add to those of every run. No torch here."""

from __future__ import annotations

from hpcfl.metrics.metric import declare, evaluated, trained

ACCURACY_GLOBAL = declare(
    "/client/accuracy_global",
    "round client",
    "f8",
    "accuracy by global prototypes; NaN: none",
    evaluated("accuracy_global"),
)

PROTOTYPE_METRICS = (
    declare(
        "/round/loss_align",
        "round",
        "f8",
        "alignment part: distance to the labels' prototypes; NaN: none",
        trained("align", "sample mean"),
    ),
    declare(
        "/round/loss_proxy",
        "round",
        "f8",
        "proxy part, FedSAP (9): softmax over cosines; NaN: none",
        trained("proxy", "sample mean"),
    ),
    declare(
        "/round/loss_consistency",
        "round",
        "f8",
        "consistency part, FedSAP (12): strong views; NaN: none",
        trained("consistency", "sample mean"),
    ),
    declare("/round/weight", "round", "f8", "λ of the round; NaN: the method has none"),
    declare(
        "/round/gradient_align",
        "round",
        "f8",
        "‖λ∇align‖ ÷ ‖∇cross-entropy‖ w.r.t. features, first batches",
        trained("gradient_align", "sample mean"),
    ),
    declare(
        "/round/gradient_proxy",
        "round",
        "f8",
        "the same for the proxy term",
        trained("gradient_proxy", "sample mean"),
    ),
    declare(
        "/round/accepted",
        "round",
        "i8",
        "number of unlabelled samples that got a pseudo-label",
        trained("accepted", "sum"),
    ),
    declare("/round/pseudo_accuracy", "round", "f8", "correct pseudo-labels ÷ all pseudo-labels; NaN: none"),
    declare("/round/bytes_masks", "round", "i8", "bytes of sparsity masks, sent once to every client"),
    ACCURACY_GLOBAL,
    declare(
        "/client/accuracy_local",
        "round client",
        "f8",
        "accuracy by local prototypes; NaN: none yet",
        evaluated("accuracy_local"),
    ),
    declare(
        "/client/accepted",
        "round client",
        "i8",
        "number of its pseudo-labels in the round",
        trained("accepted"),
    ),
    declare(
        "/client/pseudo_accuracy",
        "round client",
        "f8",
        "correct pseudo-labels ÷ all; NaN: none",
        trained("pseudo_accuracy"),
    ),
    declare(
        "/client/thresholds",
        "round client pair",
        "f8",
        "pseudo-labels: minimum margin, maximum distance",
        trained("thresholds"),
    ),
    declare("/prototypes/global", "saved class feature", "f4", "global prototypes after a saved round"),
    declare("/prototypes/present", "round class", "?", "whether the class has a global prototype"),
    declare(
        "/prototypes/stale", "round class", "?", "present, but no client uploaded the class in this round"
    ),
    declare(
        "/prototypes/local",
        "saved uploader class feature",
        "f4",
        "uploads as sent; only if log.local_prototypes",
    ),
    declare(
        "/prototypes/margin",
        "round class",
        "f8",
        "distance of global prototypes, before γ, to the nearest other class; NaN: none",
    ),
    declare("/prototypes/margin_normalised", "round class", "f8", "margin ÷ the largest margin of the round"),
    declare(
        "/prototypes/margin_clients",
        "round class",
        "f8",
        "largest margin of participants' local prototypes as sent (masked), ÷ γ",
        trained("margin", "max"),
    ),
    declare(
        "/prototypes/margin_clients_normalised", "round class", "f8", "the same ÷ the largest of the round"
    ),
    declare(
        "/prototypes/margin_common",
        "round class party",
        "f8",
        "margin and margin_clients ÷ the largest of both: global, clients",
    ),
    declare(
        "/prototypes/dead",
        "round class",
        "f8",
        "share of features that are 0 for the class, client mean",
        trained("dead", "mean"),
    ),
    declare("/prototypes/distance", "round statistic", "f8", "pairwise distances: least, mean, largest"),
    declare("/prototypes/cosine", "round statistic", "f8", "pairwise cosines: least, mean, largest"),
    declare(
        "/prototypes/energy", "round", "f8", "energy of the directions, ProtoNorm (10): Σ log 1/distance"
    ),
    declare("/prototypes/energy_bound", "round", "f8", "lower bound of the energy, by a simplex"),
    declare(
        "/prototypes/unreachable", "round class", "f8", "‖min(c, 0)‖² ÷ ‖c‖²: not reachable after a ReLU"
    ),
    declare("/refine/iterations", "round", "i8", "iterations of the solver, or SGD steps of the server"),
    declare("/refine/loss", "round", "f8", "loss of the server's last epoch; NaN: it does not train"),
    declare("/refine/delta", "round", "f8", "FedTGP's margin δ(t); NaN: the method has none"),
    declare(
        "/refine/distances", "saved iteration statistic", "f8", "pairwise, by iteration; if log.distances"
    ),
)
