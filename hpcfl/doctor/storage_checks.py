"""Checks of memory, disk space, file locks and data against what a run needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hpcfl.doctor.disk import OutputDirectory
from hpcfl.doctor.finding import Finding, first_few, ok, problem, warning
from hpcfl.doctor.rank_checks import by_host
from hpcfl.doctor.rank_info import RankInfo
from hpcfl.errors import BadInput
from hpcfl.utils.formatting import format_bytes, format_memory

NEEDS_UNKNOWN = "; what the run needs is known when the dataset is there"
LOCAL_LOCK_OPTIONS = {"nolock", "localflock", "local_lock=all", "local_lock=flock"}
"""Mount options with which a file lock is only visible on its own node."""
COPIES = 2
"""Copies of the log on disk while it is written: a new file replaces the last one."""
MORE_SHARED_MEMORY = (
    "more shared memory (docker run --shm-size=; root: mount -o remount,size= /dev/shm), fewer clients"
)


@dataclass(frozen=True)
class Requirements:
    """Bytes that a run needs; arena and memory by host name."""

    arena: Mapping[str, int]
    memory: Mapping[str, int]
    disk: Mapping[str, int] = field(default_factory=dict)
    """In the directory of the log, by purpose."""


def check_shared(infos: Sequence[RankInfo], needs: Requirements | None, setting: str) -> Finding:
    """Checks that the arena fits into shared memory; otherwise says what will be used instead."""
    from hpcfl.runtime.arena import RESERVED_BYTES, FreeSpace, choose_arena

    name = "shared memory"
    least = min(infos, key=lambda each: each.shared[0])
    detail = f"{format_memory(least.shared[0])} free of {format_memory(least.shared[1])} on {least.host}"
    if needs is None:
        return ok(name, detail + NEEDS_UNKNOWN)
    largest = max(needs.arena.values())
    reserved = format_memory(RESERVED_BYTES)
    detail = f"{detail}, the arena needs {format_memory(largest)} and leaves {reserved} to others"
    free = {each.host: FreeSpace(each.shared[0], each.temporary[1]) for each in infos}
    try:
        kind, why = choose_arena(setting, [(host, 0, need) for host, need in needs.arena.items()], free)
    except BadInput as error:
        return problem(name, f"{detail}: {error}", f"set runtime.arena=auto, or {MORE_SHARED_MEMORY}")
    if not why:
        return ok(name, f"{detail}: {kind}")
    directory, _, mount = infos[0].temporary
    if kind == "private":
        return warning(
            name,
            f"{detail}: too small, and {directory} too: each rank keeps its own clients, which pins them",
            f"{MORE_SHARED_MEMORY}; or set TMPDIR to a disk of the node with room",
        )
    slow = f", on {mount.kind}, which is no disk of the node" if mount.is_remote else ""
    return warning(
        name,
        f"{detail}: too small, a mapped file in {directory} takes its place{slow}",
        f"{MORE_SHARED_MEMORY}; results do not change"
        + ("; set TMPDIR to a disk of the node" if slow else ""),
    )


def check_memory(infos: Sequence[RankInfo], needs: Requirements | None) -> Finding:
    """Checks that all ranks of a node fit into its memory."""
    least = min(infos, key=lambda each: each.memory)
    detail = f"{format_memory(least.memory)} on {least.host}"
    if needs is None:
        return ok("memory", detail + NEEDS_UNKNOWN)
    for host, need in needs.memory.items():
        available = by_host(infos)[host][0].memory
        if need > available:
            return problem(
                "memory",
                f"{host} has {format_memory(available)}, its ranks need about {format_memory(need)}",
                "start fewer ranks per node, or ask for more memory; hpcfl plan shows what takes it",
            )
    return ok("memory", f"{detail}, about {format_memory(max(needs.memory.values()))} needed")


def check_output(infos: Sequence[RankInfo]) -> Finding:
    """Checks that rank 0 can write the log, and warns if other nodes cannot."""
    name, output = "output", _output(infos)
    if output.trouble:
        return problem(name, f"cannot write to {output.directory}: {output.trouble}", "choose another --out")
    others = [
        each.host
        for each in infos
        if each.output and (each.output.trouble or each.output.directory != output.directory)
    ]
    if others:
        return warning(
            name,
            f"{output.directory} can be written to, but not from {first_few(others)}",
            "choose an --out on a file system that all nodes share",
        )
    return ok(name, f"{output.directory} can be written to ({output.mount.kind})")


def check_lock(infos: Sequence[RankInfo]) -> Finding:
    """Checks that files can be locked there, against a second job and for HDF5's readers."""
    name, output = "lock", _output(infos)
    if output.trouble:
        return ok(name, "not tried: nothing can be written there")
    if output.held:
        detail = f"{output.held} is held: another job writes this log"
        return problem(name, detail, "wait for it to end, or choose another --out")
    if output.lock:
        off = infos[0].environ.get("HDF5_USE_FILE_LOCKING", "").upper() in ("FALSE", "0", "BEST_EFFORT")
        detail = f"a file in {output.directory} cannot be locked: {output.lock} ({output.mount.kind})"
        elsewhere = "choose an --out on another file system (Lustre: one mounted with flock)"
        if off:
            return warning(
                name,
                f"{detail}; HDF5 is told to do without, two jobs on one output are not kept apart",
                f"start one job per output, or {elsewhere}",
            )
        return problem(
            name, detail, f"export HDF5_USE_FILE_LOCKING=FALSE and start one job per output, or {elsewhere}"
        )
    local_options = ", ".join(sorted(output.mount.options & LOCAL_LOCK_OPTIONS))
    if local_options:
        return warning(
            name,
            f"locks in {output.directory} are this node's own ({output.mount.kind}, {local_options})",
            "start one job per output: one on another node would not be noticed",
        )
    return ok(name, "files can be locked there")


