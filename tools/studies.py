"""Tries studies under mpirun.

tools/studies overhead [--cells 60] [--ranks 3]     seconds that a cell takes beside its rounds
tools/studies kill [--seed 0] [--ranks 3] [STUDY]   a study at small scale, killed once in the middle and
                                                    continued, against one that ran undisturbed
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from datetime import datetime
from pathlib import Path

import numpy as np
from failures import ROOT, alive, ranks_under

from hpcfl.log.compare import compare_runs
from hpcfl.log.reader import read_log

BIN = Path(sys.executable).parent
TINY = """
[set]
data.samples_per_class = 200
federation.rounds = 2
models.features = 8
[[block]]
name = "tiny"
grid.seed = {seeds}
"""
SCALABILITY = ROOT / "configs" / "studies" / "scalability.toml"
SETTLED = 5
"""Cells after which everything is loaded."""


def start(ranks: int, study: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    command = [BIN / "mpirun", "-n", ranks, BIN / "hpcfl", "study", "run", study, "--out", out, *more]
    return subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def overhead(ranks: int, cells: int) -> int:
    """Prints the seconds from one cell's log to the next, without its rounds."""
    with tempfile.TemporaryDirectory() as directory:
        study, out = Path(directory) / "tiny.toml", Path(directory) / "out"
        study.write_text(TINY.format(seeds=list(range(cells))))
        running = start(ranks, study, out)
        assert running.stdout is not None
        processes: set[int] = set()
        for line in running.stdout:
            if line.startswith("hpcfl: tiny, cell "):
                processes |= set(ranks_under(running.pid).values())
        assert running.wait() == 0
        runs = [read_log(out / f"tiny-s{seed}.h5") for seed in range(cells)]
    begun = np.array([datetime.fromisoformat(str(run.attributes["start"])).timestamp() for run in runs])
    rounds = np.array([run["/round/seconds"].sum() for run in runs])
    beside = (np.diff(begun) - rounds[:-1])[SETTLED:]
    low, middle, high = np.quantile(beside, [0, 0.5, 1])
    print(
        f"{cells} cells on {ranks} ranks, {len(processes)} processes: a cell takes {middle:.2f} s beside its"
    )
    print(f"rounds, {low:.2f} to {high:.2f} ({rounds[SETTLED:].mean():.2f} s of rounds)")
    return 0 if len(processes) == ranks and middle < 1 else 1


def kill(seed: int, ranks: int, study: Path) -> int:
    """Kills a study in the middle, goes on, and prints what differs from an undisturbed one."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        quiet, killed = Path(directory) / "quiet", Path(directory) / "killed"
        begin = time.monotonic()
        code, said = _finished(start(ranks, study, quiet, "--scale", "small"))
        took = time.monotonic() - begin
        print(f"undisturbed: {took:.0f} s, exit code {code}, {said}", flush=True)
        running = start(ranks, study, killed, "--scale", "small")
        threading.Thread(target=running.communicate, daemon=True).start()  # or it would wait for a reader
        time.sleep(took * rng.uniform(0.3, 0.7))
        pids = {"mpirun": running.pid} | {f"rank {r}": pid for r, pid in ranks_under(running.pid).items()}
        name = rng.choice(sorted(pids))
        os.kill(pids[name], signal.SIGKILL)
        while running.poll() is None or any(map(alive, pids.values())):
            time.sleep(0.1)
        done = sum(
            read_log(path).status == "finished" for path in killed.glob("*.h5") if path.name != "study.h5"
        )
        print(f"killed {name} after {done} cells", flush=True)
        again, said = _finished(start(ranks, study, killed, "--scale", "small"))
        print(f"continued: exit code {again}, {said}", flush=True)
        logs = sorted(path.name for path in quiet.glob("*.h5") if path.name != "study.h5")
        there = sorted(path.name for path in killed.glob("*.h5") if path.name != "study.h5")
        different = [name for name in logs if compare_runs(read_log(quiet / name), read_log(killed / name))]
    print(f"{len(logs)} cells, {len(logs) - len(different)} equal bit for bit {different or ''}")
    return 0 if logs == there and code == again == 0 and not different else 1


def _finished(running: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = running.communicate()
    return running.returncode, said.strip().splitlines()[-1]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["overhead", "kill"])
    parser.add_argument("study", nargs="?", type=Path, default=SCALABILITY)
    parser.add_argument("--cells", type=int, default=60)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_intermixed_args()
    if asked.what == "overhead":
        return overhead(asked.ranks, asked.cells)
    return kill(asked.seed, asked.ranks, asked.study)


if __name__ == "__main__":
    sys.exit(main())
