"""Measures a client's rounds with a throttled link and CPU, against the model of the virtual clock.

tools/test --stress devices [--repeats 3] [--share 0.5] [--up 10] [--down 40] [--latency 0.3]

A server and a client in two network namespaces, whose link `tc` limits, exchange what a round exchanges;
between transfers the client trains with a share of a core. The server delays what it sends and receives:
not every kernel has netem. Needs root, ip and tc with tbf; skips otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence

import numpy as np

SERVER, PORT = "10.97.31.1", 5731
PERIOD = 0.02
"""Seconds in which the client runs for its share, and is stopped for the rest."""
CLASSES, FEATURES = 100, 512
NETWORKS = ("cnn1", "cnn3", "resnet4")
SETTINGS = (
    *(
        "data.name=synthetic",
        f"data.classes={CLASSES}",
        "data.shape=[32, 32, 3]",
        "data.samples_per_class=30",
    ),
    *(
        "federation.clients=3",
        "partition.alpha=10.0",
        f"models.list={list(NETWORKS)}",
        f"models.features={FEATURES}",
    ),
)
CASES = (
    ("prototypes", CLASSES * FEATURES * 4, CLASSES * FEATURES * 4),
    ("auxiliary network", 4_000_000, 4_000_000),
    ("fixed anchors", 0, 0),
)
"""What travels down and up in a round, in bytes."""


def why_not() -> str:
    """Returns why nothing can be measured here; empty: it can."""
    if os.geteuid() != 0:
        return "needs root, for network namespaces"
    missing = [name for name in ("ip", "tc") if not shutil.which(name)]
    if missing:
        return f"needs {missing[0]} (Debian: iproute2)"
    with contextlib.suppress(subprocess.CalledProcessError), namespaces(1.0, 1.0):
        return ""
    return "this kernel has no network namespaces, no veth or no tbf"


def call(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=30)


@contextlib.contextmanager
def namespaces(down: float, up: float) -> Iterator[tuple[str, str]]:
    """Yields two namespaces with a link between them; `down` and `up` are Mbit/s towards the second."""
    names = f"hpcfl-s{os.getpid()}", f"hpcfl-c{os.getpid()}"
    try:
        for name in names:
            call("ip", "netns", "add", name)
        peer = ("peer", "name", "v1", "netns", names[1])
        call("ip", "link", "add", "v0", "netns", names[0], "type", "veth", *peer)
        for number, (name, rate) in enumerate(zip(names, (down, up), strict=True)):
            call("ip", "-n", name, "addr", "add", f"10.97.31.{number + 1}/24", "dev", f"v{number}")
            call("ip", "-n", name, "link", "set", f"v{number}", "up")
            limit = ("tbf", "rate", f"{rate}mbit", "burst", "32kbit", "latency", "400ms")
            call("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", f"v{number}", "root", *limit)
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=30)


# --- the client, in a process and namespace of its own


def client() -> None:
    """Reads `network bytes_down bytes_up` and the bytes, trains, and sends its bytes, again and again."""
    import torch

    from hpcfl.algorithms.build import build_algorithm
    from hpcfl.bench.step import short_plan
    from hpcfl.bench.step_comparison import make_worker
    from hpcfl.config.loading import load_config
    from hpcfl.federation.run_plan import plan_run
    from hpcfl.models.costs import costs
    from hpcfl.training.step.options import all_step_options

    torch.set_num_threads(1)
    plan, device = short_plan(plan_run(load_config(None, SETTINGS)), 600), torch.device("cpu")
    algorithm = build_algorithm(plan, device)
    networks = {name: [name] for name in plan.architectures}
    options = all_step_options(plan.config.runtime, "cpu", networks, plan.train.clip_norm)
    worker = make_worker(plan, device, options, algorithm)
    counted = costs(plan.architectures, plan.data.shape, *plan.dims, 32, 256)
    with socket.create_connection((SERVER, PORT)) as link:
        file = link.makefile("rwb")
        for i, name in enumerate(plan.architectures):
            worker.train_client(0, i)  # libraries initialise themselves
            flops = algorithm.samples_passed(0, i) * counted[name].flops
            file.write(f"{name} {flops}\n".encode())
        file.flush()
        for t, line in enumerate(iter(file.readline, b""), start=1):
            network, down, up = line.split()
            file.read(int(down))
            start = time.perf_counter()
            worker.train_client(t, plan.architectures.index(network.decode()))
            file.write(f"{time.perf_counter() - start}\n".encode() + bytes(int(up)))
            file.flush()


# --- the server


class Throttle(threading.Thread):
    """Stops and continues a process such that it runs for a share of the time."""

    def __init__(self, pid: int, share: float):
        super().__init__(daemon=True)
        self.pid, self.share, self.ended = pid, share, threading.Event()

    def run(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            while not self.ended.is_set():
                time.sleep(PERIOD * self.share)
                os.kill(self.pid, signal.SIGSTOP)
                time.sleep(PERIOD * (1 - self.share))
                os.kill(self.pid, signal.SIGCONT)


def relay(source: socket.socket, target: socket.socket, delay: float) -> None:
    """Passes on what arrives from a socket, each piece `delay` seconds later, until the source is closed."""
    pieces: queue.Queue[tuple[float, bytes]] = queue.Queue()

    def read() -> None:
        piece = b"?"
        while piece:
            piece = source.recv(1 << 16)
            pieces.put((time.perf_counter() + delay, piece))

    def write() -> None:
        while (entry := pieces.get())[1]:
            time.sleep(max(0.0, entry[0] - time.perf_counter()))
            target.sendall(entry[1])
        target.shutdown(socket.SHUT_WR)

    for part in (read, write):
        threading.Thread(target=part, daemon=True).start()


def measure(
    share: float, repeats: int, latency: float
) -> tuple[dict[str, int], dict[tuple[str, str], list[tuple[float, float]]]]:
    """Returns the FLOPs of each network's round; and by network and case seconds of a round and its training.

    It is called in the server's namespace. `latency` are the seconds that both directions add to a round; a
    round in which nothing travels is its training alone.
    """
    with socket.create_server((SERVER, PORT)) as listening:
        command = ["ip", "netns", "exec", os.environ["HPCFL_CLIENT_NS"], sys.executable, "-m", __spec__.name]
        with subprocess.Popen([*command, "client"]) as process:
            accepted, _ = listening.accept()
            link, far_end = socket.socketpair()
            relay(accepted, far_end, latency / 2)
            relay(far_end, accepted, latency / 2)
            with accepted, link, link.makefile("rwb") as file:
                sizes = dict(file.readline().decode().split() for _ in NETWORKS)
                throttle = Throttle(process.pid, share)
                throttle.start()
                found: dict[tuple[str, str], list[tuple[float, float]]] = {}
                for _ in range(repeats):
                    for network in NETWORKS:
                        for case, down, up in CASES:
                            start = time.perf_counter()
                            file.write(f"{network} {down} {up}\n".encode() + bytes(down))
                            file.flush()
                            training = float(file.readline())
                            file.read(up)
                            taken = time.perf_counter() - start if down or up else training
                            found.setdefault((network, case), []).append((taken, training))
                throttle.ended.set()
                throttle.join()
                link.shutdown(socket.SHUT_WR)
                process.wait(60)
        return {name: int(size) for name, size in sizes.items()}, found


def report(
    sizes: dict[str, int],
    found: dict[tuple[str, str], list[tuple[float, float]]],
    link: tuple[float, float, float],
) -> float:
    """Prints each case with the model's seconds, and returns the largest deviation with a speed per network.

    The speeds come from the training of all cases but the one that is predicted.
    """
    from hpcfl.system.devices import Devices

    down, up, latency = link
    worst = 0.0
    print("network   what travels        measured   model, a speed per network   model, one speed")
    for (network, case), runs in found.items():
        others = [(sizes[n], taken) for (n, c), each in found.items() if c != case for _, taken in each]
        same = [
            (sizes[n], t) for (n, c), each in found.items() if c != case and n == network for _, t in each
        ]
        sent = next((d, u) for name, d, u in CASES if name == case)
        seconds = []
        for known in (same, others):
            speed = sum(size for size, _ in known) / sum(taken for _, taken in known) / 1e9
            values = [np.array([each]) for each in (speed, up, down, latency, np.nan, 0.0, 1.0)]
            parts = Devices(*values).seconds(
                *(np.array([float(n)]) for n in (sent[0], sizes[network], sent[1]))
            )
            seconds.append(float(parts.total_M[0]))
        measured = float(np.median([taken for taken, _ in runs]))
        first, second = (each / measured - 1 for each in seconds)
        worst = max(worst, abs(first))
        print(
            f"{network:<9} {case:<18} {measured:7.3f} s   {seconds[0]:7.3f} s ({first:+6.1%})"
            f"           {seconds[1]:7.3f} s ({second:+6.1%})"
        )
    return worst


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools/test --stress devices")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--share", type=float, default=0.5, help="of a core, for the client")
    parser.add_argument("--up", type=float, default=10.0, help="Mbit/s")
    parser.add_argument("--down", type=float, default=40.0, help="Mbit/s")
    parser.add_argument("--latency", type=float, default=0.3, help="seconds of both directions together")
    asked = parser.parse_args(arguments)
    if "HPCFL_CLIENT_NS" not in os.environ:
        if reason := why_not():
            print(f"devices: skipped: {reason}")
            return 0
        with namespaces(asked.down, asked.up) as (server, other):
            again = ["ip", "netns", "exec", server, sys.executable, "-m", "tests.stress.devices", *arguments]
            return subprocess.run(again, env=os.environ | {"HPCFL_CLIENT_NS": other}).returncode
    before = os.getloadavg()[0]
    found = measure(asked.share, asked.repeats, asked.latency)
    worst = report(*found, (asked.down, asked.up, asked.latency))
    print(f"client: {asked.share:.0%} of a core; link: {asked.down:g} Mbit/s down, {asked.up:g} up, by tc")
    print(f"latency: {asked.latency:g} s; load: {before:.1f} before, {os.getloadavg()[0]:.1f} after")
    print(f"largest deviation with a speed per network: {worst:.1%}")
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["client"]:
        client()
    else:
        sys.exit(main(sys.argv[1:]))
