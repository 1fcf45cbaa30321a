"""The metrics that baselines add to those of every run. No torch here."""

from __future__ import annotations

from hpcfl.methods.declared_metrics import PROTOTYPE_METRICS
from hpcfl.metrics.metric import declare, evaluated, trained

ACCURACY_TRAINED = declare(
    "/client/accuracy_trained",
    "round client",
    "f8",
    "accuracy by the head after training, before the next download; accuracy_head is after it",
    evaluated("accuracy_trained"),
)
"""Of algorithms whose download changes the head or the network."""

SERVER_METRICS = tuple(
    metric for metric in PROTOTYPE_METRICS if metric.path in ("/refine/iterations", "/refine/loss")
)
"""Of algorithms whose server trains by SGD."""
DISTILL_METRICS = (
    declare(
        "/round/loss_distill",
        "round",
        "f8",
        "distillation part: to the mean logits of the label; NaN: none",
        trained("distill", "sample mean"),
    ),
)
FEDUV_METRICS = (
    declare(
        "/round/loss_variance",
        "round",
        "f8",
        "variance part, FedUV: of the outputs over a batch",
        trained("variance", "sample mean"),
    ),
    declare(
        "/round/loss_uniformity",
        "round",
        "f8",
        "uniformity part, FedUV: of the features of a batch",
        trained("uniformity", "sample mean"),
    ),
)
FEDNH_METRICS = (declare("/round/scale", "round", "f8", "FedNH's s, the factor of cosines in logits"),)
GENERATED_METRICS = (
    declare(
        "/round/loss_generated",
        "round",
        "f8",
        "cross-entropy of the head on generated features; NaN: none",
        trained("generated", "sample mean"),
    ),
)
LEVEL_METRICS = (
    declare(
        "/round/loss_high",
        "round",
        "f8",
        "contrastive part of the features; NaN: none",
        trained("high", "sample mean"),
    ),
    declare(
        "/round/loss_low",
        "round",
        "f8",
        "contrastive part of the lower level of features; NaN: none",
        trained("low", "sample mean"),
    ),
    declare(
        "/round/loss_soft",
        "round",
        "f8",
        "distillation part: to the server's soft labels; NaN: none",
        trained("soft", "sample mean"),
    ),
)
MUTUAL_METRICS = (
    declare(
        "/round/loss_mutual",
        "round",
        "f8",
        "distillation part: from the auxiliary network to the client's",
        trained("mutual", "sample mean"),
    ),
    declare(
        "/round/loss_auxiliary",
        "round",
        "f8",
        "loss of the auxiliary network, mean over the participants' samples",
        trained("auxiliary", "sample mean"),
    ),
)
LOSS_FEATURES = declare(
    "/round/loss_features",
    "round",
    "f8",
    "feature part: squared distance to the mapped features of the auxiliary network",
    trained("features", "sample mean"),
)
BASELINE_METRICS = (
    ACCURACY_TRAINED,
    *DISTILL_METRICS,
    *FEDUV_METRICS,
    *FEDNH_METRICS,
    *GENERATED_METRICS,
    *LEVEL_METRICS,
    *MUTUAL_METRICS,
    LOSS_FEATURES,
)
"""The metrics of baselines that no prototype method has."""
