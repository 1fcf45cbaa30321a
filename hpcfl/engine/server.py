"""Rank 0's work: from uploads to the next download, from metrics to a row of the log."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hpcfl.checkpoint.coordinator import CheckpointCoordinator
from hpcfl.comm.communicator import ControlFlags
from hpcfl.engine.context import RunContext
from hpcfl.engine.round_metrics import RoundMetricsBuilder, Row
from hpcfl.engine.stopwatch import Stopwatch
from hpcfl.engine.virtual_clock import VirtualClock
from hpcfl.exchange.codec import ClientUpload
from hpcfl.exchange.payload import Payload
from hpcfl.exchange.payload_tensors import is_finite
from hpcfl.federation.participants import Selection
from hpcfl.log.writer import LogWriter
from hpcfl.runtime.deadline import Deadline
from hpcfl.runtime.devices import torch_threads
from hpcfl.utils.formatting import plural


class Server:
    """Aggregates uploads, and fills a round's row: selection and bytes first, accuracies last."""

    def __init__(
        self,
        ctx: RunContext,
        log: LogWriter,
        checkpoints: CheckpointCoordinator,
        deadline: Deadline,
        show_row: Callable[[int, Mapping[str, Any]], None],
        clock: VirtualClock | None = None,
    ):
        self.ctx, self.log, self.checkpoints, self.deadline = ctx, log, checkpoints, deadline
        self.plan, self.algorithm, self.show_row = ctx.plan, ctx.algorithm, show_row
        self.clock = clock
        clients = len(ctx.plan.clients)
        self.trained, self.bytes_down_M = np.zeros(0, dtype=np.int64), np.zeros(clients, dtype=np.int64)
        """Clients that train in this round, and what is downloaded at its start."""
        self._set_download(ctx.algorithm.initial())
        self.sent = b""
        """The digest of the last broadcast."""
        self.row: Row = {}
        self.saved: Row = {}
        self.diverged_M = np.zeros(clients, dtype=bool)
        self.metrics = RoundMetricsBuilder(ctx.plan, ctx.algorithm)
        self.best, self.best_M = (-1, -1.0), np.full(clients, np.nan)
        self.selected = -1, -1.0
        """The round of the best validation accuracy so far, and that accuracy."""
        self.status, self.round_started = "running", time.perf_counter()

    def _set_download(self, download: Payload) -> None:
        """Sets what the next broadcast sends."""
        self.message = self.ctx.download_codec.encode(download, self.ctx.costs.header_bytes)
        self.digest = hashlib.blake2b(self.encoded_download.data, digest_size=16).digest()

    @property
    def encoded_download(self) -> np.ndarray:
        return self.message[self.ctx.costs.header_bytes :]

    def pop_message(self) -> np.ndarray:
        """Returns the message to broadcast: a header, and the download unless all ranks have it already."""
        costs, is_new = self.ctx.costs, self.digest != self.sent
        self.sent = self.digest
        self.message[: costs.header_bytes].view(np.float64)[:] = [*costs.measured_A, is_new]
        return self.message if is_new else self.message[: costs.header_bytes]

    def open_row(self, t: int, selection: Selection, current: Payload) -> None:
        """Starts round t's row with who was selected and what is downloaded."""
        self.checkpoints.mark_changed(selection.trained.tolist())
        self.round_started, self.trained = time.perf_counter(), selection.trained
        selected_M = np.zeros(len(self.plan.clients), dtype=bool)
        selected_M[selection.participants] = True
        reachable_M = ~self.diverged_M | self.algorithm.recovers
        receiving_M = selected_M & reachable_M
        receivers = {
            "participants": receiving_M,
            "all": reachable_M,
            "once": np.zeros_like(reachable_M),  # counted in the round that made it
        }
        self.row = {"/round/participants": selected_M, "/round/bytes_down": 0, "/round/bytes_side": 0}
        self.bytes_down_M = self._count_download(current, receivers[self.algorithm.receivers])
        self.row |= self.algorithm.start_round(t, receiving_M)

    def _count_download(self, download: Payload, receivers_M: np.ndarray) -> np.ndarray:
        """Adds the bytes of a download to the row, and returns all that each client receives."""
        size, receivers = self.ctx.download_codec.nbytes(download), int(receivers_M.sum())
        self.row["/round/bytes_down"] += receivers * size.counted
        self.row["/round/bytes_side"] += receivers * size.side
        return receivers_M * np.int64(size.counted + size.side)

    def aggregate(self, t: int, current: Payload, uploads: list[ClientUpload]) -> None:
        """Makes the next download; a diverged client's upload never enters it."""
        if [upload.client for upload in uploads] != self.trained.tolist():
            raise RuntimeError(f"round {t + 1}: not every participant was trained exactly once")
        idle_M = self.diverged_M & ~np.bool_(self.algorithm.recovers)
        for upload in uploads:
            self.diverged_M[upload.client] = upload.diverged
        sent = uploads
        if self.clock:
            gone_M = self.diverged_M & ~np.bool_(self.algorithm.recovers)
            selected_M = self.row["/round/participants"]
            uploads, values = self.clock.close_round(t, selected_M, idle_M, gone_M, self.bytes_down_M, sent)
            self.row |= values
        uploads = [upload for upload in uploads if upload.payload]
        self.algorithm.drop_diverged(self.diverged_M.copy())
        runtime = self.plan.config.runtime
        with torch_threads(runtime.server_threads or runtime.threads):
            new = self.algorithm.aggregate(t, current, uploads)
        if not isinstance(new, Mapping):
            raise TypeError(f"{self.plan.spec.algorithm}: `aggregate` must return a payload, not {new!r}")
        if not is_finite(new):
            self.status, new = "diverged", current
        self._set_download(new)
        sizes = [self.ctx.upload_codec.nbytes(upload.payload) for upload in sent]
        self.row |= {
            "/round/uploads": len(uploads),
            "/round/bytes_up": sum(size.counted for size in sizes),
            "/client/diverged": self.diverged_M.copy(),
        }
        self.row["/round/bytes_side"] += sum(size.side for size in sizes)
        settled = self.algorithm.receivers == "once" and self.digest != self.sent
        receivers_M = ~self.diverged_M & settled
        received_M = self._count_download(new, receivers_M)
        if self.clock:
            self.clock.once_M = received_M
        self.row |= self.algorithm.round_values(t, new, uploads, receivers_M)
        self.saved = {"/prototypes/saved_round": t}

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
        comm, metrics = self.ctx.comm, self.metrics.build(t, messages, self.row)
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
        self._check_values()
        for path in [path for path in self.row if self.log.metrics[path].dims[0] == "saved"]:
            self.saved[path] = self.row.pop(path)
        saves = self.plan.config.saves_prototypes(t) or self.status in ("diverged", "finished")
        with stopwatch.part("log"):
            self.log.append(self.row, self.saved if saves else {}, metrics.chosen)
            self.show_row(t, self.row)
        self.row, self.saved = {}, {}
        with stopwatch.part("log"):
            self.checkpoints.add_saved(metrics.saved, self.log.write)

    def _check_values(self) -> None:
        """Raises ValueError if the algorithm's values are not those of the metrics that it declares."""
        grows = {path for path, metric in self.log.metrics.items() if metric.dims[0] in ("round", "saved")}
        given = self.row.keys() | self.saved.keys()
        for problem, paths in (("gives no", grows - given), ("does not declare the", given - grows)):
            if paths:
                raise ValueError(f"{self.plan.spec.algorithm} {problem} value {min(paths)}")

    def state(self) -> dict[str, np.ndarray]:
        """Returns the arrays that rank 0 needs to continue after the row that was just closed."""
        own = {
            "download": self.encoded_download,
            "diverged": self.diverged_M,
            "best": np.array(self.best, dtype=np.float64),
            "best_of_clients": self.best_M,
        }
        if self.plan.has_validation:
            own["selected"] = np.array(self.selected, dtype=np.float64)
        if self.clock:
            own |= {f"virtual.{name}": value for name, value in self.clock.state().items()}
        method = {f"method.{name}": value.cpu().numpy() for name, value in self.algorithm.state().items()}
        return (
            own | method | {f"latest.{name}": value for name, value in self.metrics.gatherer.latest.items()}
        )

    def load(self, state: Mapping[str, np.ndarray]) -> None:
        """Continues from a state; the algorithm has loaded its part already."""
        self.diverged_M[:] = state["diverged"]
        self.best_M[:] = state["best_of_clients"]
        for name, values in self.metrics.gatherer.latest.items():
            values[:] = state[f"latest.{name}"]
        if self.clock:
            start = "virtual."
            own = {name.removeprefix(start): value for name, value in state.items() if name.startswith(start)}
            self.clock.load(own)
        self.best = int(state["best"][0]), float(state["best"][1])
        if self.plan.has_validation:
            self.selected = int(state["selected"][0]), float(state["selected"][1])
        self._set_download(self.ctx.download_codec.decode(state["download"]))

    def summary(self) -> str:
        """Returns how the run went, in a line."""
        accuracy = np.array(self.log.rows["/round/accuracy"])
        seconds = float(np.sum(self.log.rows["/round/seconds"]))
        done = f"{plural(len(accuracy), 'round')} in {seconds:.1f} s"
        evaluated = np.flatnonzero(~np.isnan(accuracy))
        if not len(evaluated):
            return done
        last, best = int(evaluated[-1]), int(np.nanargmax(accuracy))
        when = "" if last == len(accuracy) - 1 else f" in round {last + 1}"
        line = f"{done}; accuracy {accuracy[last]:.2%}{when}, best {accuracy[best]:.2%} in round {best + 1}"
        if (chosen := self.selected[0]) < 0:
            return line
        return f"{line}; validation selects round {chosen + 1}: {accuracy[chosen]:.2%}"

    def _best(self, t: int) -> Row:
        """Returns the best round, each client's best accuracy, and the round that validation selects."""
        if self.row["/round/accuracy"] > self.best[1]:
            self.best = t, float(self.row["/round/accuracy"])
        self.best_M = np.fmax(self.best_M, self.row["/client/accuracy"])
        row = {"/round/best": self.best[0], "/client/best": self.best_M.copy()}
        if not self.plan.has_validation:
            return row
        if self.row["/round/validation_accuracy"] > self.selected[1]:
            self.selected = t, float(self.row["/round/validation_accuracy"])
        return row | {"/round/selected": self.selected[0]}
