"""Checks of the ranks: launch, cores, binding, devices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from hpcfl.doctor.finding import Finding, first_few, ok, problem, warning
from hpcfl.doctor.rank_info import RankInfo
from hpcfl.runtime import cores
from hpcfl.utils.formatting import plural

SIZE_VARIABLES = (
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "SLURM_STEP_NUM_TASKS",
    "MV2_COMM_WORLD_SIZE",
    "FLUX_JOB_SIZE",
)
"""Environment variables in which launchers give the number of processes."""
RANK_VARIABLES = ("PMIX_RANK", "PMI_RANK", "PALS_RANKID", "FLUX_TASK_RANK")
SLOT_VARIABLES = ("SLURM_NTASKS", "LSB_DJOB_NUMPROC", "PBS_NP", "NSLOTS")
"""Environment variables in which batch systems give the number of processes of a job."""
OWN_MPIRUN = (
    "use the mpirun that belongs to this Python, beside it in its bin directory, "
    "or with srun the --mpi= that this MPI speaks (srun --mpi=list)"
)


def by_host(infos: Sequence[RankInfo]) -> dict[str, list[RankInfo]]:
    hosts: dict[str, list[RankInfo]] = {}
    for each in infos:
        hosts.setdefault(each.host, []).append(each)
    return hosts


def check_launch(infos: Sequence[RankInfo], refusal: str = "") -> Finding:
    """Checks that the launcher started one MPI job, and not processes that each run alone.

    `refusal` says why the ranks could not be connected.
    """
    name, first = "launch", infos[0]
    if refusal:
        detail, _, remedy = refusal.rpartition("; ")
        return problem(name, detail, remedy)
    if len(infos) == 1:
        return _check_one(name, first)
    hosts = by_host(infos)
    launcher = first.launcher.name if first.launcher else "an unknown launcher"
    counts = first_few([f"{host} {len(ranks)}" for host, ranks in hosts.items()])
    nodes = sum(each.local_rank == 0 for each in infos)
    if nodes > len(hosts):
        return warning(
            name,
            f"{launcher}: {plural(len(infos), 'rank')}, {plural(len(hosts), 'host')} ({counts}), "
            f"where MPI sees {nodes} nodes: ranks of a host do not share memory",
            "start all ranks of a host in one container, or in containers with its /dev/shm and its name",
        )
    return ok(name, f"{launcher}: {plural(len(infos), 'rank')} on {plural(len(hosts), 'node')} ({counts})")


def _check_one(name: str, info: RankInfo) -> Finding:
    variables = {key: info.environ[key] for key in SIZE_VARIABLES if _number(info.environ, key) > 1}
    if not info.launcher:
        variables |= {key: info.environ[key] for key in RANK_VARIABLES if key in info.environ}
    if variables:
        words = ", ".join(f"{key}={value}" for key, value in variables.items())
        return problem(name, f"one process by itself, although a launcher was there ({words})", OWN_MPIRUN)
    if info.launcher:
        return ok(name, f"{info.launcher.name}: 1 rank on {info.host}: server and clients in turn")
    slots = {key: info.environ[key] for key in SLOT_VARIABLES if _number(info.environ, key) > 1}
    if slots:
        words = ", ".join(f"{key}={value}" for key, value in slots.items())
        start = "srun" if "SLURM_NTASKS" in slots else "mpirun"
        return warning(
            name, f"one process, although the job has room for more ({words})", f"{start} hpcfl doctor"
        )
    return ok(name, f"one process on {info.host}, without a launcher: server and clients in turn")


def _number(environ: Mapping[str, str], key: str) -> int:
    value = environ.get(key, "")
    return int(value) if value.isdecimal() else 0


def check_cores(infos: Sequence[RankInfo], threads: int) -> Finding:
    """Warns if the workers' threads are more than the cores; the server sleeps while workers train."""
    workers = max(1, len(infos) - 1)
    total = cores.total_cores((each.host, each.cores) for each in infos)
    detail = f"{plural(workers, 'worker')} × {plural(threads, 'thread')} on {plural(total, 'core')}"
    if workers * threads <= total:
        return ok("cores", detail)
    enough = max(1, total // threads) + (len(infos) > 1)
    return warning(
        "cores",
        f"{detail}: oversubscribed (results do not change)",
        f"ask for {workers * threads} cores, or start {plural(enough, 'rank')}: more only wait",
    )


def check_binding(infos: Sequence[RankInfo], threads: int) -> Finding:
    """Checks that the ranks of a host are not bound to fewer cores than they can use."""
    name = "binding"
    narrow = 0
    for host, ranks in by_host(infos).items():
        sets = [each.cores[0] for each in ranks]
        used, allotted = frozenset().union(*sets), max(each.allotted for each in ranks)
        needed = min(allotted, len(ranks) * threads)
        if len(used) < needed and len(ranks) > 1:
            same = "the same core" if len(used) == 1 else f"the same {len(used)} cores"
            detail = f"all {len(ranks)} ranks of {host} are bound to {same}"
            if len(set(sets)) > 1:
                detail = f"the {len(ranks)} ranks of {host} are bound to {plural(len(used), 'core')}"
            return problem(name, f"{detail}, the job has {allotted} there", _unbind(infos[0], threads))
        narrow += sum(len(own) < min(threads, allotted) for own in sets)
    if narrow:
        return warning(
            name,
            f"{plural(narrow, 'rank')} may run on fewer cores than runtime.threads = {threads}",
            _unbind(infos[0], threads),
        )
    return ok(name, _describe_binding(infos))


def _describe_binding(infos: Sequence[RankInfo]) -> str:
    sizes = sorted({len(each.cores[0]) for each in infos})
    free = all(len(each.cores[0]) >= each.allotted for each in infos)
    quota = min(each.cores[1] for each in infos)
    each = plural(sizes[0], "core") if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} cores"
    words = "none: a rank may run on every core of the job" if free else f"{each} per rank"
    limit = f", within a quota of {quota:g} core{'' if quota == 1 else 's'}"
    return words + ("" if math.isinf(quota) else limit)


