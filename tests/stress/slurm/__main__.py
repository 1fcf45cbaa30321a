"""Runs the scripts of jobs/ on a real Slurm of three virtual nodes and checks what comes out.

tools/test --stress slurm                     all scenarios, then everything is stopped and removed
tools/test --stress slurm --only walltime     one of them (repeatable; --skip leaves one out)
tools/test --stress slurm --keep              leaves the Slurm running and says how to use it

The Slurm is Debian's slurm-wlm, which is installed if it is missing. It lives in a temporary directory, with
its own configuration and munge key.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.stress.slurm.cluster import Cluster
from tests.stress.slurm.install import Unusable, install, refuse_second
from tests.stress.slurm.lab import Lab
from tests.stress.slurm.scenarios import SCENARIOS


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", action="append", choices=SCENARIOS, metavar="NAME", help=", ".join(SCENARIOS)
    )
    parser.add_argument("--skip", action="append", choices=SCENARIOS, metavar="NAME", default=[])
    parser.add_argument(
        "--keep", action="store_true", help="run no scenario unless --only names one, stop nothing"
    )
    parser.add_argument("--stop", type=Path, metavar="DIRECTORY", help="stop what --keep left running")
    asked = parser.parse_args(arguments)
    try:
        if asked.stop:
            return stop(asked.stop)
        refuse_second()
        install()
    except Unusable as problem:
        print(f"slurm: {problem}", file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    names = asked.only or ([] if asked.keep else list(SCENARIOS))
    cluster = Cluster(Path(tempfile.mkdtemp(prefix="slurm-lab-")))
    try:
        cluster.start()
        failed = summary([run(cluster, name) for name in names if name not in asked.skip])
        if asked.keep:
            print(f"Slurm runs. Use it:   export SLURM_CONF={cluster.home}/slurm.conf; sinfo")
            print(f"Stop and remove it:   tools/test --stress slurm --stop {cluster.home}")
        return failed
    except BaseException:
        asked.keep = False
        raise
    finally:
        if not asked.keep:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            cluster.stop()


def stop(directory: Path) -> int:
    """Stops what --keep left running in a directory, and removes it."""
    if not (directory / "slurm.conf").exists():
        raise Unusable(f"{directory} holds no Slurm that --keep left")
    Cluster(directory).stop()
    return 0


def run(cluster: Cluster, name: str) -> tuple[str, str, bool, float]:
    """Returns a scenario's name, what was checked or went wrong, whether it passed, and its seconds."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="slurm-lab-run-") as place:
        lab = Lab(cluster, Path(place))
        try:
            said, passed = SCENARIOS[name](lab), True
        except Exception as error:
            said, passed = f"{type(error).__name__}: {error}", False
            print(f"--- {name}\n{lab.logs()}", flush=True)
        finally:
            lab.clear()
    print(f"{name}: {'ok' if passed else 'FAILED'}: {said}", flush=True)
    return name, said, passed, time.monotonic() - begin


def summary(rows: list[tuple[str, str, bool, float]]) -> int:
    """Prints the table and returns the exit code."""
    if not rows:
        return 0
    print(f"\n{'scenario':14} {'':6} {'seconds':>7}  checked")
    for name, said, passed, seconds in rows:
        print(f"{name:14} {'ok' if passed else 'FAILED':6} {seconds:7.0f}  {said.splitlines()[0]}")
    failed = sum(not passed for *_, passed, _ in rows)
    print(f"{len(rows) - failed} of {len(rows)} as they must be", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
