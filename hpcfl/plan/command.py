"""`hpcfl plan`: prints a forecast as tables or as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from hpcfl.config.loading import load_config
from hpcfl.errors import BadInput
from hpcfl.federation.run_plan import RunPlan, plan_run
from hpcfl.log.size import expected_log_size
from hpcfl.models.costs import costs
from hpcfl.models.pretrained import read_pretrained
from hpcfl.models.registry import base_name, split_name
from hpcfl.plan.algorithm_work import algorithm_flops
from hpcfl.plan.checkpoints import checkpoint_sizes
from hpcfl.plan.device_memory import gpu_memory, gpus
from hpcfl.plan.forecast import Forecast
from hpcfl.plan.machine import machine_like_here, program_memory
from hpcfl.plan.memory import MemoryEstimate
from hpcfl.plan.timing import Timing, time_server, time_training
from hpcfl.plan.warnings import warnings
from hpcfl.runtime.devices import set_up_torch
from hpcfl.utils import accelerator
from hpcfl.utils.formatting import console, format_bytes, format_flops, format_memory, format_ranges, plural

PUBLISHED = {
    "cnn": 0.013,
    "googlenet": 1.530,
    "mobilenet_v2": 0.314,
    "resnet18": 0.117,
    "resnet34": 0.218,
    "resnet50": 1.305,
    "resnet101": 2.532,
    "resnet152": 5.330,
}
"""Forward FLOPs in billions, cited in FedTGP's Table 8; docs/models.md says why ours differ."""


def print_plan(
    config: str | None,
    settings: Sequence[str],
    ranks: int | None,
    nodes: int,
    devices: int,
    cores: int | None,
    memory: float | None,
    device_memory: float | None,
    calibrate: bool,
    as_json: bool,
) -> None:
    """Prints the memory, traffic and work of a run, and which ranks train which clients."""
    plan = plan_run(load_config(config, settings))
    busy = plan.config.federation.per_round
    machine = machine_like_here(ranks, nodes, devices, cores, memory, device_memory, busy)
    runtime = plan.config.runtime
    set_up_torch(runtime, 0, on="cpu")
    shapes = (plan.architectures, plan.data.shape, *plan.dims)
    batches = plan.config.train.batch_size, runtime.inference_batch
    costs_by_name = costs(*shapes, *batches, plan.data.input_type)
    read_pretrained(plan.config.models.pretrained, *shapes, plan.directory)
    forecast = Forecast(plan, costs_by_name, machine, program_memory(plan.data.is_images))
    if calibrate:
        if devices and not accelerator.find_accelerators(runtime.device)[1]:
            raise BadInput("--calibrate: there is no GPU here to try what --devices asks about")
        networks, participants = forecast.trained.architectures, forecast.participants[0]
        forecast.timing = Timing(time_training(plan, networks), time_server(plan, participants))
    if as_json:
        print(json.dumps(_as_dict(forecast), indent=1))
    else:
        _print(forecast)


def _as_dict(forecast: Forecast) -> dict[str, Any]:
    """Returns the forecast for the JSON output."""
    up, down = forecast.bytes
    train, evaluate = forecast.flops
    clients, server = algorithm_flops(forecast.algorithm, forecast.participants)
    return {
        "nodes": [forecast.node_memory(n).parts for n in range(forecast.machine.nodes)],
        "node_bytes": [forecast.node_memory(n).total for n in range(forecast.machine.nodes)],
        "device_bytes": [
            gpu_memory(forecast, n).total if device != "cpu" else 0
            for n, device in enumerate(forecast.device_of)
        ],
        "server_bytes": forecast.server_memory().total,
        "rank_bytes": [forecast.rank_memory(n).total for n in range(len(forecast.pools))],
        "pools": [
            {"node": pool.node, "device": device, "ranks": pool.ranks, "clients": forecast.clients_of(n)}
            for n, (pool, device) in enumerate(zip(forecast.pools, forecast.device_of, strict=True))
        ],
        "bytes_up": up,
        "bytes_down": down,
        "flops_train": train,
        "flops_evaluate": evaluate,
        "flops_algorithm": clients,
        "flops_server": server,
        "log_bytes": expected_log_size(forecast.plan),
        "checkpoint_bytes": checkpoint_sizes(forecast).total,
        "checkpoint_disk_bytes": checkpoint_sizes(forecast).disk,
        "samples": _samples(forecast.plan),
        "imbalance": forecast.imbalance,
        "round_seconds": forecast.round_seconds,
        "evaluation_seconds": forecast.evaluation_seconds,
        "server_seconds": forecast.timing and forecast.timing.server,
        "architectures": {name: vars(cost) for name, cost in forecast.costs.items()},
        "machine": vars(forecast.machine),
        "published_forward_gflops": PUBLISHED,
        "warnings": warnings(forecast),
    }


def _print(forecast: Forecast) -> None:
    plan, machine, screen = forecast.plan, forecast.machine, console()
    config = plan.config
    screen.print(
        f"{config.method.name} on {config.data.name}: {plural(len(plan.clients), 'client')}, "
        f"{config.federation.per_round} per round, d = {plan.dims[1]}, batch {config.train.batch_size}; "
        f"{plural(machine.ranks, 'rank')} on {plural(machine.nodes, 'node')} of "
        f"{plural(machine.cores, 'core')}, {format_memory(machine.memory)}"
        + (f" and {plural(machine.devices, 'GPU')}" if machine.devices else ""),
        soft_wrap=True,
    )
    for table in (_architectures(forecast), _pools(forecast), _memory(forecast)):
        screen.print()
        screen.print(table)
    screen.print()
    for line in _round_lines(forecast):
        screen.print(line, soft_wrap=True)
    for warning in warnings(forecast):
        screen.print(f"warning: {warning}", soft_wrap=True)


