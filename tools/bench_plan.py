"""Runs a configuration under mpirun, watches its memory, and compares both with `hpcfl plan`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import h5py
from failures import LAUNCHERS, ROOT, ranks_under


def pss(pid: int) -> int:
    """Returns the proportional set size of a process: what it shares is divided among those who share it."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def run(ranks: int, rounds: int, options: list[str]) -> tuple[int, list[float]]:
    """Returns the peak memory of all ranks together, and the seconds of each round's training."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "run.h5"
        python = str(Path(LAUNCHERS["mpich"][0]).parent / "python")
        command = [*LAUNCHERS["mpich"], "-n", str(ranks), python, "-m", "hpcfl", "train", *options]
        command += [f"--set=federation.rounds={rounds}", "--out", str(out)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        peak = 0

        def watch() -> None:
            nonlocal peak
            while process.poll() is None:
                peak = max(peak, sum(pss(pid) for pid in ranks_under(process.pid).values()))
                time.sleep(0.5)

        thread = threading.Thread(target=watch)
        thread.start()
        if process.wait() != 0:
            sys.exit("the run failed")
        thread.join()
        with h5py.File(out) as log:
            return peak, log["/round/seconds_train"][:].tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", nargs="?")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    asked = parser.parse_args()
    options = [*([asked.config] if asked.config else []), *(f"--set={setting}" for setting in asked.set)]
    command = [
        sys.executable,
        "-m",
        "hpcfl",
        "plan",
        *options,
        "-n",
        str(asked.ranks),
        "--json",
        "--calibrate",
    ]
    said = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    peak, seconds = run(asked.ranks, asked.rounds, options)
    measured = sum(seconds) / len(seconds)
    for what, expected, got, unit in (
        ("memory", sum(said["node_bytes"]) / 2**30, peak / 2**30, "GiB"),
        ("training in a round", said["round_seconds"], measured, "s"),
    ):
        print(f"{what}: predicted {expected:.2f} {unit}, measured {got:.2f} {unit}: {expected / got:.2f}")


if __name__ == "__main__":
    main()