def check_space(infos: Sequence[RankInfo], needs: Requirements | None) -> Finding:
    """Checks that there is disk space for the log, twice, and for checkpoints."""
    name, output = "disk space", _output(infos)
    if output.trouble:
        return ok(name, "not known: nothing can be written there")
    detail = f"{format_bytes(output.free)} free in {output.directory}"
    if needs is None:
        return ok(name, detail + NEEDS_UNKNOWN)
    need = COPIES * sum(needs.disk.values())
    parts = ", ".join(f"{what} {format_bytes(nbytes)}" for what, nbytes in needs.disk.items())
    detail = f"{detail}, {format_bytes(need)} needed while writing ({parts})"
    remedy = "free some, choose another --out, or log less (log.prototypes_every, log.local_prototypes)"
    if output.free < need:
        return problem(name, detail, remedy)
    if output.free < COPIES * need:
        return warning(name, f"{detail}: nearly full", remedy)
    return ok(name, f"{detail}; quotas are not looked at")


def check_dataset(infos: Sequence[RankInfo], data: str) -> Finding:
    """Checks that the dataset is there, and the same on all nodes."""
    name = "dataset"
    unreadable = [each for each in infos if each.dataset[1]]
    if unreadable:
        detail, _, remedy = unreadable[0].dataset[1].partition("; ")
        hosts = [host for host, ranks in by_host(infos).items() if any(each.dataset[1] for each in ranks)]
        suffix = "" if len(hosts) == len(by_host(infos)) else f" (on {first_few(hosts)})"
        return problem(name, detail + suffix, remedy or "hpcfl data list shows what there is")
    if len({each.dataset[0] for each in infos}) > 1:
        return problem(
            name,
            "the ranks read different configurations or data",
            "put both on a file system that all nodes share, or copy them anew",
        )
    return ok(name, f"{data} is there")


def _output(infos: Sequence[RankInfo]) -> OutputDirectory:
    """Returns the directory of the log as rank 0 sees it, which writes it."""
    assert infos[0].output is not None
    return infos[0].output
