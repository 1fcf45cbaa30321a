"""What each client sent and received in a round, from what a log has of all together."""

from __future__ import annotations

import numpy as np
import torch

from hpcfl.algorithms.algorithm import Algorithm
from hpcfl.exchange.codec import Codec
from hpcfl.exchange.payload import Bytes, ClassRows, Payload, Rows, Shaped
from hpcfl.log.reader import Run


def declared_bytes(codec: Codec, present_K: np.ndarray) -> Bytes:
    """Returns the bytes of a whole payload in which these classes are present, as far as they are fixed."""
    nothing, present = torch.empty(0), torch.from_numpy(present_K)
    payload: Payload = {
        name: ClassRows(nothing, present) if isinstance(array, Rows) else nothing
        for name, array in codec.arrays.items()
    }
    return codec.nbytes(payload)


class LoggedBytes:
    """Shares out the bytes that the log has of each round.

    That is exact where declared sizes add up to what was logged. Else (factors whose rank changes, what is
    sent only once) all shares are scaled alike: `exact` is False from then on.
    """

    def __init__(self, run: Run, algorithm: Algorithm):
        self.run, self.algorithm, self.exact = run, algorithm, True
        counts_MK = run["/clients/class_counts"]
        self.download = Codec(algorithm.download_arrays())
        upload = Codec(algorithm.upload_arrays())
        sizes = [declared_bytes(upload, count_K > 0) for count_K in counts_MK]
        varies = any(isinstance(array, Shaped) for array in upload.arrays.values())
        self.up_M = np.array([1 if varies else size.counted for size in sizes])
        self.side_M = np.array([size.side for size in sizes])
        self.classes = counts_MK.shape[1]

    def of_round(self, t: int, sends_M: np.ndarray, receives_M: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the bytes that each client receives and sends in round t, with those beside payloads."""
        run = self.run
        counted = {name: int(run[f"/round/bytes_{name}"][t]) for name in ("up", "down")}
        if not counted["up"]:
            sends_M = np.zeros_like(sends_M)
        if not counted["down"]:
            receives_M = np.zeros_like(receives_M)
        up_M = self._share(counted["up"], self.up_M * sends_M)
        down_M = self._share(counted["down"], receives_M * (counted["down"] // max(1, receives_M.sum())))
        side_down = declared_bytes(self.download, self._present_K(t)).side
        sides = np.concatenate([self.side_M * sends_M, side_down * receives_M])
        side_up_M, side_down_M = np.split(self._share(int(run["/round/bytes_side"][t]), sides), 2)
        return down_M + side_down_M, up_M + side_up_M

    def _present_K(self, t: int) -> np.ndarray:
        """Returns the classes of the download of round t, or of the one that it made if that travels once."""
        row = t if self.algorithm.receivers == "once" else t - 1
        if row < 0 or "/prototypes/present" not in self.run.datasets:
            return np.ones(self.classes, dtype=bool)
        present_K: np.ndarray = self.run["/prototypes/present"][row]
        return present_K

    def _share(self, total: int, parts: np.ndarray) -> np.ndarray:
        """Returns parts that add up to a total: the given ones if they do, else scaled ones."""
        if parts.sum() == total:
            return parts.astype(np.int64)
        self.exact = False
        if not parts.any():
            return np.zeros(len(parts), dtype=np.int64)
        return np.rint(parts * (total / parts.sum())).astype(np.int64)
