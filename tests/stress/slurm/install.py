"""Installs Debian's Slurm if it is missing, and refuses machines on which the lab cannot run."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch")
PACKAGES = ("slurm-wlm", "munge")


class Unusable(Exception):
    """The lab cannot run on this machine: shown as one sentence, exit code 2."""


def refuse_second() -> None:
    """Raises if a Slurm runs on this machine already."""
    if _process_names() & {"slurmctld", "slurmd"}:
        raise Unusable("a Slurm runs here already")
    if shutil.which("scontrol"):
        done = subprocess.run(["scontrol", "ping"], capture_output=True, text=True)
        if "is UP" in done.stdout:
            raise Unusable("a Slurm runs here already")


def install() -> None:
    """Installs Slurm and munge, once; raises without root or on another system."""
    if os.geteuid() != 0:
        raise Unusable("needs root, to install and start Slurm")
    if not Path("/etc/debian_version").exists():
        raise Unusable("needs Debian or Ubuntu, to install Slurm")
    if all(map(shutil.which, PROGRAMS)):
        return
    print(f"slurm: installing {' and '.join(PACKAGES)} (once)", file=sys.stderr)
    environ = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "--no-install-recommends", *PACKAGES]):
        done = subprocess.run(["apt-get", "-qq", *command], env=environ, capture_output=True, text=True)
        if done.returncode != 0:
            raise Unusable(f"apt-get {command[0]} failed: {done.stderr.strip()}")


def _process_names() -> set[str]:
    """Returns the names of all processes of this machine."""
    names = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            names.add((entry / "comm").read_text().strip())
    return names
