"""Damages small files by seed, lets commands of hpcfl read them, and reports what they should not do.

tools/test --stress mutations --seed 0 --count 200 --kind logs|datasets|npz|checkpoints [--older]

A command must end within ten seconds: with one sentence and exit code 2, or with the results that it has
with undamaged files. A damaged checkpoint must not change a run's results. With --older, HDF5 files have no
digest, as other programs and older versions write them: then damaged values of a log are not found, but
still nothing may crash, hang or end in a traceback.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from hpcfl.utils.hdf5_file import TRAILER
from tests.stress.attempts import SETUP_LIMIT, read_content, run_command, run_forked
from tests.stress.mutations.kinds import KINDS, Kind

ACCEPTED, REFUSED = "accepted, with the right results", "refused"
TOLERATED = "accepted without a digest"


class Trial:
    """A directory of undamaged files, the results that commands have with them, and a damaged copy."""

    def __init__(self, kind: Kind, directory: Path, older: bool):
        self.kind, self.older = kind, older
        self.whole, self.copy = directory / "whole", directory / "copy"
        self.whole.mkdir()
        made = run_forked(kind.make, self.whole, SETUP_LIMIT)
        assert made.code == 0, made.stderr
        if older:
            for path in self.whole.glob(kind.damaged):
                os.truncate(path, path.stat().st_size - TRAILER.size)
        shutil.copytree(self.whole, self.copy)
        self.contents = []
        for command in kind.commands:
            ended = run_command(command.arguments, self.copy, SETUP_LIMIT)
            assert ended.code == 0, ended.stderr
            self.contents.append(read_content(command.content, self.copy))

    def outcome(self, rng: random.Random) -> tuple[str, str]:
        """Damages a file and returns how the commands ended, in capitals if that must not be; and stderr."""
        shutil.rmtree(self.copy)
        shutil.copytree(self.whole, self.copy)
        self.kind.damage(rng.choice(sorted(self.copy.glob(self.kind.damaged))), rng)
        found = ACCEPTED
        for command, content in zip(self.kind.commands, self.contents, strict=True):
            ended = run_command(command.arguments, self.copy)
            if ended.fault or ended.code == 1:
                return ended.fault or "FAILED with exit code 1", ended.stderr
            if ended.code == 2:
                found = REFUSED
            elif (other := read_content(command.content, self.copy)) != content:
                if not self.older or self.kind.has_checksums:
                    return f"WRONG ACCEPTANCE by hpcfl {command.arguments[0]}", f"{other} {ended.stderr}"
                found = TOLERATED
        return found, ""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools/test --stress mutations")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--kind", choices=sorted(KINDS), default="logs")
    parser.add_argument("--older", action="store_true", help="HDF5 files without a digest")
    asked = parser.parse_args(arguments)
    if asked.older and not KINDS[asked.kind].is_hdf5:
        parser.error(f"--older: {asked.kind} have no digest at their end")
    outcomes, bad = Counter[str](), 0
    with tempfile.TemporaryDirectory() as directory:
        trial = Trial(KINDS[asked.kind], Path(directory), asked.older)
        for number in range(asked.count):
            for _ in range(2):  # a file at which a busy machine took too long is tried once more
                ended, stderr = trial.outcome(random.Random(f"{asked.seed} {asked.kind} {number}"))
                if "HANG" not in ended + stderr:
                    break
            outcomes[ended] += 1
            if ended not in (ACCEPTED, REFUSED, TOLERATED):
                bad += 1
                print(f"file {number}: {ended}\n{stderr}", flush=True)
    counts = ", ".join(f"{count} {ended}" for ended, count in outcomes.most_common())
    older = " without digests" if asked.older else ""
    print(
        f"{asked.count} damaged {asked.kind}{older}: {counts}; {bad} not as they must be (seed {asked.seed})"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
