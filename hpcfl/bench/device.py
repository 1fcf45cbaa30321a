"""What a round asks of an accelerator, counted on a stand-in: kernels, host syncs, bytes copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from rich.table import Table
from torch.nn.functional import cross_entropy

from hpcfl.algorithms.build import build_algorithm
from hpcfl.algorithms.initial_network import initial_network
from hpcfl.bench.stand_in import Counts, counted, is_possible, stand_in_devices
from hpcfl.bench.step_comparison import make_worker
from hpcfl.config.loading import load_config
from hpcfl.errors import BadInput
from hpcfl.exchange.codec import Codec
from hpcfl.federation.run_plan import RunPlan, plan_run
from hpcfl.methods.catalogue import CATALOGUE
from hpcfl.runtime.device_memory import divide_memory
from hpcfl.runtime.devices import set_up_torch
from hpcfl.runtime.exit_handling import DONE
from hpcfl.training.client_layout import networks_of_clients
from hpcfl.training.samples import SampleSource
from hpcfl.training.step.options import all_step_options
from hpcfl.utils.formatting import console, format_bytes

SMALL = ["federation.clients=4", "partition.alpha=1.0", "data.samples_per_class=200"]
"""Counts hardly depend on sizes, so few clients with few samples do."""
KSHOT = ["partition.name=nway_kshot", "partition.shots=9", "partition.unlabelled=9", "method.semi=1"]


@dataclass(frozen=True)
class RoundCounts:
    """What the second round of a run asks of the device."""

    client: Counts
    """Training one client: its state in, its training, its state and its upload out."""
    evaluation: Counts
    """A rank's evaluation of all its clients, before the download and after it."""
    server: Counts
    batches: int
    """Of a pass over the client's samples."""


def bench_device(path: str | None, settings: Sequence[str], methods: Sequence[str]) -> int:
    """Prints a line for each method, with the kernels of the bare torch loop."""
    if not is_possible():
        raise BadInput(f"bench device: torch {torch.__version__} has no backends in Python; 2.13 has")
    with stand_in_devices(1):
        console().print(_table(path, settings, methods or list(CATALOGUE)))
    return DONE


def _table(path: str | None, settings: Sequence[str], methods: Sequence[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    syncs = "syncs: step", "client", "evaluation", "server"
    for name in ("method", "kernels of a step", "÷ bare loop", *syncs, "bytes in", "out"):
        table.add_column(name, justify="left" if name == "method" else "right")
    for method in methods:
        short, long = (_plan(path, [*_own(method), *settings, f"train.epochs={n}"]) for n in (1, 2))
        found = count_round(short)
        epoch, bare = count_round(long).client.since(found.client), bare_epoch(short)
        kernels = epoch.kernels / found.batches
        table.add_row(
            *(method, f"{kernels:.0f}", f"{epoch.kernels / bare.kernels:.2f}"),
            *(f"{epoch.syncs / found.batches:g}", str(found.client.syncs), str(found.evaluation.syncs)),
            *(str(found.server.syncs), *map(format_bytes, (found.client.bytes_in, found.client.bytes_out))),
        )
    return table


def _own(method: str) -> list[str]:
    """Returns the settings of a method, and what it needs beside its name."""
    one = ["models.list=['mlp_256']"] if method in CATALOGUE and CATALOGUE[method].equal_networks else []
    return [f"method.name={method}", *one, *(KSHOT if method == "fedsap-ssl" else [])]


def _plan(path: str | None, settings: Sequence[str]) -> RunPlan:
    return plan_run(load_config(path, [*(SMALL if path is None else []), *settings]))


def count_round(plan: RunPlan) -> RoundCounts:
    """Runs two rounds of all clients on one rank and returns the counts of the second."""
    device = set_up_torch(plan.config.runtime, 0)
    algorithm = build_algorithm(plan, device)
    networks = networks_of_clients(plan, algorithm)
    options = all_step_options(plan.config.runtime, device.type, networks, plan.train.clip_norm)
    memory = divide_memory(device, plan.config.runtime.device_memory, 1, plan.data.x.nbytes)
    worker = make_worker(plan, device, options, algorithm, memory)
    up, down = Codec(algorithm.upload_arrays()), Codec(algorithm.download_arrays())
    download, ids = algorithm.initial(), range(len(plan.clients))
    worker.receive(download)
    for t in range(2):
        uploads = []
        for i in ids:
            client = Counts()
            with counted(client):
                upload = worker.train_client(t, i)
            uploads.append(replace(upload, payload=up.decode(up.encode(upload.payload))))
        evaluation, server = Counts(), Counts()
        with counted(evaluation):
            for i in ids:
                worker.evaluate_network(t, i)
            worker.finish_evaluation()
        with counted(server):
            download = algorithm.aggregate(t, download, [each for each in uploads if each.payload])
            download = down.decode(down.encode(download))
        worker.receive(download)
        with counted(evaluation):
            for i in ids:
                worker.evaluate_download(t, i)
            worker.finish_evaluation()
    size, samples = plan.config.train.batch_size, len(plan.clients[-1].train)
    return RoundCounts(client, evaluation, server, -(-samples // size))


def bare_epoch(plan: RunPlan) -> Counts:
    """Returns the counts of the last client's epoch as a bare loop: cross-entropy, SGD, data on device."""
    device = set_up_torch(plan.config.runtime, 0)
    i = plan.clients[-1].id
    network, source = initial_network(plan, i).to(device), SampleSource(plan.data, plan.config.data, device)
    x_N, y_N = source.samples(plan.clients[i].train).batch(np.arange(len(plan.clients[i].train)))
    sgd = torch.optim.SGD(network.parameters(), plan.train.lr)
    order_N = torch.arange(len(y_N), device=device)
    found = Counts()
    with counted(found):
        for which_B in order_N.split(plan.config.train.batch_size):
            loss = cross_entropy(network.head(network.extractor(x_N[which_B])), y_N[which_B])
            sgd.zero_grad()
            loss.backward()
            sgd.step()
    return found
