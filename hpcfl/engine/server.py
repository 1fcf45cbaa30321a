"""What rank 0 alone does: from parcels to the next global prototypes, from reports to a row of the log."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from hpcfl.checkpoint.coordinator import CheckpointCoordinator
from hpcfl.comm.codec import ClientUpload, PrototypeCodec
from hpcfl.comm.communicator import Communicator, ControlFlags
from hpcfl.engine.round_metrics import MetricsCollector
from hpcfl.engine.stopwatch import Stopwatch
from hpcfl.federation.run_plan import RunPlan
from hpcfl.log.writer import LogWriter
from hpcfl.methods import sparse
from hpcfl.methods.aggregate import Upload
from hpcfl.methods.metrics import prototype_metrics
from hpcfl.methods.prototype_method import PrototypeMethod
from hpcfl.methods.prototypes import Prototypes
from hpcfl.runtime.deadline import Deadline
from hpcfl.runtime.scheduling import CostModel

Row = dict[str, Any]


class Server:
    """Keeps the round's row while it fills: selection and bytes first, accuracies last."""

    def __init__(
        self,
        fed: RunPlan,
        method: PrototypeMethod,
        wire: PrototypeCodec,
        log: LogWriter,
        cores: int,
        costs: CostModel,
        device: torch.device,
        keeper: CheckpointCoordinator,
        deadline: Deadline,
        show: Callable[[int, Mapping[str, Any]], None],
    ):
        self.fed, self.method, self.wire, self.log, self.cores = fed, method, wire, log, cores
        self.keeper, self.deadline, self.began = keeper, deadline, time.perf_counter()
        self.costs, self.device = costs, device
        self.show = show
        self.row: Row = {}
        self.saved: Row = {}
        self.diverged_M = np.zeros(len(fed.clients), dtype=bool)
        self.met_M = np.zeros(len(fed.clients), dtype=bool)
        self.tally = MetricsCollector(fed.class_counts_MK)
        self.best, self.best_M = (-1, -1.0), np.full(len(fed.clients), np.nan)
        self.status = "running"

    def open_row(self, t: int, participants: np.ndarray, shared: Prototypes) -> None:
        """Starts round t's row with who was selected and what they download.

        Settled prototypes are counted when they are settled (`refine`), and those of the seed never.
        """
        self.keeper.note(participants.tolist())
        self.began = time.perf_counter()
        selected_M = np.zeros(len(self.fed.clients), dtype=bool)
        selected_M[participants] = True
        present_K = shared.present_K.numpy()
        receivers = 0 if self.fed.recipe.fixed else int((selected_M & ~self.diverged_M).sum())
        self.row = {
            "/round/participants": selected_M,
            "/round/bytes_down": receivers * self.wire.bytes_of_rows(present_K),
            "/round/bytes_side": receivers * self.wire.bytes_of_bits if present_K.any() else 0,
            "/round/bytes_masks": self._masks(selected_M),
            "/round/weight": self.method.guide.weight(t) if self.fed.recipe.exchange else np.nan,
        }

    def refine(self, t: int, shared: Prototypes, parcels: list[ClientUpload]) -> Prototypes:
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
            "/round/bytes_up": sum(self.wire.bytes_of_rows(parcel.present_K) for parcel in senders),
            "/client/diverged": self.diverged_M.copy(),
            "/prototypes/present": new.present_K.numpy(),
            "/prototypes/stale": new.present_K.numpy() & ~np.asarray(fresh_K),
            "/refine/iterations": notes.iterations,
            "/refine/loss": notes.loss,
            "/refine/delta": notes.delta,
        } | {f"/prototypes/{name}": value for name, value in prototype_metrics(new).items()}
        self.row["/round/bytes_side"] += sum(self.wire.bytes_aside(parcel) for parcel in senders)
        if self.fed.recipe.fixed and senders:  # settled now, and sent to everybody once
            receivers = int((~self.diverged_M).sum())
            self.row["/round/bytes_down"] += receivers * self.wire.bytes_of_rows(new.present_K.numpy())
            self.row["/round/bytes_side"] += receivers * self.wire.bytes_of_bits
            self.row["/round/bytes_masks"] += self._masks(~self.diverged_M)
        self.saved = {
            "/prototypes/global": new.value_KD.numpy(),
            "/prototypes/saved_round": t,
            "/prototypes/local": self._local(senders),
            "/refine/distances": self._distances(notes.distances),
        }
        return new

    def _masks(self, to_M: np.ndarray) -> int:
        """Returns the bytes that tell the masks to those of these clients that do not know them yet."""
        new = int((to_M & ~self.met_M & ~self.diverged_M).sum())
        self.met_M |= to_M
        return new * sparse.bytes_of_masks(*self.fed.dims) if self.fed.recipe.sparsity else 0

    def verdict(self, t: int, word: ControlFlags) -> ControlFlags:
        """Returns the word of the next broadcast: go on, or stop."""
        if self.diverged_M.all() or self.status == "diverged":
            self.status = "diverged"
            return ControlFlags.STOP | ControlFlags.FAILED
        if t + 1 == self.fed.config.federation.rounds:
            self.status = "finished"
            return ControlFlags.STOP | ControlFlags.SAVE
        if ControlFlags.SIGNAL in word or self.deadline.passed(time.perf_counter() - self.began):
            self.status = "stopped"
            return ControlFlags.STOP | ControlFlags.SAVE | ControlFlags.EARLY
        return ControlFlags.SAVE if self.keeper.is_due() else ControlFlags.GO

    def close_row(self, t: int, bodies: list[np.ndarray], link: Communicator, watch: Stopwatch) -> None:
        """Completes round t's row with the ranks' reports and hands it to log and screen."""
        told = self.tally(bodies)
        self.costs.measure(told.row["/client/seconds"])
        self.row |= told.row | self._accuracies(told.right_M, told.evaluated)
        self.row |= self._best(t)
        total, parts = watch.lap()
        self.row |= {f"/round/seconds_{name}": seconds for name, seconds in parts.items()} | {
            "/round/seconds": total,
            "/round/cpu_seconds": told.cpu,
            "/round/efficiency": told.work / (min(len(link.workers), self.cores) * total),
            "/round/bytes_mpi": link.traffic.take_bytes(),
        }
        self.saved["/client/head_norms"] = self.tally.norm_MK.copy()
        saves = self.fed.config.saves_prototypes(t) or self.status in ("diverged", "finished")
        with watch.part("log"):
            self.log.append(self.row, self.saved if saves else {})
            self.show(t, self.row)
        self.row, self.saved = {}, {}
        with watch.part("log"):
            self.keeper.add(told.saved, self.log.write)

    def state(self, shared: Prototypes) -> dict[str, np.ndarray]:
        """Returns what rank 0 needs to go on after the row that was just closed: arrays by name."""
        own = {
            "prototypes": shared.value_KD.numpy(),
            "present": shared.present_K.numpy(),
            "diverged": self.diverged_M,
            "met": self.met_M,
            "norms": self.tally.norm_MK,
            "best": np.array(self.best, dtype=np.float64),
            "best_of_clients": self.best_M,
        }
        return own | {f"method.{name}": value.cpu().numpy() for name, value in self.method.state().items()}

    def load(self, state: Mapping[str, np.ndarray]) -> Prototypes:
        """Continues from a state; returns its global prototypes."""
        self.diverged_M[:], self.met_M[:] = state["diverged"], state["met"]
        self.tally.norm_MK[:], self.best_M[:] = state["norms"], state["best_of_clients"]
        self.best = int(state["best"][0]), float(state["best"][1])
        self.method.load_arrays(state)
        return Prototypes(torch.from_numpy(state["prototypes"]), torch.from_numpy(state["present"]))

    def summary(self) -> str:
        """Returns how the run went, in a line."""
        accuracy = np.array(self.log.rows["/round/accuracy"])
        seconds = float(np.sum(self.log.rows["/round/seconds"]))
        done = f"{len(accuracy)} rounds in {seconds:.1f} s"
        evaluated = np.flatnonzero(~np.isnan(accuracy))
        if not len(evaluated):
            return done
        last, best = int(evaluated[-1]), int(np.nanargmax(accuracy))
        when = "" if last == len(accuracy) - 1 else f" in round {last + 1}"
        return f"{done}; accuracy {accuracy[last]:.2%}{when}, best {accuracy[best]:.2%} in round {best + 1}"

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

    def _local(self, senders: list[ClientUpload]) -> np.ndarray:
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

    def _upload(self, parcel: ClientUpload) -> Upload:
        classes, features = self.fed.dims
        present_K = torch.from_numpy(parcel.present_K)
        value_KD = torch.zeros(classes, features)
        value_KD[present_K] = torch.from_numpy(parcel.value_RD.copy())
        count_K = torch.zeros(classes, dtype=torch.int64)
        if parcel.count_R.size:
            count_K[present_K] = torch.from_numpy(parcel.count_R.copy()).long()
        prototypes = Prototypes(value_KD, present_K).to(self.device)
        return Upload(prototypes, count_K.to(self.device), parcel.client)
