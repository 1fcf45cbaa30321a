"""An environment of its own for each other simulator, made by venv and pip."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from hpcfl.errors import BadInput

REQUIREMENTS = {
    "flower": ("flwr[simulation]",),
    "fluke": ("fluke-fl",),
    "pfl": ("pfl[pytorch]",),
    "htfllib": ("torchvision", "scikit-learn", "h5py"),
}
"""What pip installs beside torch; the first is the simulator itself, but HtFLlib comes as a directory."""
MARK = "hpcfl-peer.json"
"""The file that says that an environment is complete, with its versions."""


@dataclass(frozen=True)
class Environment:
    """A Python with a simulator, or the reason why there is none."""

    python: Path
    versions: str = ""
    problem: str = ""


def make_environment(peer: str, directory: Path) -> Environment:
    """Returns the environment of a simulator; one that was made before is used as it is."""
    place, constraints = directory / peer, directory / f"{peer}.txt"
    python, mark = place / "bin" / "python", place / MARK
    torch = version("torch").partition("+")[0]
    wanted = [f"torch=={torch}", *REQUIREMENTS[peer]]
    if mark.exists():
        found = json.loads(mark.read_text())
        if found["wanted"] == wanted:
            return Environment(python, found["versions"])
    elif place.exists() and not constraints.exists():
        raise BadInput(f"--environments {directory}: {place} is there already and no environment of hpcfl's")
    shutil.rmtree(place, ignore_errors=True)
    print(f"installing {peer} in {place}", flush=True)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        constraints.write_text(wanted[0])
    except OSError as error:
        raise BadInput(f"--environments {directory}: {error.strerror}") from None
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in (
        [sys.executable, "-m", "venv", str(place)],
        [*pip, wanted[0]],
        [*pip, "--constraint", str(constraints), *REQUIREMENTS[peer]],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            shutil.rmtree(place, ignore_errors=True)
            return Environment(python, problem=f"does not install: {last_line(done)}")
    names = ["torch"] if peer == "htfllib" else [REQUIREMENTS[peer][0].partition("[")[0], "torch"]
    program = f"from importlib.metadata import version; print(*map(version, {names!r}))"
    done = subprocess.run([str(python), "-c", program], capture_output=True, text=True)
    if done.returncode or len(numbers := done.stdout.split()) != len(names):
        shutil.rmtree(place, ignore_errors=True)
        return Environment(python, problem=f"does not start: {last_line(done)}")
    versions = ", ".join(f"{name} {number}" for name, number in zip(names, numbers, strict=True))
    mark.write_text(json.dumps({"wanted": wanted, "versions": versions}))
    return Environment(python, versions)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """Returns the last line that a program printed."""
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return lines[-1] if lines else "no message"
