"""The papers' mathematics: aggregate → refine → guide → infer, each part tested alone.

Names end in their shape: K classes, D features, M clients, B samples of a batch, N samples, R rows on the
wire. So `proto_KD` has a row per class and `z_BD` a feature vector per sample.

Only `catalogue` is imported before torch; nothing here touches MPI, files or the clock.
"""
