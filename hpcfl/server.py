"""What rank 0 alone does: from parcels to the next global prototypes, from reports to a row of the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from hpcfl.comm.link import Link, Word
from hpcfl.comm.report import unpack
from hpcfl.comm.wire import Parcel, Wire
from hpcfl.federation import Federation
from hpcfl.log.writer import Log
from hpcfl.methods.aggregate import Upload
from hpcfl.methods.measures import measures
from hpcfl.methods.method import Method
from hpcfl.methods.prototypes import Prototypes
from hpcfl.schedule import Costs
from hpcfl.stopwatch import Stopwatch

Row = dict[str, Any]


class Server:
    """Keeps the round's row while it fills: selection and bytes first, accuracies last."""

    def __init__(
        self,
        fed: Federation,
        method: Method,
        wire: Wire,
        log: Log,
        cores: int,
        costs: Costs,
        device: torch.device,
        show: Callable[[int, Mapping[str, Any]], None],
    ):
        self.fed, self.method, self.wire, self.log, self.cores = fed, method, wire, log, cores
        self.costs, self.device = costs, device
        self.show = show
        self.row: Row = {}
        self.saved: Row = {}
        self.diverged_M = np.zeros(len(fed.clients), dtype=bool)
        self.best, self.best_M = (-1, -1.0), np.full(len(fed.clients), np.nan)
        self.status = "running"

    def open_row(self, participants: np.ndarray, shared: Prototypes) -> None:
        """Starts round t's row with who was selected and what they download.

        Settled prototypes are counted when they are settled (`refine`), and those of the seed never.
        """
        selected_M = np.zeros(len(self.fed.clients), dtype=bool)
        selected_M[participants] = True
        rows = int(shared.present_K.sum())
        receivers = 0 if self.fed.recipe.fixed else int((selected_M & ~self.diverged_M).sum())
        self.row = {
            "/round/participants": selected_M,
            "/round/bytes_down": receivers * self.wire.bytes_of_rows(rows),
            "/round/bytes_side": receivers * self.wire.bytes_of_bits if rows else 0,
        }

    def refine(self, t: int, shared: Prototypes, parcels: list[Parcel]) -> Prototypes:
        """Returns the next global prototypes; a diverged client's rows never enter them."""
        expected = np.flatnonzero(self.row["/round/participants"]).tolist()
        if [parcel.client for parcel in parcels] != expected:
            raise RuntimeError(f"round {t + 1}: not every participant was trained exactly once")
        senders = [parcel for parcel in parcels if parcel.present_K.any()]
        for parcel in parcels:
            self.diverged_M[parcel.client] |= parcel.diverged
        uploads = [self._upload(parcel) for parcel in senders]
        new = self.method.serve(t, shared.to(self.device), uploads).to(torch.device("cpu"))
        if not new.finite:
            self.status, new = "diverged", shared
        notes = self.method.refine.notes
        fresh_K = np.any([parcel.present_K for parcel in senders], axis=0) if senders else False
        self.row |= {
            "/round/uploads": len(senders),
            "/round/bytes_up": sum(self.wire.bytes_of_rows(len(parcel.value_RD)) for parcel in senders),
            "/client/diverged": self.diverged_M.copy(),
            "/prototypes/present": new.present_K.numpy(),
            "/prototypes/stale": new.present_K.numpy() & ~np.asarray(fresh_K),
            "/refine/iterations": notes.iterations,
            "/refine/loss": notes.loss,
            "/refine/delta": notes.delta,
        } | {f"/prototypes/{name}": value for name, value in measures(new).items()}
        self.row["/round/bytes_side"] += sum(self.wire.bytes_aside(parcel) for parcel in senders)
        if self.fed.recipe.fixed and senders:  # settled now, and sent to everybody once
            receivers = int((~self.diverged_M).sum())
            self.row["/round/bytes_down"] += receivers * self.wire.bytes_of_rows(self.fed.dims[0])
            self.row["/round/bytes_side"] += receivers * self.wire.bytes_of_bits
        self.saved = {
            "/prototypes/global": new.value_KD.numpy(),
            "/prototypes/saved_round": t,
            "/prototypes/local": self._local(senders),
            "/refine/distances": self._distances(notes.distances),
        }
        return new

    def verdict(self, t: int, word: Word) -> Word:
        """Returns the word of the next broadcast: go on, or stop."""
        if self.diverged_M.all() or self.status == "diverged":
            self.status = "diverged"
            return Word.STOP | Word.FAILED
        if t + 1 == self.fed.config.federation.rounds:
            self.status = "finished"
            return Word.STOP
        if Word.SIGNAL in word:
            self.status = "stopped"
            return Word.STOP | Word.FAILED
        return Word.GO

    def close_row(self, t: int, bodies: list[np.ndarray], link: Link, watch: Stopwatch) -> None:
        """Completes round t's row with the ranks' reports and hands it to log and screen."""
        work, cpu = 0.0, 0.0
        clients = len(self.fed.clients)
        loss_M, seconds_M = np.full(clients, np.nan), np.full(clients, np.nan)
        rank_M = np.full(clients, -1)
        right_M = {name: np.full(clients, np.nan) for name in ("head", "global", "local")}
        margin_K = np.full(self.fed.dims[0], np.nan)
        evaluated = False
        for rank, body in enumerate(bodies):
            effort, records = unpack(body, self.fed.dims[0])
            work, cpu = work + effort.work, cpu + effort.all
            trained = records[records["trained"]]
            loss_M[trained["client"]] = trained["loss"]
            seconds_M[trained["client"]] = trained["seconds"]
            rank_M[trained["client"]] = rank
            margin_K = np.fmax.reduce([margin_K, *trained["margin"]])
            looked = records[records["evaluated"]]
            evaluated |= len(looked) > 0
            for name, right in right_M.items():
                known = looked[looked[name] >= 0]
                right[known["client"]] = known[name]
        self.costs.measure(seconds_M)
        self.row |= self._accuracies(right_M, evaluated) | {
            "/round/loss": self._mean_loss(loss_M),
            "/client/loss": loss_M,
            "/client/seconds": seconds_M,
            "/client/rank": rank_M,
            "/prototypes/margin_clients": margin_K,
            "/prototypes/margin_clients_normalised": margin_K / (np.fmax.reduce(margin_K) or np.nan),
        }
        self.row |= self._best(t)
        total, parts = watch.lap()
        self.row |= {f"/round/seconds_{name}": seconds for name, seconds in parts.items()} | {
            "/round/seconds": total,
            "/round/cpu_seconds": cpu,
            "/round/efficiency": work / (min(len(link.workers), self.cores) * total),
            "/round/bytes_mpi": link.traffic.take_bytes(),
        }
        saves = self.fed.config.saves_prototypes(t) or self.status != "running"
        with watch.part("log"):
            self.log.append(self.row, self.saved if saves else {})
            self.show(t, self.row)
        self.row, self.saved = {}, {}

    def summary(self) -> str:
        """Returns how the run went, in a line."""
        accuracy = np.array(self.log.rows["/round/accuracy"])
        seconds = float(np.sum(self.log.rows["/round/seconds"]))
        best = int(np.nanargmax(accuracy))
        return (
            f"{len(accuracy)} rounds in {seconds:.1f} s; accuracy {accuracy[-1]:.2%}, "
            f"best {accuracy[best]:.2%} in round {best + 1}"
        )

    def _accuracies(self, right_M: dict[str, np.ndarray], evaluated: bool) -> Row:
        tests_M = np.array([len(client.test) for client in self.fed.clients])
        own_M = right_M[self.fed.recipe.infer]
        accuracy_M = np.nan_to_num(own_M) / tests_M if evaluated else own_M
        return {
            "/round/accuracy": np.nansum(own_M) / tests_M.sum() if evaluated else np.nan,
            "/round/accuracy_mean": accuracy_M.mean(),
            "/client/accuracy": accuracy_M,
        } | {f"/client/accuracy_{name}": right / tests_M for name, right in right_M.items()}

    def _best(self, t: int) -> Row:
        """Returns the best round and every client's best accuracy, up to now."""
        if self.row["/round/accuracy"] > self.best[1]:
            self.best = t, float(self.row["/round/accuracy"])
        self.best_M = np.fmax(self.best_M, self.row["/client/accuracy"])
        return {"/round/best": self.best[0], "/client/best": self.best_M.copy()}

    def _local(self, senders: list[Parcel]) -> np.ndarray:
        """Returns the uploads by client, NaN where there is none; empty unless asked for."""
        asked = self.fed.config.log.local_prototypes
        local = np.full((len(self.fed.clients) if asked else 0, *self.fed.dims), np.nan, dtype=np.float32)
        for parcel in senders if asked else ():
            local[parcel.client, parcel.present_K] = parcel.value_RD
        return local

    def _distances(self, kept: list[tuple[float, float, float]]) -> np.ndarray:
        """Returns the solver's distances by iteration, NaN after its end; empty unless asked for."""
        trace = np.full((self.log.sizes["iteration"], 3), np.nan)
        if kept:
            trace[: len(kept)] = kept
        return trace

    def _mean_loss(self, loss_M: np.ndarray) -> float:
        trained_M = np.isfinite(loss_M)
        samples_M = self.fed.class_counts_MK.sum(1)
        weight = samples_M[trained_M].sum()
        return float((loss_M * samples_M)[trained_M].sum() / weight) if weight else float("nan")

    def _upload(self, parcel: Parcel) -> Upload:
        classes, features = self.fed.dims
        present_K = torch.from_numpy(parcel.present_K)
        value_KD = torch.zeros(classes, features)
        value_KD[present_K] = torch.from_numpy(parcel.value_RD.copy())
        count_K = torch.zeros(classes, dtype=torch.int64)
        if parcel.count_R.size:
            count_K[present_K] = torch.from_numpy(parcel.count_R.copy()).long()
        return Upload(Prototypes(value_KD, present_K).to(self.device), count_K.to(self.device))
