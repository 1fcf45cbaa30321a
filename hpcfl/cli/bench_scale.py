"""The benchmarks beside other simulators and over many clients: `hpcfl bench peers` and `growth`."""

from __future__ import annotations

from typing import Any

import click

from hpcfl.cli.bench import exit_with, integer

WORKLOADS = ("cnn", "logistic", "fedproto", "fedtgp", "htcnn8")
PEERS = ("flower", "fluke", "pfl", "htfllib")


@click.command()
@click.option(
    "--environments", metavar="DIR", required=True, help="Where each simulator gets an environment."
)
@click.option("--htfllib", metavar="DIR", help="HtFLlib's repository; without it, it is left out.")
@click.option(
    "--workload", "workloads", type=click.Choice(WORKLOADS), multiple=True, help="Repeatable. [default: all]"
)
@click.option("--peer", "peers", type=click.Choice(PEERS), multiple=True, help="Repeatable. [default: all]")
@click.option(
    "--data", metavar="NAME", help="A prepared dataset of images. [default: as published, or fmnist]"
)
@click.option("--root", metavar="DIR", help="Where it lies. [default: $HPCFL_DATA, else data]")
@integer("--ranks", 3, least=2, help="Of hpcfl; one is the server. The others get a worker less.")
@integer("--repeats", 3)
@click.option("--rounds", type=click.IntRange(4), help="[default: by workload]")
@click.option("--clients", type=click.IntRange(2), help="[default: by workload]")
def peers(**options: Any) -> None:
    """The same task by hpcfl and by Flower, fluke, pfl-research and HtFLlib.

    In turn, each in an environment of its own, which is made once by pip from the package registry.
    """
    from hpcfl.bench.peers.command import bench_peers

    exit_with(bench_peers, **options)


@click.command()
@click.option("--clients", type=click.IntRange(2, 1_000_000), multiple=True, help="Repeatable.")
@integer("--participants", 50, help="A round, at most.")
@integer("--evaluated", 50, help="Clients that are evaluated, at most.")
@integer("--ranks", 3)
@integer("--rounds", 20, least=5)
@integer("--repeats", 3)
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Replace one key; repeatable.")
def growth(clients: tuple[int, ...], **options: Any) -> None:
    """How the cost of a run grows with its clients.

    Time and CPU time per participant, memory, log, checkpoints and start-up for several numbers of clients
    with small networks; of the largest also as predicted from the others.
    """
    from hpcfl.bench.growth import bench_growth

    exit_with(bench_growth, clients=clients or (20, 100, 1000, 10_000), **options)
