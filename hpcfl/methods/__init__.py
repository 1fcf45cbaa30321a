"""Prototype methods: aggregation, refinement, local loss and inference, as equations without MPI or files.

Names end in their shape: K classes, D features, M clients, B samples of a batch, N samples, P present
classes, R rows of a message. So `proto_KD` has a row per class and `z_BD` a feature vector per sample.

`catalogue`, `combinations`, `rules`, `spec` and `sparse` do not import torch.
"""
