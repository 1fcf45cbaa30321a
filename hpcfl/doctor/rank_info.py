"""What a rank finds out about its machine; the checks use this information of all ranks."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from hpcfl import __version__
from hpcfl.comm.communicator import Communicator
from hpcfl.comm.launcher import Launcher
from hpcfl.comm.mpi_library import MpiLibrary, find_mpi_library
from hpcfl.config.identity import fingerprint
from hpcfl.config.schema import Config
from hpcfl.data.load import load_dataset
from hpcfl.doctor.disk import Mount, OutputDirectory, mount_of, probe_output
from hpcfl.doctor.shm_segments import Segment, stale_segments
from hpcfl.errors import BadInput
from hpcfl.runtime import cores
from hpcfl.runtime.devices import device_for, set_up_torch

SHARED_MEMORY = Path("/dev/shm")
PACKAGES = ("torch", "numpy", "scipy", "h5py", "mpi4py")
ENVIRONMENT = (
    *("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "MV2_COMM_WORLD_SIZE", "FLUX_JOB_SIZE"),
    *("PMIX_RANK", "PMI_RANK", "PALS_RANKID", "FLUX_TASK_RANK"),
    *("SLURM_JOB_ID", "SLURM_NTASKS", "LSB_DJOB_NUMPROC", "PBS_NP", "NSLOTS"),
    *("FI_PROVIDER", "UCX_TLS", "UCX_NET_DEVICES", "MPIR_CVAR_CH4_NETMOD", "MPICH_OFI_NIC_POLICY"),
    *("I_MPI_FABRICS", "I_MPI_OFI_PROVIDER", "HDF5_USE_FILE_LOCKING", "CUDA_VISIBLE_DEVICES"),
    *("OMPI_MCA_pml", "OMPI_MCA_btl", "OMPI_MCA_mtl", "PMIX_MCA_gds"),
)
"""Environment variables that tell how a job was started and which network it uses."""


@dataclass(frozen=True)
class GpuInfo:
    """The accelerators that torch sees on a rank, of the type that runtime.device asks for."""

    count: int = 0
    hardware: bool = False
    """Whether the node has a GPU, even if torch does not see it."""
    trouble: str = ""
    """Why this rank cannot compute on its GPU; empty if it can, or if there is none."""
    kind: str = "cuda"
    """The type of device."""


@dataclass(frozen=True)
class RankInfo:
    """The information of one rank."""

    host: str
    rank: int = 0
    local_rank: int = 0
    launcher: Launcher | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    cores: cores.RankCores = (frozenset((0,)), float("inf"))
    allotted: int = 1
    """Cores of this host that the job may use, whatever its ranks are bound to."""
    gpus: GpuInfo = GpuInfo()
    shared: tuple[int, int] = (0, 0)
    """Bytes of shared memory: free and total."""
    temporary: tuple[str, int, Mount] = ("", 0, Mount())
    """The temporary directory, its free bytes and its file system."""
    memory: int = 0
    output: OutputDirectory | None = None
    """The directory of the log; only on the first rank of a node."""
    dataset: tuple[str, str] = ("", "")
    """Fingerprint of configuration and data, and why the data cannot be read (empty if it can)."""
    library: MpiLibrary = MpiLibrary()  # noqa: RUF009  # it is frozen
    wheel: bool = False
    """Whether the MPI library is part of the Python environment."""
    fabric: tuple[str, ...] = ()
    """Fast network devices of the host."""
    segments: tuple[Segment, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)


def collect_rank_info(comm: Communicator, launcher: Launcher | None, config: Config, out: Path) -> RankInfo:
    """Returns the information of this rank; imports torch."""
    set_up_torch(config.runtime, comm.local_rank, on="cpu")
    from hpcfl.plan.machine import machine_like_here
    from hpcfl.runtime.arena import free_space

    first, mpi = comm.local_rank == 0, find_mpi_library()
    free, temporary = free_space(), tempfile.gettempdir()
    return RankInfo(
        platform.node(),
        comm.rank,
        comm.local_rank,
        launcher,
        {name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
        cores.own_cores(),
        cpuset_cores(),
        find_gpus(config.runtime.device, comm.local_rank),
        (free.shared, _size(SHARED_MEMORY)),
        (temporary, free.mapped, mount_of(temporary)),
        machine_like_here(1, 1, 0, None, None, None).memory,
        probe_output(out) if first else None,
        _dataset(config),
        mpi,
        _within_python(mpi.path),
        tuple(_names(Path("/sys/class/infiniband"), Path("/sys/class/cxi"))),
        tuple(stale_segments(SHARED_MEMORY, Path(temporary))) if first else (),
        {"hpcfl": __version__, "python": platform.python_version()}
        | {name: _version(name) for name in PACKAGES},
    )


def cpuset_cores(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Returns the cores of this host that the control group of this process may use."""
    try:
        lines = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        lines = []
    for _, controllers, path in (line for line in lines if len(line) == 3):
        base = root / "cpuset" if "cpuset" in controllers.split(",") else root
        for name in ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"):
            try:
                return _count((base / path.lstrip("/") / name).read_text())
            except (OSError, ValueError):
                continue
    return os.cpu_count() or 1


def _count(ranges: str) -> int:
    """Returns how many numbers a list like 0-3,8 has."""
    ends = [[int(end) for end in part.split("-")] for part in ranges.strip().split(",")]
    return sum(end[-1] - end[0] + 1 for end in ends)


def find_gpus(setting: str, local_rank: int) -> GpuInfo:
    """Returns the GPUs that torch sees; uses one, because some errors only occur then."""
    import torch

    from hpcfl.utils import accelerator

    hardware = any(Path("/dev", name).exists() for name in ("nvidiactl", "kfd", "dxg"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kind, count = accelerator.find_accelerators(setting)
    trouble = " ".join(str(caught[0].message).split()) if caught and not count else ""
    if count and setting != "cpu":
        try:
            torch.zeros(1, device=device_for(setting, local_rank, kind, count)).cpu()
        except RuntimeError as error:
            trouble = str(error).splitlines()[0]
    return GpuInfo(count, hardware, trouble, kind)


def _dataset(config: Config) -> tuple[str, str]:
    try:
        return f"{fingerprint(config)} {load_dataset(config.data).checksum}", ""
    except BadInput as error:
        return fingerprint(config), str(error)


def _within_python(path: str) -> bool:
    """Returns whether a library is part of the Python environment: from a wheel or from conda."""
    prefix = Path(sys.prefix).resolve()
    return bool(path) and str(prefix) not in ("/usr", "/usr/local") and Path(path).is_relative_to(prefix)


def _size(directory: Path) -> int:
    try:
        stats = os.statvfs(directory)
    except OSError:
        return 0
    return stats.f_blocks * stats.f_frsize


def _names(*directories: Path) -> Iterable[str]:
    for directory in directories:
        try:
            yield from sorted(os.listdir(directory))
        except OSError:
            continue


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"
