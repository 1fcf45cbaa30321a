"""Breaks running federations and checks what follows: no hang, no rank left, a log that can be read.

tools/test --stress failures --seed 0 --count 20    20 failures drawn from the seed
tools/test --stress failures --each                 every kind once with either MPI
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from hpcfl.log.heartbeat import heartbeat_path, read_heartbeat
from hpcfl.log.reader import read_log
from tests.stress.jobs import LAUNCHERS, Federation, end_all, start

LIMIT = 10.0
"""Seconds within which all ranks must be gone."""


def kill(victim: Callable[[Federation, random.Random], int]) -> Callable[[str, Path, random.Random], str]:
    """Returns a failure: kill -9 of one process ends all, and leaves a log."""

    def failure(mpi: str, directory: Path, rng: random.Random) -> str:
        job = start(mpi, rng.randint(2, 5), directory, 100_000)
        job.wait_for(f"round {rng.randint(2, 40)}/")
        os.kill(victim(job, rng), signal.SIGKILL)
        seconds = job.gone(LIMIT)
        assert job.process.returncode != 0
        return (
            f"{len(job.ranks)} ranks gone in {seconds:.1f} s, {read_log(job.out).rounds_done} rounds readable"
        )

    return failure


def raises(mpi: str, directory: Path, rng: random.Random) -> str:
    """Rank 0 cannot go on while others wait in a collective: the directory of its log is moved away."""
    place = directory / "here"
    place.mkdir()
    job = start(mpi, rng.randint(2, 5), place, 100_000)
    place.rename(directory / "gone")
    job.out = directory / "gone" / job.out.name
    seconds = job.gone(LIMIT + 5)  # it fails at its next write, and the log is not written all the time
    ours = [line for line in job.lines if line.startswith(("[rank ", "round ", "hpcfl: "))]
    assert job.process.returncode != 0
    assert ours[-1].startswith("hpcfl: cannot "), job.text
    return f"its reason last, all gone in {seconds:.1f} s, {read_log(job.out).rounds_done} rounds readable"


def slow(mpi: str, directory: Path, rng: random.Random, pause: float) -> str:
    """A rank that stands still for a while is named, and waited for, asleep; the run then ends as usual."""
    nodes = rng.choice([1, 3])
    job = start(mpi, 4, directory, 60, f"runtime.pretend_nodes={nodes}")
    rank = rng.choice(list(job.ranks))
    victim = job.ranks[rank]
    os.kill(victim, signal.SIGSTOP)
    time.sleep(1)
    others = [pid for pid in job.ranks.values() if pid != victim]
    before = sum(map(cpu_seconds, others))
    time.sleep(pause)
    share = (sum(map(cpu_seconds, others)) - before) / pause / len(others)
    assert job.process.poll() is None
    sign = read_heartbeat(job.out)
    assert sign is not None
    assert rank in sign.missing or rank == 0, f"rank {rank} stands still, {sign}"
    os.kill(victim, signal.SIGCONT)
    job.gone(60)
    assert job.process.returncode == 0, job.text
    assert read_log(job.out).status == "finished"
    assert not heartbeat_path(job.out).exists()
    assert share < 0.1, f"waiting ranks used {share:.0%} of a core each"
    waited = f"waited {pause + 1:g} s for rank {rank} ({nodes} nodes)"
    return f"{waited} at {share:.1%} of a core per rank, then finished"


def frozen(mpi: str, directory: Path, rng: random.Random) -> str:
    """With runtime.stall_minutes a rank that stands still ends the job, and is named."""
    nodes = rng.choice([1, 3])
    job = start(mpi, 4, directory, 100_000, "runtime.stall_minutes=0.05", f"runtime.pretend_nodes={nodes}")
    rank = rng.choice(list(job.ranks))
    os.kill(job.ranks[rank], signal.SIGSTOP)
    seconds = job.gone(3 + LIMIT)  # three seconds are what was configured
    assert job.process.returncode != 0
    named = [line for line in job.lines if line.startswith("hpcfl: rank") and "did nothing" in line]
    assert [line.split(" did")[0] for line in named] == [f"hpcfl: rank {rank}"], job.text
    rounds = read_log(job.out).rounds_done
    return f"rank {rank} named ({nodes} nodes), all gone in {seconds:.1f} s, {rounds} rounds readable"


def stacks(mpi: str, directory: Path, rng: random.Random) -> str:
    """SIGUSR2 prints where a rank stands, and the run goes on."""
    job = start(mpi, 3, directory, 60)
    os.kill(job.ranks[rng.randint(0, 2)], signal.SIGUSR2)
    job.gone(60)
    assert job.process.returncode == 0
    assert any("most recent call first" in line for line in job.lines), job.text
    return "stacks printed, then finished"


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


SLOW = "slow rank"
KINDS: dict[str, Callable[..., str]] = {
    "kill worker": kill(lambda job, rng: job.ranks[rng.choice(list(job.ranks.keys() - {0}))]),
    "kill rank 0": kill(lambda job, rng: job.ranks[0]),
    "kill mpirun": kill(lambda job, rng: job.process.pid),
    "no directory": raises,
    SLOW: slow,
    "frozen rank": frozen,
    "stacks": stacks,
}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--slow", type=float, default=4.0, help="seconds that a slow rank stands still")
    parser.add_argument("--each", action="store_true", help="every kind once with either MPI")
    parser.add_argument("--skip", default="-", metavar="WORD", help="leave out kinds that begin with it")
    parser.add_argument("--by-turns", action="store_true", help="every kind with one MPI, by turns")
    asked = parser.parse_args(arguments)
    kinds = KINDS | {SLOW: partial(slow, pause=asked.slow)}
    rng = random.Random(asked.seed)
    plan = [(kind, mpi) for kind in KINDS if not kind.startswith(asked.skip) for mpi in LAUNCHERS]
    if asked.by_turns:
        plan = [pair for place, pair in enumerate(plan) if place % 4 in (0, 3)]
    if not asked.each:
        plan = [rng.choice(plan) for _ in range(asked.count)]
    failed = 0
    for kind, mpi in plan:
        with tempfile.TemporaryDirectory() as directory:
            try:
                said = "ok: " + kinds[kind](mpi, Path(directory), rng)
            except Exception as error:
                failed += 1
                said = f"FAILED: {error!r}"
            finally:
                end_all()
        print(f"{kind:12} {mpi:8} {said}", flush=True)
    print(f"{len(plan) - failed} of {len(plan)} as they must be (seed {asked.seed})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
