"""Damages small files by seed, lets a command of hpcfl read each, and reports what it should not do.

tools/test --stress mutations --seed 0 --count 200 --kind logs [--older]

A file is damaged by flipped bits, a cut, bytes inserted, or a block of zeros. The command must end within ten
seconds, with one sentence and exit code 2, or accept a file whose content is that of the undamaged one. With
--older, files have no digest, as other programs and older versions write them: then damaged values are not
found, but still nothing may crash, hang or end in a traceback.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import random
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcfl.cli import main as hpcfl
from hpcfl.log.reader import read_log
from hpcfl.utils.hdf5_file import TRAILER
from tests.helpers.logs import add, new_log

LIMIT = 10.0
"""Seconds for a command."""
RIGHT, WRONG, REFUSED, TRACEBACK = 0, 1, 2, 3
"""Exit codes of `attempt`: accepted with the right content or another, refused, or anything else."""
NAMES = {RIGHT: "accepted, undamaged content", REFUSED: "refused", WRONG: "WRONG ACCEPTANCE"}
FORK = multiprocessing.get_context("fork")
"""A process per file, with all imports done."""


@dataclass(frozen=True)
class Kind:
    """A kind of file that is damaged."""

    make: Callable[[Path], None]
    command: tuple[str, ...]
    """Command of hpcfl that reads the file; its path follows."""
    digest: Callable[[Path], str]
    """Digest of the content, as hpcfl reads it."""


def make_log(path: Path) -> None:
    log = new_log(path)
    log.attributes |= dict.fromkeys(("host", "mpi", "device", "placement", "arena", "method"), "any")
    log.attributes |= dict.fromkeys(("nodes", "cores", "ranks"), 1)
    for _ in range(3):
        add(log)
    log.close("finished")


def log_digest(path: Path) -> str:
    run = read_log(path)
    content = [(name, str(value)) for name, value in sorted(run.attributes.items())]
    content += [
        (name, f"{values.dtype} {values.shape} {values.tolist()}")
        for name, values in sorted(run.datasets.items())
    ]
    return hashlib.blake2b(repr(content).encode()).hexdigest()


KINDS = {"logs": Kind(make_log, ("show",), log_digest)}


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Returns the bytes of a file with one kind of damage."""
    damaged, place = bytearray(data), rng.randrange(len(data))
    how = rng.choice(["flip", "flip", "cut", "insert", "zeros"])
    if how == "flip":
        for _ in range(rng.choice([1, 1, 1, 2, 8])):
            damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif how == "cut":
        del damaged[rng.choice([place, len(data) - 1 - place % 200]) :]
    elif how == "insert":
        damaged[place:place] = rng.randbytes(rng.choice([1, 8, 512]))
    else:
        size = rng.choice([8, 64, 4096])
        damaged[place : place + size] = bytes(len(damaged[place : place + size]))
    return bytes(damaged)


def attempt(kind: Kind, path: Path, digest: str, output: Path) -> None:
    """Runs the command on a file in this process, and ends it with a code that tells how that went."""
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    code: object = TRACEBACK
    try:
        hpcfl([*kind.command, str(path)])
    except SystemExit as ended:
        code = ended.code or RIGHT
        if code == RIGHT:
            code = RIGHT if kind.digest(path) == digest else WRONG
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    sentences = output.read_text(errors="replace").splitlines()
    if code == REFUSED and (len(sentences) != 1 or "Traceback" in sentences[0]):
        code = TRACEBACK
    os._exit(code if isinstance(code, int) else TRACEBACK)


def outcome(process: multiprocessing.process.BaseProcess, older: bool) -> str:
    """Waits for an attempt and returns how it went; in capitals if that must not be."""
    process.start()
    process.join(LIMIT)
    if process.exitcode is None:
        process.kill()
        process.join()
        return f"HANG of more than {LIMIT:g} s"
    if process.exitcode < 0:
        return f"CRASH by signal {-process.exitcode}"
    if older and process.exitcode == WRONG:
        return "accepted without a digest"
    return NAMES.get(process.exitcode, "TRACEBACK")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools/test --stress mutations")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--kind", choices=sorted(KINDS), default="logs")
    parser.add_argument("--older", action="store_true", help="files without a digest")
    asked = parser.parse_args(arguments)
    kind, outcomes = KINDS[asked.kind], Counter[str]()
    with tempfile.TemporaryDirectory() as directory:
        path, output = Path(directory, "file.h5"), Path(directory, "output.txt")
        kind.make(path)
        whole, digest = path.read_bytes(), kind.digest(path)
        if asked.older:
            whole = whole[: -TRAILER.size]
        for number in range(asked.count):
            path.write_bytes(mutate(whole, random.Random(f"{asked.seed} {asked.kind} {number}")))
            process = FORK.Process(target=attempt, args=(kind, path, digest, output))
            ended = outcome(process, asked.older)
            outcomes[ended] += 1
            if not ended[:2].islower():
                print(f"file {number}: {ended}\n{output.read_text(errors='replace')}", flush=True)
    bad = sum(number for ended, number in outcomes.items() if not ended[:2].islower())
    print(
        f"{asked.count} damaged {asked.kind}: {dict(outcomes)}; {bad} not as they must be (seed {asked.seed})"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
