"""Rank 0's work: from uploads to the next global prototypes, from metrics to a row of the log."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from hpcfl.checkpoint.coordinator import CheckpointCoordinator
from hpcfl.comm.codec import ClientUpload
from hpcfl.comm.communicator import ControlFlags
from hpcfl.engine.context import RunContext
from hpcfl.engine.round_metrics import RoundMetricsBuilder, Row
from hpcfl.engine.stopwatch import Stopwatch
from hpcfl.log.writer import LogWriter
from hpcfl.methods import sparse
from hpcfl.methods.aggregate import Upload
from hpcfl.methods.metrics import prototype_metrics
from hpcfl.methods.prototypes import Prototypes
from hpcfl.runtime.deadline import Deadline


class Server:
    """Aggregates uploads, and fills a round's row: selection and bytes first, accuracies last."""

    def __init__(
        self,
        ctx: RunContext,
        log: LogWriter,
        checkpoints: CheckpointCoordinator,
        deadline: Deadline,
        show_row: Callable[[int, Mapping[str, Any]], None],
    ):
        self.ctx, self.log, self.checkpoints, self.deadline = ctx, log, checkpoints, deadline
        self.plan, self.method, self.codec, self.show_row = ctx.plan, ctx.method, ctx.codec, show_row
        clients = len(ctx.plan.clients)
        self.download = ctx.method.initial()
        """The global prototypes of the next broadcast."""
        self.row: Row = {}
        self.saved: Row = {}
        self.diverged_M = np.zeros(clients, dtype=bool)
        self.has_masks_M = np.zeros(clients, dtype=bool)
        self.metrics = RoundMetricsBuilder(ctx.plan)
        self.best, self.best_M = (-1, -1.0), np.full(clients, np.nan)
        self.status, self.round_started = "running", time.perf_counter()

    def open_row(self, t: int, participants: np.ndarray, current: Prototypes) -> None:
        """Starts round t's row with who was selected and what they download.

        Fixed prototypes are counted when they are fixed (`aggregate`), and those of the seed never.
        """
        self.checkpoints.mark_changed(participants.tolist())
        self.round_started = time.perf_counter()
        selected_M = np.zeros(len(self.plan.clients), dtype=bool)
        selected_M[participants] = True
        present_K = current.present_K.numpy()
        receivers = 0 if self.plan.spec.fixed else int((selected_M & ~self.diverged_M).sum())
        self.row = {
            "/round/participants": selected_M,
            "/round/bytes_down": receivers * self.codec.bytes_of_rows(present_K),
            "/round/bytes_side": receivers * self.codec.bytes_of_bitmap if present_K.any() else 0,
            "/round/bytes_masks": self._masks(selected_M),
            "/round/weight": self.method.local_loss.weight(t) if self.plan.spec.exchange else np.nan,
        }

    def aggregate(self, t: int, current: Prototypes, uploads: list[ClientUpload]) -> None:
        """Makes the next global prototypes; a diverged client's rows never enter them."""
        expected = np.flatnonzero(self.row["/round/participants"]).tolist()
        if [upload.client for upload in uploads] != expected:
            raise RuntimeError(f"round {t + 1}: not every participant was trained exactly once")
        uploaders = [upload for upload in uploads if upload.present_K.any()]
        for upload in uploads:
            self.diverged_M[upload.client] |= upload.diverged
        decoded = [self._decoded(upload) for upload in uploaders]
        new = self.method.update_global(t, current.to(self.ctx.device), decoded).to(torch.device("cpu"))
        if not new.finite:
            self.status, new = "diverged", current
        stats = self.method.refine.stats
        fresh_K = np.any([upload.present_K for upload in uploaders], axis=0) if uploaders else False
        self.row |= {
            "/round/uploads": len(uploaders),
            "/round/bytes_up": sum(self.codec.bytes_of_rows(upload.present_K) for upload in uploaders),
            "/client/diverged": self.diverged_M.copy(),
            "/prototypes/present": new.present_K.numpy(),
            "/prototypes/stale": new.present_K.numpy() & ~np.asarray(fresh_K),
            "/refine/iterations": stats.iterations,
            "/refine/loss": stats.loss,
            "/refine/delta": stats.delta,
        } | {f"/prototypes/{name}": value for name, value in prototype_metrics(new).items()}
        self.row["/round/bytes_side"] += sum(self.codec.side_bytes(upload) for upload in uploaders)
        if self.plan.spec.fixed and uploaders:  # settled now, and sent to everybody once
            receivers = int((~self.diverged_M).sum())
            self.row["/round/bytes_down"] += receivers * self.codec.bytes_of_rows(new.present_K.numpy())
            self.row["/round/bytes_side"] += receivers * self.codec.bytes_of_bitmap
            self.row["/round/bytes_masks"] += self._masks(~self.diverged_M)
        self.saved = {
            "/prototypes/global": new.value_KD.numpy(),
            "/prototypes/saved_round": t,
            "/prototypes/local": self._local_prototypes(uploaders),
            "/refine/distances": self._distances(stats.distances),
        }
        self.download = new

    def _masks(self, to_M: np.ndarray) -> int:
        """Returns the bytes that send the masks to those of these clients that do not have them yet."""
        new = int((to_M & ~self.has_masks_M & ~self.diverged_M).sum())
        self.has_masks_M |= to_M
        return new * sparse.bytes_of_masks(*self.plan.dims) if self.plan.spec.sparsity else 0

    def next_flags(self, t: int, flags: ControlFlags) -> ControlFlags:
        """Returns the control flags of the next broadcast: go on, or stop."""
        if self.diverged_M.all() or self.status == "diverged":
            self.status = "diverged"
            return ControlFlags.STOP | ControlFlags.FAILED
        if t + 1 == self.plan.config.federation.rounds:
            self.status = "finished"
            return ControlFlags.STOP | ControlFlags.SAVE
        seconds = time.perf_counter() - self.round_started
        if ControlFlags.SIGNAL in flags or self.deadline.too_late_for_next(seconds):
            self.status = "stopped"
            return ControlFlags.STOP | ControlFlags.SAVE | ControlFlags.EARLY
        return ControlFlags.SAVE if self.checkpoints.is_due() else ControlFlags.GO

    def close_row(self, t: int, messages: list[np.ndarray], stopwatch: Stopwatch) -> None:
        """Completes round t's row with the reports of all ranks, and logs and shows it."""
        comm, metrics = self.ctx.comm, self.metrics.build(messages)
        self.ctx.costs.measure(metrics.row["/client/seconds"])
        self.row |= metrics.row
        self.row |= self._best(t)
        total, parts = stopwatch.lap()
        self.row |= {f"/round/seconds_{name}": seconds for name, seconds in parts.items()} | {
            "/round/seconds": total,
            "/round/cpu_seconds": metrics.cpu.total,
            "/round/efficiency": metrics.cpu.on_clients / (min(len(comm.workers), self.ctx.cores) * total),
            "/round/bytes_mpi": comm.traffic.pop_bytes(),
        }
        for path in [path for path in metrics.row if self.log.metrics[path].dims[0] == "saved"]:
            self.saved[path] = self.row.pop(path)
        saves = self.plan.config.saves_prototypes(t) or self.status in ("diverged", "finished")
        with stopwatch.part("log"):
            self.log.append(self.row, self.saved if saves else {})
            self.show_row(t, self.row)
        self.row, self.saved = {}, {}
        with stopwatch.part("log"):
            self.checkpoints.add_saved(metrics.saved, self.log.write)

    def state(self, current: Prototypes) -> dict[str, np.ndarray]:
        """Returns the arrays that rank 0 needs to continue after the row that was just closed."""
        own = {
            "prototypes": current.value_KD.numpy(),
            "present": current.present_K.numpy(),
            "diverged": self.diverged_M,
            "met": self.has_masks_M,
            "best": np.array(self.best, dtype=np.float64),
            "best_of_clients": self.best_M,
        }
        method = {f"method.{name}": value.cpu().numpy() for name, value in self.method.state().items()}
        return (
            own | method | {f"latest.{name}": value for name, value in self.metrics.gatherer.latest.items()}
        )

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Continues from a state."""
        self.diverged_M[:], self.has_masks_M[:] = state["diverged"], state["met"]
        self.best_M[:] = state["best_of_clients"]
        for name, values in self.metrics.gatherer.latest.items():
            values[:] = state[f"latest.{name}"]
        self.best = int(state["best"][0]), float(state["best"][1])
        self.method.load_arrays(state)
        value_KD, present_K = (torch.from_numpy(state[name]) for name in ("prototypes", "present"))
        self.download = Prototypes(value_KD, present_K)

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

    def _best(self, t: int) -> Row:
        """Returns the best round and every client's best accuracy, up to now."""
        if self.row["/round/accuracy"] > self.best[1]:
            self.best = t, float(self.row["/round/accuracy"])
        self.best_M = np.fmax(self.best_M, self.row["/client/accuracy"])
        return {"/round/best": self.best[0], "/client/best": self.best_M.copy()}

    def _local_prototypes(self, uploaders: list[ClientUpload]) -> np.ndarray:
        """Returns the uploads by client, NaN where there is none; empty unless asked for."""
        asked = self.plan.config.log.local_prototypes
        local = np.full((len(self.plan.clients) if asked else 0, *self.plan.dims), np.nan, dtype=np.float32)
        for upload in uploaders if asked else ():
            local[upload.client, upload.present_K] = upload.value_RD
        return local

    def _distances(self, trace: list[tuple[float, float, float]]) -> np.ndarray:
        """Returns the solver's distances by iteration, NaN after its end; empty unless asked for."""
        table = np.full((self.log.sizes["iteration"], 3), np.nan)
        if trace:
            table[: len(trace)] = trace
        return table

    def _decoded(self, upload: ClientUpload) -> Upload:
        """Returns an upload as tensors with a row for every class."""
        classes, features = self.plan.dims
        present_K = torch.from_numpy(upload.present_K)
        value_KD = torch.zeros(classes, features)
        value_KD[present_K] = torch.from_numpy(upload.value_RD.copy())
        count_K = torch.zeros(classes, dtype=torch.int64)
        if upload.count_R.size:
            count_K[present_K] = torch.from_numpy(upload.count_R.copy()).long()
        prototypes = Prototypes(value_KD, present_K).to(self.ctx.device)
        return Upload(prototypes, count_K.to(self.ctx.device), upload.client)
