"""The catalogue entries of the prototype methods. Does not import torch."""

from __future__ import annotations

from hpcfl.methods.spec import PrototypeSpec

PROTONORM = "Lee et al., ProtoNorm (Prototype Alignment and Upscaling)"
FEDTGP = "Zhang et al., FedTGP, AAAI 2024"
FEDORGP = "FedORGP (Orthogonality Regularization on Global Prototypes)"
HPCFL = "hpcfl"
SPARSE = "Sparse prototypes (CPS, PPA, CPKD)"
FEDSAP = "FedSAP (Scheduled and Adaptive Prototypes)"

PROTOTYPE_METHODS = {
    "local": PrototypeSpec(
        about="no exchange: the floor every method is compared with",
        paper="–",
        page="local",
        exchange=False,
        infer="head",
    ),
    "fedproto": PrototypeSpec(
        about="means of class prototypes; clients align to them and compare with them",
        paper="Tan et al., FedProto, AAAI 2022; Eq. (2)-(6) in ProtoNorm's paper",
        page="fedproto",
        aggregate="mean",  # Eq. (3) weights by n_ij; published code takes the plain mean
        weight=10.0,  # with the mean over dimensions (mse), as HtFLlib runs it
        infer="global",  # Eq. (6) compares with local prototypes; published code with global ones
        # On the spiral n_ij ranges from 1 to hundreds within a class: the plain mean is dominated by clients
        # with a single sample and is worse than `local`, so Eq. (3)'s weights and a larger λ are used.
        on={"spiral": {"aggregate": "weighted", "weight": 30.0}},
    ),
    "protonorm": PrototypeSpec(
        about="means, moved apart on the sphere (Thomson problem), scaled by γ on the client",
        paper=PROTONORM,
        page="protonorm",
        aggregate="mean",  # Eq. (7)
        refine="thomson",  # Eq. (8)-(14)
        weight=10.0,  # as published code has it, with mse
        weights={"euclid": 1.0},  # the paper's λ, Sec. 5.1
        infer="global",  # Eq. (6) says local; published code compares with global ones
    ),
    "fedtgp": PrototypeSpec(
        about="prototypes that the server trains by contrastive learning with an adaptive margin",
        paper=FEDTGP,
        page="fedtgp",
        refine="tgp",  # Eq. (5)-(10)
        weight=10.0,  # the paper's λ = 0.1 belongs to euclid
        infer="global",
    ),
    "fedtgp-scl": PrototypeSpec(
        about="FedTGP's ablation: standard contrastive loss, no margin",
        paper=f"{FEDTGP}, Table 6",
        page="fedtgp",
        refine="tgp",
        options={"margin": "none"},  # Eq. (6)
    ),
    "fedtgp-fm": PrototypeSpec(
        about="FedTGP's ablation: the margin is always τ",
        paper=f"{FEDTGP}, Table 6",
        page="fedtgp",
        refine="tgp",
        options={"margin": "fixed"},  # Eq. (7)
    ),
    "fedtgp-without-f": PrototypeSpec(
        about="FedTGP's ablation: trainable vectors without the further network F",
        paper=f"{FEDTGP}, Table 6",
        page="fedtgp",
        refine="tgp",
        options={"server_network": False},
    ),
    "fedorgp": PrototypeSpec(
        about="prototypes that the server trains towards orthogonality; clients follow their direction",
        paper=FEDORGP,
        page="fedorgp",
        refine="orthogonal",  # Eq. (3)-(5)
        distance="cosine",  # Eq. (8)
        weight=100.0,  # λ_c
        infer="head",
    ),
    "fedorgp-without-or": PrototypeSpec(
        about="FedORGP's ablation: clients follow the direction of the weighted mean",
        paper=f"{FEDORGP}, Table 5",
        page="fedorgp",
        aggregate="weighted",
        distance="cosine",
        weight=100.0,
        infer="head",
    ),
    "fedproto-sparse": PrototypeSpec(
        about="FedProto with sparse rows, aggregation without class counts, alignment by class frequency",
        paper=SPARSE,
        page="sparse",
        aggregate="ppa",  # Eq. (10), (11)
        sparsity=0.1,  # Eq. (7), (8); s = d/10 and d/2 in Table 1
        class_weights="proportional",  # Eq. (12)
    ),
    "fedtgp-sparse": PrototypeSpec(
        about="FedTGP with the same three parts",
        paper=SPARSE,
        page="sparse",
        aggregate="ppa",
        refine="tgp",
        distance="euclid",  # with mse, whose gradient grows with the distance, lengths diverge
        weight=0.1,
        sparsity=0.1,
        class_weights="proportional",
    ),
    "fedsap": PrototypeSpec(
        about="FedProto with an alignment curriculum and prototypes as proxies of their classes",
        paper=FEDSAP,
        page="fedsap",
        weight=0.7,  # Eq. (7) with App. A: λ rises from 0 in round 20 to 0.7 in round 100
        curriculum="linear",
        proxy=1.0,  # Eq. (8), (9)
        infer="head",
    ),
    "fedsap-ssl": PrototypeSpec(
        about="FedSAP, followed by rounds that learn from unlabelled samples too",
        paper=FEDSAP,
        page="fedsap",
        weight=0.7,
        curriculum="linear",
        proxy=1.0,
        semi=100,  # Eq. (10)-(14), after 100 supervised rounds
        infer="head",
    ),
    "simplex": PrototypeSpec(
        about="the exact minimum of ProtoNorm's energy nearest to the round's means, by direction",
        paper=HPCFL,
        page="simplex",
        refine="simplex",
        distance="cosine",
        weight=100.0,
    ),
    "simplex-fixed": PrototypeSpec(
        about="control: a simplex drawn from the seed; nothing is ever exchanged",
        paper=HPCFL,
        page="simplex",
        refine="simplex",
        anchor="seed",
        distance="cosine",
        weight=100.0,
    ),
    "anchor": PrototypeSpec(
        about="every class owns its dimensions, chosen from the first round's means; then nothing travels",
        paper=HPCFL,
        page="anchor",
        refine="nonnegative",
        anchor="first",
        distance="cosine",
        weight=100.0,
        infer="head",
    ),
    "anchor-fixed": PrototypeSpec(
        about="control: the same, with dimensions drawn from the seed; nothing is ever exchanged",
        paper=HPCFL,
        page="anchor",
        refine="nonnegative",
        anchor="seed",
        distance="cosine",
        weight=100.0,
        infer="head",
    ),
}