def _architectures(forecast: Forecast) -> Table:
    table = _table(
        "architecture", "clients", "parameters", "state", "per sample", "activations", "ms/sample", "FedTGP"
    )
    counts = Counter(client.architecture for client in forecast.plan.clients)
    for name, cost in forecast.costs.items():
        cited = PUBLISHED.get(base_name(split_name(name)[0]))
        measured = forecast.timing and forecast.timing.per_sample.get(name)
        table.add_row(
            name,
            str(counts[name]),
            f"{cost.parameters / 1e6:.3f} M",
            format_memory(cost.state),
            format_flops(cost.flops),
            format_memory(cost.activations),
            f"{1000 * measured:.2f}" if measured else "–",
            format_flops(1e9 * cited) if cited else "–",
        )
    return table


def _pools(forecast: Forecast) -> Table:
    table = _table("node", "device", "ranks", "clients", "share of the work")
    for number, pool in enumerate(forecast.pools):
        clients = forecast.clients_of(number)
        share = forecast.work_M[clients].sum() / forecast.work_M.sum()
        ranks, device = format_ranges(pool.ranks), forecast.device_of[number]
        table.add_row(str(pool.node), device, ranks, format_ranges(clients), f"{100 * share:.1f}%")
    return table


def _memory(forecast: Forecast) -> Table:
    table = _table("memory", "total", "of which")
    for node in range(forecast.machine.nodes):
        _add_memory(table, f"node {node}", forecast.node_memory(node))
    _add_memory(table, "rank 0, the server", forecast.server_memory())
    for number, (pool, device) in enumerate(zip(forecast.pools, forecast.device_of, strict=True)):
        _add_memory(table, f"a rank of {format_ranges(pool.ranks)}", forecast.rank_memory(number))
        if number in gpus(forecast):
            _add_memory(table, f"{device} of node {pool.node}", gpu_memory(forecast, number))
    return table


def _add_memory(table: Table, label: str, memory: MemoryEstimate) -> None:
    parts = ", ".join(f"{name} {format_memory(nbytes)}" for name, nbytes in memory.parts.items())
    table.add_row(label, format_memory(memory.total), parts)


def _round_lines(forecast: Forecast) -> list[str]:
    up, down = forecast.bytes
    train, evaluate = forecast.flops
    lines = [
        f"samples: {', '.join(f'{n} {part}' for part, n in _samples(forecast.plan).items() if n)}",
        f"a round: up {format_bytes(up)}, down {format_bytes(down)}; {format_flops(train)} of training, "
        f"{format_flops(evaluate)} of evaluation; {forecast.imbalance:.2f} × as long as if spread evenly",
        *_algorithm_lines(forecast),
        f"log: {format_bytes(expected_log_size(forecast.plan))}; {_checkpoint_line(forecast)}",
    ]
    if forecast.timing:
        server = forecast.timing.server
        lines.append(
            f"training in a round takes about {_seconds(forecast.round_seconds)} on devices like those here, "
            f"evaluation {_seconds(forecast.evaluation_seconds)}"
            + ("" if server is None else f", while rank 0 aggregates and refines for {_seconds(server)}")
        )
    forward = sum(forecast.costs[client.architecture].flops for client in forecast.plan.clients)
    names = [base_name(split_name(client.architecture)[0]) for client in forecast.plan.clients]
    cited = [PUBLISHED.get(name) for name in names]
    lines.append(f"forward FLOPs of one sample, over all clients: {format_flops(forward)}")
    if all(cited):
        total = sum(flops for flops in cited if flops)
        lines[-1] += f"; as FedTGP's Table 8 cites them {total:.2f} GFLOP"
        if round(total, 2) == 24.69:
            lines[-1] += "; its Table 12 has 98.77, four times that"
        lines[-1] += " (docs/models.md)"
    return lines


def _checkpoint_line(forecast: Forecast) -> str:
    sizes = checkpoint_sizes(forecast)
    total, disk, writing = map(format_bytes, (sizes.total, sizes.disk, sizes.disk + sizes.total))
    return f"a checkpoint of all clients: {total}; on disk at most {disk}, and {writing} while one is written"


def _algorithm_lines(forecast: Forecast) -> list[str]:
    """Returns what the algorithm computes beside passes through the clients' networks, if it does."""
    flops = algorithm_flops(forecast.algorithm, forecast.participants)
    parts = zip(flops, ("on all participants together", "on rank 0"), strict=True)
    said = ", ".join(f"{format_flops(number)} {where}" for number, where in parts if number)
    return [f"{forecast.plan.config.method.name} computes beside it: {said}"] if said else []


def _seconds(number: float | None) -> str:
    """Returns seconds with one decimal, or two digits if they are few."""
    assert number is not None
    return f"{number:.1f} s" if number >= 1 else f"{number:.2g} s"


def _samples(plan: RunPlan) -> dict[str, int]:
    """Returns the number of samples by part of the split, over all clients."""
    parts = ("train", "validation", "test", "unlabelled")
    return {part: sum(len(getattr(client.split, part)) for client in plan.clients) for part in parts}


def _table(first: str, *headings: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column(first)
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("of which", "clients", "device") else "right")
    return table
