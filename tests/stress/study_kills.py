"""Kills a study once in the middle, continues it, and compares it with one that ran undisturbed.

tools/test --stress study-kills [--seed 0] [--ranks 3] [STUDY]     a study at small scale
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from hpcfl.bench.job import Job, is_alive, on_ranks, ranks_under
from hpcfl.log.compare import compare_runs
from hpcfl.log.reader import read_log


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", nargs="?", default="scalability")
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        return compare(asked.study, asked.ranks, random.Random(asked.seed), Path(directory))


def compare(study: str, ranks: int, rng: random.Random, directory: Path) -> int:
    """Runs the study undisturbed and killed, prints what differs, and returns the exit code."""

    def command(out: Path) -> list[str]:
        return on_ranks(ranks, "study", "run", study, "--out", out, "--scale", "small")

    quiet, killed = directory / "quiet", directory / "killed"
    begin = time.monotonic()
    code, last_line = finished(command(quiet))
    took = time.monotonic() - begin
    print(f"undisturbed: {took:.0f} s, exit code {code}, {last_line}", flush=True)
    victim = kill(command(killed), took * rng.uniform(0.3, 0.7), rng)
    done = sum(read_log(killed / name).status == "finished" for name in logs(killed))
    print(f"killed {victim} after {done} cells", flush=True)
    again, last_line = finished(command(killed))
    print(f"continued: exit code {again}, {last_line}", flush=True)
    names = logs(quiet)
    different = [name for name in names if compare_runs(read_log(quiet / name), read_log(killed / name))]
    print(f"{len(names)} cells, {len(names) - len(different)} equal bit for bit {different or ''}")
    return 0 if names == logs(killed) and code == again == 0 and not different else 1


def kill(command: list[str], seconds: float, rng: random.Random) -> str:
    """Kills mpirun or a rank after some seconds, waits until all are gone, and returns what was hit."""
    with Job(command) as job:
        time.sleep(seconds)
        pids = {"mpirun": job.process.pid}
        pids |= {f"rank {rank}": pid for rank, pid in ranks_under(job.process.pid).items()}
        victim = rng.choice(sorted(pids))
        os.kill(pids[victim], signal.SIGKILL)
        while job.process.poll() is None or any(map(is_alive, pids.values())):
            time.sleep(0.1)
        return victim


def finished(command: list[str]) -> tuple[int, str]:
    """Runs a command to its end and returns its exit code and the last line that it printed."""
    with Job(command) as job:
        code = job.process.wait()
        job.reader.join(5)
        return code, job.lines[-1].strip()


def logs(directory: Path) -> list[str]:
    """Returns the names of the cells' logs."""
    return sorted(path.name for path in directory.glob("*.h5") if path.name != "study.h5")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
