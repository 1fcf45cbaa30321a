"""A Slurm of three virtual nodes on this machine, in a directory of its own."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

NODES = ("n1", "n2", "n3")
CONFIGURATION = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={home}/munge.socket
CredType=cred/munge
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool-%n
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd-%n.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/slurmd-%n.log
PlugStackConfig={home}/plugstack.conf
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
FirstJobId={first}
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
ReturnToService=2
KillWait=10
SlurmdTimeout=60
SchedulerParameters=sched_interval=5,bf_interval=5
{nodes}
PartitionName=lab Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=NO
"""


@dataclass
class Cluster:
    """The daemons of a Slurm: munged, slurmctld, and a slurmd per node."""

    home: Path
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environ(self) -> dict[str, str]:
        """Returns this process's environment, with Slurm's commands pointed at this cluster."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
        return clean | {"SLURM_CONF": str(self.home / "slurm.conf")}

    def start(self) -> None:
        """Configures and starts all daemons and returns when every node is idle."""
        (self.home / "state").mkdir()
        (self.home / "plugstack.conf").touch()
        key = self.home / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(1024))
        port, *ports = free_ports(1 + len(NODES))
        host = socket.gethostname()
        nodes = "\n".join(
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={own} CPUs=4 State=UNKNOWN"
            for node, own in zip(NODES, ports, strict=True)
        )
        first = 1 + secrets.randbelow(60_000_000)  # MPICH's shared memory of killed jobs goes by their number
        text = CONFIGURATION.format(host=host, port=port, home=self.home, nodes=nodes, first=first)
        (self.home / "slurm.conf").write_text(text)
        files = {
            "socket": "socket",
            "key-file": "key",
            "pid-file": "pid",
            "log-file": "log",
            "seed-file": "seed",
        }
        options = [f"--{option}={self.home}/munge.{name}" for option, name in files.items()]
        self._daemon("munged", "munged", "--foreground", "--force", *options)
        until(lambda: (self.home / "munge.socket").exists(), 10, "munged does not start")
        self._daemon("slurmctld", "slurmctld", "-D")
        for node in NODES:
            self.start_node(node)
        until(lambda: self.states() == dict.fromkeys(NODES, "idle"), 60, "the nodes do not become idle")

    def start_node(self, node: str) -> None:
        (self.home / f"spool-{node}").mkdir(exist_ok=True)
        self._daemon(node, "slurmd", "-D", "-N", node)

    def _daemon(self, name: str, *command: str) -> None:
        with (self.home / f"{name}.out").open("ab") as out:
            self.daemons[name] = subprocess.Popen(
                command, env=self.environ, stdout=out, stderr=out, start_new_session=True
            )
        with (self.home / "pids").open("a") as pids:
            print(self.daemons[name].pid, name, file=pids)

    def states(self) -> dict[str, str]:
        """Returns the state of every node; none while there is no controller."""
        try:
            lines = self.ask("sinfo", "--noheader", "--Node", "--format=%N %t").splitlines()
        except subprocess.CalledProcessError:
            return {}
        return dict(line.split() for line in lines)

    def ask(self, *command: str) -> str:
        """Runs one of Slurm's commands and returns what it prints."""
        done = subprocess.run(
            command,
            env=self.environ,
            check=True,
            timeout=60,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        return done.stdout.decode()

    def fail(self, node: str) -> None:
        """Takes a node down as a power cut would: its slurmd and all that runs on it is killed."""
        self.daemons[node].kill()
        self.daemons[node].wait()
        for pid in self.processes(node):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self.ask("scontrol", "update", f"nodename={node}", "state=down", "reason=lab")

    def mend(self) -> None:
        """Brings failed nodes back and returns when every node is idle."""
        for node in NODES:
            if self.daemons[node].poll() is not None:
                self.start_node(node)
        until(lambda: set(self.states().values()) == {"idle"}, 60, "the nodes do not become idle")

    def processes(self, node: str = "") -> set[int]:
        """Returns the tasks of this cluster's jobs, on one node or on all, and the slurmstepd above each."""
        mine, found = f"SLURM_CONF={self.home}/slurm.conf".encode(), set()
        for entry in Path("/proc").iterdir():
            try:
                environ = (entry / "environ").read_bytes().split(b"\0") if entry.name.isdigit() else []
                if mine in environ and any(
                    v.startswith(b"SLURMD_NODENAME=" + node.encode()) for v in environ
                ):
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                    above = Path(f"/proc/{parent}/cmdline").read_bytes()
                    found |= {int(entry.name)} | ({parent} if above.startswith(b"slurmstepd") else set())
            except (OSError, IndexError):
                continue
        return found

    def is_daemon(self, pid: int) -> bool:
        """Says whether a process is one of this cluster's daemons, and not a later one of the same number."""
        for daemon in self.daemons.values():
            daemon.poll()
        with contextlib.suppress(OSError):
            return f"{self.home}/slurm.conf".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        return False

    def stop(self) -> None:
        """Ends all jobs and daemons, and leaves no process behind."""
        with contextlib.suppress(subprocess.SubprocessError):
            self.ask("scancel", "--user=root")
            until(lambda: not self.ask("squeue", "--noheader"), 30, "")
        daemons = [int(line.split()[0]) for line in (self.home / "pids").read_text().splitlines()]
        ours = [pid for pid in reversed(daemons) if self.is_daemon(pid)]  # also those of an earlier command
        for pid in ours:
            os.kill(pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            until(lambda: not any(map(self.is_daemon, ours)), 15, "")
        for pid in filter(self.is_daemon, ours):
            os.kill(pid, signal.SIGKILL)
        for pid in self.processes():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.home, ignore_errors=True)


def until(condition: Callable[[], object], seconds: float, problem: str) -> None:
    """Returns once the condition holds, or raises TimeoutError with the problem."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(problem)
        time.sleep(0.3)


def free_ports(count: int) -> list[int]:
    """Returns ports that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
