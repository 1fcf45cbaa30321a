"""Kills runs at random instants, continues them, and compares what they end with with an undisturbed run.

tools/test --stress kills --seed 0 --count 100 [--mpi mpich|openmpi] [--run "*late*"]

A kill is `kill -9` of any rank or of mpirun, at any time from the start-up on. A run is killed up to four
times, each time continued by the same command on another number of ranks; at its end every `result` of its
log must be equal bit for bit.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from hpcfl.bench.job import ranks_under
from hpcfl.log.compare import compare_runs
from hpcfl.log.reader import Run, read_log
from hpcfl.methods.baselines import BASELINES
from tests.helpers.cases import OWN
from tests.stress.jobs import LAUNCHERS, Federation, end_all

SETTINGS = (
    *("data.samples_per_class=300", "federation.rounds=30", "runtime.checkpoint_rounds=2"),
    *("log.evaluate_every=2", "log.prototypes_every=4"),
)
SHARES = ("federation.participation=0.5", "federation.participation=1.0")
"""Some clients in each round, or all: then nobody is left whom a rank saves after its work."""
METHODS = {"fedtgp-sparse": ["method.server_epochs=20"], **{name: OWN.get(name, []) for name in BASELINES}}
RUNS = {
    f"{name} {share}": (*SETTINGS, f"method.name={name}", *own, share)
    for name, own in METHODS.items()
    for share in SHARES
}
PHONES = (*SETTINGS, SHARES[0], "system.profile=phones", "system.latency={median=1.0, sigma=1.0}")
RUNS |= {
    "late uploads kept": (*PHONES, "system.deadline=1.0", "system.late=keep", "method.aggregate=ppa"),
    "late uploads dropped": (*PHONES, "system.deadline=1.0", "system.extra=3", "method.name=fedgen"),
}
"""Checkpoints hold late uploads, and who still works on an earlier round."""
LIMIT = 15.0
"""Seconds within which all ranks of a killed run must be gone."""
LONGEST = 180.0
"""Seconds that a run may take to its end."""
EARLY = 0.15
"""Share of the kills that come while the run starts."""


def finish(job: Federation) -> None:
    job.gone(LONGEST)
    assert job.process.returncode == 0, job.text


def killed(job: Federation, rng: random.Random, length: float) -> str | None:
    """Kills a run at some instant and returns what was hit; None if it had ended before."""
    if rng.random() < EARLY:
        time.sleep(rng.uniform(0, 4))
    else:
        while job.process.poll() is None and not any(line.startswith("round ") for line in job.lines):
            time.sleep(0.01)
        time.sleep(rng.uniform(0, length))
    job.ranks = ranks_under(job.process.pid)
    if job.process.poll() is not None:
        return None
    victims = {"mpirun": job.process.pid} | {f"rank {min(rank, 1)}": pid for rank, pid in job.ranks.items()}
    name = rng.choice(sorted(victims))
    try:
        os.kill(victims[name], signal.SIGKILL)
    except ProcessLookupError:
        return None
    job.gone(LIMIT)
    return {"rank 0": "rank 0", "rank 1": "a worker"}.get(name, name)


def chain(
    rng: random.Random, mpi: str, out: Path, settings: Sequence[str], want: Run, most: int
) -> Counter[str]:
    """Kills one run up to `most` times, lets it end, and returns what was hit."""
    hits: Counter[str] = Counter()
    length = float(want["/round/seconds"].sum())
    for _ in range(most):
        job = Federation(mpi, rng.choice([2, 3, 5]), out, *settings)
        hit = killed(job, rng, length)
        if hit is None:
            break
        hits[hit] += 1
    finish(Federation(mpi, rng.choice([2, 3, 5]), out, *settings))
    if difference := compare_runs(read_log(out), want):
        raise AssertionError(f"not equal: {difference}")
    return hits


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--mpi", choices=sorted(LAUNCHERS))
    parser.add_argument("--run", default="*", help="only runs whose name has this pattern")
    asked = parser.parse_args(arguments)
    runs = {name: settings for name, settings in RUNS.items() if fnmatch(name, asked.run)}
    if not runs:
        parser.error(f"--run {asked.run}: there is no such run among {', '.join(RUNS)}")
    rng = random.Random(asked.seed)
    hits: Counter[str] = Counter()
    failed = number = 0
    with tempfile.TemporaryDirectory() as directory:
        while hits.total() < asked.count:
            mpi = asked.mpi or rng.choice(sorted(LAUNCHERS))
            name, settings = rng.choice(list(runs.items()))
            alone = Path(directory) / f"{name}.h5"
            if not alone.exists():
                finish(Federation("mpich", 3, alone, *settings))
            most = min(rng.randint(1, 4), asked.count - hits.total())
            try:
                hit = chain(rng, mpi, Path(directory) / f"{number}.h5", settings, read_log(alone), most)
                hits += hit
                print(
                    f"{mpi:8} {name}: {hit.total()} kills, equal: {', '.join(map(str, hit.elements()))}",
                    flush=True,
                )
            except Exception as error:
                failed, hits["failed"] = failed + 1, hits["failed"] + 1
                print(f"{mpi:8} {name}: FAILED: {error}", flush=True)
            finally:
                end_all()
            number += 1
    print(f"{hits.total()} kills ({dict(hits)}) of {number} runs, {failed} runs failed (seed {asked.seed})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
