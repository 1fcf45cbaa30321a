"""Values of the log that prototype methods compute on rank 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hpcfl.algorithms.algorithm import Values
from hpcfl.methods.prototypes import Prototypes


def uploaded_MKD(uploads: Mapping[int, Prototypes], clients: int, dims: tuple[int, int]) -> np.ndarray:
    """Returns the uploads by client, NaN where there is none; empty for 0 clients, if they are not logged."""
    local_MKD = np.full((clients, *dims), np.nan, dtype=np.float32)
    for client, rows in uploads.items() if clients else ():
        local_MKD[client, rows.present_K.numpy()] = rows.value_KD[rows.present_K].numpy()
    return local_MKD


def distance_table(trace: Sequence[tuple[float, float, float]], length: int) -> np.ndarray:
    """Returns the solver's distances by iteration, NaN after its end."""
    table = np.full((length, 3), np.nan)
    if trace:
        table[: len(trace)] = trace
    return table


def derived_values(row: Values) -> Values:
    """Returns the accuracy of pseudo-labels and normalised margins, also of both parties together."""
    margin_K, accepted_M = row["/prototypes/margin_clients"], row["/client/accepted"]
    correct_M = np.rint(np.nan_to_num(row["/client/pseudo_accuracy"]) * accepted_M)
    margin_K2 = np.stack([np.asarray(row["/prototypes/margin"]), margin_K], axis=1)
    return {
        "/round/pseudo_accuracy": correct_M.sum() / (accepted_M.sum() or np.nan),
        "/prototypes/margin_clients_normalised": margin_K / (np.fmax.reduce(margin_K) or np.nan),
        "/prototypes/margin_common": margin_K2 / (np.fmax.reduce(margin_K2, axis=None) or np.nan),
    }
