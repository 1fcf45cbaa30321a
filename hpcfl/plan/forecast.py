"""Forecast of a run's memory, traffic, work and placement, without running it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from hpcfl.algorithms.algorithm import BACKWARD, Algorithm
from hpcfl.algorithms.build import build_algorithm
from hpcfl.federation.participants import select_round
from hpcfl.federation.run_plan import RunPlan
from hpcfl.log.size import expected_log_memory
from hpcfl.models.costs import Cost
from hpcfl.plan.machine import Machine
from hpcfl.plan.memory import MemoryEstimate, Messages
from hpcfl.plan.timing import Timing
from hpcfl.plan.trained_networks import TrainedNetworks
from hpcfl.runtime.devices import device_for
from hpcfl.runtime.scheduling import Pool, assign_clients, makespan, pools
from hpcfl.training.client_layout import ClientLayouts

SAMPLED_ROUNDS = 20
"""First rounds over which means are taken; their participants are known in advance."""


@dataclass
class Forecast:
    """The forecast of a run on a machine."""

    plan: RunPlan
    costs: Mapping[str, Cost]
    machine: Machine
    program_bytes: tuple[int, int]
    """Bytes of a rank that has only imported the program: private, and shared by the ranks of a node."""
    timing: Timing | None = None
    """Seconds measured on this machine, if they were."""

    def __post_init__(self) -> None:
        runtime, machine = self.plan.config.runtime, self.machine
        self.workers = range(1, machine.ranks) if machine.ranks > 1 else range(1)
        node_of = [machine.node(rank) for rank in range(machine.ranks)]
        kind = machine.kind if runtime.device == "auto" else runtime.device
        self.locations = locations = [
            (node, device_for(runtime.device, rank - node_of.index(node), kind, machine.devices))
            for rank, node in enumerate(node_of)
        ]
        pinned = runtime.placement == "pinned" or runtime.arena == "private"
        self.pools: list[Pool] = pools(locations, self.workers, pinned)
        self.device_of = [locations[pool.ranks[0]][1] for pool in self.pools]
        self.work_M = np.array([float(self.trained.flops(c.id)) * len(c.train) for c in self.plan.clients])
        self.pool_of = assign_clients(self.work_M.tolist(), self.pools)

    def _cost(self, client: int) -> Cost:
        return self.costs[self.plan.clients[client].architecture]

    @cached_property
    def trained(self) -> TrainedNetworks:
        return TrainedNetworks(self.plan, self.algorithm, self.costs)

    def clients_of(self, pool: int) -> list[int]:
        return [i for i, number in enumerate(self.pool_of) if number == pool]

    # --- work

    @cached_property
    def participants(self) -> list[np.ndarray]:
        rounds = min(SAMPLED_ROUNDS, self.plan.config.federation.rounds)
        selected = [select_round(self.plan, t).participants for t in range(rounds)]
        return [each for each in selected if len(each)] or [np.arange(len(self.plan.clients))]

    @property
    def passes(self) -> int:
        """Work on a training sample in a round, in forward passes."""
        return self.plan.config.train.epochs * (1 + BACKWARD) + self.algorithm.passes_after_training

    @property
    def flops(self) -> tuple[float, float]:
        """Mean FLOPs per round: training with the passes after it, and evaluation of changed clients.

        A download that changes the network evaluates all clients once more, and log.train_accuracy all of
        them on their training samples.
        """
        tests_M = self.plan.evaluated_M * np.array(
            [float(self._cost(c.id).flops) * (len(c.test) + len(c.validation)) for c in self.plan.clients]
        )
        every_time = self.work_M[self.plan.evaluated_M].sum() if self.plan.config.log.train_accuracy else 0.0
        if self.algorithm.download_changes == "network":
            every_time += tests_M.sum()
        train, evaluate, changed = 0.0, 0.0, set(range(len(tests_M)))
        for t, selected in enumerate(self.participants):
            train += self.work_M[selected].sum() * self.passes
            changed |= set(selected.tolist())
            if self.plan.config.evaluates(t):
                evaluate += tests_M[sorted(changed)].sum() + every_time
                changed.clear()
        return train / len(self.participants), evaluate / len(self.participants)

    @cached_property
    def algorithm(self) -> Algorithm:
        return build_algorithm(self.plan, torch.device("cpu"))

    @property
    def bytes(self) -> tuple[float, float]:
        """Mean bytes up and down in a round after the first, as the papers count."""
        return self.messages.counted

    def schedule(self, cost_M: np.ndarray) -> tuple[float, float]:
        """Returns the mean length of a round and its mean imbalance (1: perfectly balanced).

        A pool ends with its last client, a node not before its cores have done all its work.
        """
        slots = sum(self._slots(node) for node in range(self.machine.nodes))
        lengths, ratios = [], []
        for selected in self.participants:
            length, load = 0.0, [0.0] * self.machine.nodes
            for number, pool in enumerate(self.pools):
                costs = [float(cost_M[i]) for i in selected if self.pool_of[i] == number]
                at_once = min(len(pool.ranks), self._slots(pool.node)) if self.on_cpu(number) else 1
                length = max(length, makespan(costs, at_once))
                load[pool.node] += sum(costs)
            if not self.machine.devices:
                length = max(length, *(load[node] / self._slots(node) for node in range(self.machine.nodes)))
            lengths.append(length)
            ratios.append(length * slots / cost_M[selected].sum())
        return float(np.mean(lengths)), float(np.mean(ratios))

    def on_cpu(self, pool: int) -> bool:
        """Returns whether a pool has no GPU."""
        return self.device_of[pool] == "cpu"

    def _slots(self, node: int) -> int:
        """Returns how many clients of a node train at a time; ranks that share a GPU count as one."""
        pools_of_node = [number for number, pool in enumerate(self.pools) if pool.node == node]
        if not all(map(self.on_cpu, pools_of_node)):
            return len({self.device_of[number] for number in pools_of_node})
        ranks = sum(len(self.pools[number].ranks) for number in pools_of_node)
        return max(1, min(ranks, self.machine.cores // self.plan.config.runtime.threads))

    @property
    def imbalance(self) -> float:
        """Length of a round ÷ its length if all work were spread evenly."""
        return self.schedule(self.work_M)[1]

    @property
    def round_seconds(self) -> float | None:
        """Expected seconds of a round's training and passes after it, if times were measured."""
        return self._seconds("train", self.passes)

    @property
    def evaluation_seconds(self) -> float | None:
        """Expected seconds of the evaluation of a round's participants, if times were measured."""
        return self._seconds("test", 1)

    def _seconds(self, part: str, passes: int) -> float | None:
        """Returns the seconds of so many forward passes over a part of each participant's samples."""
        if self.timing is None:
            return None
        training_M = [self.timing.training(self.trained.names(c.id)) for c in self.plan.clients]
        samples_M = [len(getattr(c, part)) for c in self.plan.clients]
        return self.schedule(np.array(training_M) * samples_M * passes / (1 + BACKWARD))[0]

    # --- memory

    @cached_property
    def layouts(self) -> ClientLayouts:
        return ClientLayouts(self.plan, self.algorithm)

    @cached_property
    def messages(self) -> Messages:
        return Messages(self.plan, self.algorithm, self.participants)

    def rank_memory(self, pool: int) -> MemoryEstimate:
        """Memory of a rank while it trains the largest client of its pool; with a GPU, the host's part."""
        clients, ranks = self.clients_of(pool), len(self.pools[pool].ranks)
        messages = self.messages.workers(clients, ranks) // ranks
        parts = {"program": self.program_bytes[0], "messages": messages}
        return MemoryEstimate(parts | self.training_memory(pool) if self.on_cpu(pool) else parts)

    def server_memory(self) -> MemoryEstimate:
        """Memory of rank 0, which trains no clients unless it is alone."""
        messages, log = self.messages.server(self.machine.ranks == 1), expected_log_memory(self.plan)
        if self.machine.ranks > 1:
            return MemoryEstimate({"program": self.program_bytes[0], "messages": messages, "log": log})
        parts = self.rank_memory(0).parts
        return MemoryEstimate({**parts, "messages": parts["messages"] + messages, "log": log})

    def training_memory(self, pool: int) -> dict[str, int]:
        """Returns the bytes that training the largest clients of a pool needs."""
        clients, kind = self.clients_of(pool), self.device_of[pool].partition(":")[0]
        return {
            "network": max(
                (self.layouts.buffer_bytes(self.plan.clients[i].architecture) for i in clients), default=0
            ),
            "gradients": max((self.trained.gradients(i, kind) for i in clients), default=0),
            "activations": max(
                (max(self.trained.activations(i), self._cost(i).inference) for i in clients), default=0
            ),
        }

    def node_memory(self, node: int) -> MemoryEstimate:
        """Peak memory of a node: all its ranks, its arena, and the data."""
        ranks = sum(self.machine.node(rank) == node for rank in range(self.machine.ranks))
        parts = {
            "programs": ranks * self.program_bytes[0] + self.program_bytes[1],
            "arena": self.arena(node),
            "data": self.plan.data.x.nbytes * (1 if self.plan.data.file else ranks),
        }
        pools = {number: pool for number, pool in enumerate(self.pools) if pool.node == node}
        messages = [self.messages.workers(self.clients_of(n), len(pool.ranks)) for n, pool in pools.items()]
        parts["messages"] = sum(messages)
        if node == self.machine.node(0):
            parts["messages"] += self.messages.server(self.machine.ranks == 1)
            parts["log"] = expected_log_memory(self.plan)
        training = [
            self.training_memory(number)
            for number, pool in enumerate(self.pools)
            for _ in pool.ranks
            if pool.node == node and self.on_cpu(number)
        ]
        if training:
            parts["networks"] = sum(each["network"] for each in training)
            for name in ("gradients", "activations"):
                largest = sorted((each[name] for each in training), reverse=True)
                parts[name] = sum(largest[: self._slots(node)])
            # malloc keeps freed memory: about what an average client needed
            parts["kept by waiting ranks"] = (len(training) - self._slots(node)) * self._average(node)
        return MemoryEstimate(parts)

    def _average(self, node: int) -> int:
        """Returns the bytes of gradients and activations of an average client of a node."""
        clients = [c.id for c in self.plan.clients if self.pools[self.pool_of[c.id]].node == node]
        each = [4 * self.trained.parameters(i) + self.trained.activations(i) for i in clients]
        return sum(each) // max(1, len(each))

    def arena(self, node: int) -> int:
        """Returns the bytes of the states of a node's clients in the arena."""
        clients = (i for i, number in enumerate(self.pool_of) if self.pools[number].node == node)
        return sum(self.layouts.layout(i).nbytes for i in clients)
