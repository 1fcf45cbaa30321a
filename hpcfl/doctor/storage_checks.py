"""Checks of what a run needs against what there is: memory, disk, locks, data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hpcfl.doctor.disk import OutputDirectory
from hpcfl.doctor.finding import Finding, first_few, ok, problem, warning
from hpcfl.doctor.rank_checks import by_host
from hpcfl.doctor.rank_info import RankInfo
from hpcfl.errors import BadInput
from hpcfl.utils.formatting import format_bytes

UNKNOWN = "; what the run needs is known when the dataset is there"
LOCAL = {"nolock", "localflock", "local_lock=all", "local_lock=flock"}
"""Mount options with which a lock is seen by its own node only."""
DOUBLE = 2
"""A log is written aside as a whole before it takes the place of the last one."""
LARGER = "more shared memory (docker run --shm-size=; root: mount -o remount,size= /dev/shm), fewer clients"


@dataclass(frozen=True)
class Requirements:
    """Bytes that a run takes, by the host's name where it depends on it."""

    arena: Mapping[str, int]
    memory: Mapping[str, int]
    disk: Mapping[str, int] = field(default_factory=dict)
    """In the directory of the log, by what it is for."""


def check_shared(infos: Sequence[RankInfo], needs: Requirements | None, setting: str) -> Finding:
    """Does the arena fit into shared memory, and where does it go if it does not?"""
    from hpcfl.runtime.arena import SPARE, FreeSpace, choose_arena

    name = "shared memory"
    least = min(infos, key=lambda each: each.shared[0])
    seen = f"{format_bytes(least.shared[0])} free of {format_bytes(least.shared[1])} on {least.host}"
    if needs is None:
        return ok(name, seen + UNKNOWN)
    most = max(needs.arena.values())
    seen = f"{seen}, the arena needs {format_bytes(most)} and leaves {format_bytes(SPARE)} to others"
    rooms = {each.host: FreeSpace(each.shared[0], each.temporary[1]) for each in infos}
    try:
        kind, why = choose_arena(setting, [(host, 0, need) for host, need in needs.arena.items()], rooms)
    except BadInput as error:
        return problem(name, f"{seen}: {error}", f"set runtime.arena=auto, or {LARGER}")
    if not why:
        return ok(name, f"{seen}: {kind}")
    directory, _, mount = infos[0].temporary
    if kind == "private":
        return warning(
            name,
            f"{seen}: too small, and {directory} too: each rank keeps its own clients, which pins them",
            f"{LARGER}; or set TMPDIR to a disk of the node with room",
        )
    slow = f", on {mount.kind}, which is no disk of the node" if mount.is_remote else ""
    return warning(
        name,
        f"{seen}: too small, a mapped file in {directory} takes its place{slow}",
        f"{LARGER}; results do not change" + ("; set TMPDIR to a disk of the node" if slow else ""),
    )


def check_memory(infos: Sequence[RankInfo], needs: Requirements | None) -> Finding:
    """Do all ranks of a node fit into its memory?"""
    least = min(infos, key=lambda each: each.memory)
    seen = f"{format_bytes(least.memory)} on {least.host}"
    if needs is None:
        return ok("memory", seen + UNKNOWN)
    for host, need in needs.memory.items():
        there = by_host(infos)[host][0].memory
        if need > there:
            return problem(
                "memory",
                f"{host} has {format_bytes(there)}, its ranks need about {format_bytes(need)}",
                "start fewer ranks per node, or ask for more memory; hpcfl plan shows what takes it",
            )
    return ok("memory", f"{seen}, about {format_bytes(max(needs.memory.values()))} needed")


def check_output(infos: Sequence[RankInfo]) -> Finding:
    """Can the log be written? Rank 0 writes it."""
    name, place = "output", _place(infos)
    if place.trouble:
        remedy = f"mkdir -p {place.directory}" if place.missing else "choose another --out"
        return problem(name, f"cannot write to {place.directory}: {place.trouble}", remedy)
    others = [each.host for each in infos if each.place and each.place.trouble]
    if others:
        return warning(
            name,
            f"{place.directory} can be written to, but not from {first_few(others)}",
            "choose an --out on a file system that all nodes share",
        )
    return ok(name, f"{place.directory} can be written to ({place.mount.kind})")


def check_lock(infos: Sequence[RankInfo]) -> Finding:
    """Can a file be locked there, against a second job and for HDF5's readers?"""
    name, place = "lock", _place(infos)
    if place.trouble:
        return ok(name, "not tried: nothing can be written there")
    if place.lock:
        off = infos[0].environ.get("HDF5_USE_FILE_LOCKING", "").upper() in ("FALSE", "0", "BEST_EFFORT")
        seen = f"a file in {place.directory} cannot be locked: {place.lock} ({place.mount.kind})"
        elsewhere = "choose an --out on another file system (Lustre: one mounted with flock)"
        if off:
            return warning(
                name,
                f"{seen}; HDF5 is told to do without, two jobs on one output are not kept apart",
                f"start one job per output, or {elsewhere}",
            )
        return problem(
            name, seen, f"export HDF5_USE_FILE_LOCKING=FALSE and start one job per output, or {elsewhere}"
        )
    local = sorted(place.mount.options & LOCAL)
    if local:
        return warning(
            name,
            f"locks in {place.directory} are this node's own ({place.mount.kind}, {', '.join(local)})",
            "start one job per output: one on another node would not be noticed",
        )
    return ok(name, "files can be locked there")


def check_space(infos: Sequence[RankInfo], needs: Requirements | None) -> Finding:
    """Is there room for the log, twice, and for what else the run keeps?"""
    name, place = "disk space", _place(infos)
    if place.trouble:
        return ok(name, "not known: nothing can be written there")
    seen = f"{format_bytes(place.free)} free in {place.directory}"
    if needs is None:
        return ok(name, seen + UNKNOWN)
    need = DOUBLE * sum(needs.disk.values())
    parts = ", ".join(f"{what} {format_bytes(nbytes)}" for what, nbytes in needs.disk.items())
    seen = f"{seen}, {format_bytes(need)} needed while writing ({parts})"
    remedy = "free some, choose another --out, or log less (log.prototypes_every, log.local_prototypes)"
    if place.free < need:
        return problem(name, seen, remedy)
    if place.free < DOUBLE * need:
        return warning(name, f"{seen}: nearly full", remedy)
    return ok(name, f"{seen}; quotas are not looked at")


def check_dataset(infos: Sequence[RankInfo], data: str) -> Finding:
    """Is the dataset there, the same on all nodes?"""
    name = "dataset"
    without = [each for each in infos if each.dataset[1]]
    if without:
        seen, _, remedy = without[0].dataset[1].partition("; ")
        hosts = [host for host, ranks in by_host(infos).items() if any(each.dataset[1] for each in ranks)]
        where = "" if len(hosts) == len(by_host(infos)) else f" (on {first_few(hosts)})"
        return problem(name, seen + where, remedy or "hpcfl data list shows what there is")
    if len({each.dataset[0] for each in infos}) > 1:
        return problem(
            name,
            "the ranks read different configurations or data",
            "put both on a file system that all nodes share, or copy them anew",
        )
    return ok(name, f"{data} is there")


def _place(infos: Sequence[RankInfo]) -> OutputDirectory:
    """Returns what rank 0, which writes the log, sees."""
    assert infos[0].place is not None
    return infos[0].place