def _unbind(info: RankInfo, threads: int) -> str:
    """Returns the launcher's option that gives ranks the cores that they need."""
    if info.launcher is None:
        return "start it without taskset, or ask the batch system for more cores"
    if info.launcher.name == "srun":
        return f"srun --cpus-per-task={threads} --cpu-bind=cores (since Slurm 22.05 srun must be told)"
    if info.launcher.open_mpi:
        more = "" if threads == 1 else f", or --map-by slot:PE={threads}"
        return f"mpirun --bind-to none{more}"
    return "mpirun -bind-to none"


def check_devices(infos: Sequence[RankInfo], setting: str) -> Finding:
    """Checks that every rank has the device that runtime.device asks for."""
    name, hosts = "devices", by_host(infos)
    without_gpu = [host for host, ranks in hosts.items() if not all(each.gpus.count for each in ranks)]
    if setting == "cpu":
        return ok(name, "cpu, as runtime.device says")
    for each in infos:
        if each.gpus.trouble:
            return problem(
                name,
                f"rank {each.rank} on {each.host} cannot use its GPU: {each.gpus.trouble}",
                "ask for one that ranks may share (nvidia-smi -c DEFAULT) and whose driver fits this torch, "
                "or set runtime.device=cpu",
            )
    if without_gpu and setting != "auto":
        return problem(
            name,
            f"runtime.device = {setting!r}, but ranks on {first_few(without_gpu)} see no GPU",
            _gpu_remedy(infos) + ", or set runtime.device=cpu",
        )
    if len(without_gpu) == len(hosts):
        if any(each.gpus.hardware for each in infos):
            return warning(name, "there is a GPU, but torch does not see it: cpu", _gpu_remedy(infos))
        return ok(name, "cpu: no GPU here")
    if without_gpu:
        return problem(
            name,
            f"ranks on {first_few(without_gpu)} see no GPU, others do: the type fixes the last bits",
            "ask for the same on all nodes, or set runtime.device=cpu",
        )
    kinds = sorted({each.gpus.kind for each in infos})
    if len(kinds) > 1:
        return problem(
            name,
            f"ranks see devices of different types, {' and '.join(kinds)}, which fix the last bits",
            "set runtime.device to one of them, or to cpu",
        )
    return ok(name, "; ".join(_describe_gpus(host, ranks) for host, ranks in hosts.items()))


def _gpu_remedy(infos: Sequence[RankInfo]) -> str:
    torch = infos[0].versions.get("torch", "")
    if any(each.gpus.hardware for each in infos):
        return f"install a torch with CUDA (this is {torch}) and look at CUDA_VISIBLE_DEVICES"
    return "ask the batch system for GPUs (Slurm: --gpus-per-node=)"


def _describe_gpus(host: str, ranks: Sequence[RankInfo]) -> str:
    counts = sorted({each.gpus.count for each in ranks})
    number = f"{counts[0]} to {counts[-1]} GPUs" if len(counts) > 1 else plural(counts[0], "GPU")
    return f"{host}: {plural(len(ranks), 'rank')}, each sees {number}"


def check_workers(infos: Sequence[RankInfo], per_round: int) -> Finding:
    """Warns if there are more workers than clients in a round."""
    workers = max(1, len(infos) - 1)
    detail = f"{plural(per_round, 'client')} per round for {plural(workers, 'worker')}"
    if workers <= per_round:
        return ok("clients", detail)
    return warning(
        "clients",
        f"{detail}: {workers - per_round} will idle",
        f"{per_round + 1} ranks are enough for this run",
    )
