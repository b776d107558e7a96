"""A SLURM on this machine alone, in a folder of its own: its daemons, its configuration, and the way to its clients."""

from __future__ import annotations

import getpass
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

PROGRAMS = (
    *("munged", "mariadbd", "mariadb", "mariadb-install-db", "slurmdbd", "slurmctld", "slurmd", "srun", "sbatch"),
    *("scancel", "scontrol", "squeue", "sinfo", "sacct", "sacctmgr"),
)
PACKAGES = "slurm-wlm munge slurmdbd mariadb-server"
"""Of Debian and Ubuntu. Their services need not run."""
KILL_WAIT = 15
"""Seconds from SIGTERM to SIGKILL. SLURM's default is 30."""
REQUEUED_WAIT = 20
"""Seconds for which a requeued job waits: the life of a credential, by default 120.

It must be longer than KILL_WAIT: SLURM does not wait for the end of a job whose node is down.
"""

# A partition for each node and kind: a case has a node to itself, and preempts nobody else.
KINDS = {
    "debug": "PriorityTier=1 PreemptMode=OFF",
    "low": "PriorityTier=1 PreemptMode=REQUEUE",
    "grace": "PriorityTier=1 PreemptMode=REQUEUE GraceTime=60",
    "cancel": "PriorityTier=1 PreemptMode=CANCEL",
    "high": "PriorityTier=10 PreemptMode=OFF",
}
SLURM_CONF = """
ClusterName=rlpyt
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthInfo=socket={top}/munge.socket,cred_expire={requeued_wait}
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={top}/state
SlurmdSpoolDir={top}/spool_%n
SlurmctldPidFile={top}/slurmctld.pid
SlurmdPidFile={top}/slurmd_%n.pid
SlurmctldLogFile={top}/slurmctld.log
SlurmdLogFile={top}/slurmd_%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin={task_plugin}
ReturnToService=2
SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait={kill_wait}
MessageTimeout=10
GresTypes=gpu
NodeName=DEFAULT CPUs={cpus} RealMemory=1000 Gres=gpu:1 State=UNKNOWN
PartitionName=DEFAULT MaxTime=60 DefaultTime=10 State=UP
"""
ACCOUNTING = """
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={ports[1]}
AccountingStoragePass={top}/munge.socket
AccountingStorageEnforce=associations,limits
JobAcctGatherType=jobacct_gather/linux
"""
SLURMDBD_CONF = """
AuthType=auth/munge
AuthInfo=socket={top}/munge.socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={ports[1]}
SlurmUser={user}
LogFile={top}/slurmdbd.log
PidFile={top}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={ports[2]}
StorageUser=slurm
StoragePass={secret}
"""


def missing_programs() -> list[str]:
    """Return which of the programs are not installed."""
    return [name for name in PROGRAMS if _which(name) is None]


class OneMachine:
    """SLURM of so many nodes, all on this machine; a context manager, which starts and ends the daemons.

    Args:
        top: empty folder, with a short name, as it gets sockets.
        n_nodes: daemons that count as a node each, called n1, n2, ..., with partitions `debug1`, `low1` and so on.
        accounting: whether there is a database of jobs, which limits and `sacct` need.
        task_plugin: "task/affinity" binds jobs to cores, which are the same ones for every node.
    """

    def __init__(self, top: Path, n_nodes: int = 1, accounting: bool = True, task_plugin: str = "task/none") -> None:
        self.top, self._accounting = top, accounting
        self._nodes = [f"n{i + 1}" for i in range(n_nodes)]
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        ports, secret = _free_ports(3 + n_nodes), secrets.token_hex(8)
        host = socket.gethostname().split(".")[0]
        values = dict(host=host, user=getpass.getuser(), cpus=max(2, os.cpu_count() or 1))
        values |= dict(kill_wait=KILL_WAIT, requeued_wait=REQUEUED_WAIT, task_plugin=task_plugin)
        values |= dict(top=top, ports=ports, secret=secret)
        self._user, self._sql_port, self._secret = getpass.getuser(), ports[2], secret
        conf = (SLURM_CONF + (ACCOUNTING if accounting else "")).format(**values)
        for i, node in enumerate(self._nodes, 1):
            conf += f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2 + i]}\n"
            conf += "".join(f"PartitionName={kind}{i} Nodes={node} {rest}\n" for kind, rest in KINDS.items())
        (top / "slurm.conf").write_text(conf.replace("PartitionName=debug1", "PartitionName=debug1 Default=YES"))
        (top / "gres.conf").write_text("Name=gpu File=/dev/zero\n")
        (top / "slurmdbd.conf").touch(mode=0o600)
        (top / "slurmdbd.conf").write_text(SLURMDBD_CONF.format(**values))
        for folder in ("bin", "state"):
            (top / folder).mkdir()
        for name in PROGRAMS:
            (top / "bin" / name).symlink_to(_which(name) or "missing")
        self.env = {"PATH": f"{top}/bin:{os.environ['PATH']}", "SLURM_CONF": f"{top}/slurm.conf"}
        """What a process needs in its environment to reach this SLURM and no other."""

    def __enter__(self) -> OneMachine:
        try:
            self._start_munge()
            if self._accounting:
                self._start_database()
            self._start_controller()
            for node in self._nodes:
                self._start(f"slurmd_{node}", "slurmd", "-D", "-N", node)
            _wait("nodes", 60, lambda: set(self.ask("sinfo", "-h", "-N", "-o", "%T").split()) == {"idle"})
        except BaseException:
            self._stop_all()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self._cancel_all()
        finally:
            self._stop_all()

    def ask(self, *command: str) -> str:
        """Return what a client says, and "" if it fails."""
        done = subprocess.run(command, env={**os.environ, **self.env}, capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else ""

    def look_after_controller(self) -> None:
        """End slurmctld while the file `away` is in the folder. Jobs go on."""
        if not (self.top / "away").exists():
            self._start_controller()
        elif "slurmctld" in self._daemons:
            self._stop("slurmctld")

    def _start_controller(self) -> None:
        if "slurmctld" not in self._daemons:
            self._start("slurmctld", "slurmctld", "-D")
            _wait("slurmctld", 60, lambda: "UP" in self.ask("scontrol", "ping"))

    def _cancel_all(self) -> None:
        """Kill all jobs, and wait for their end."""
        self._start_controller()
        self.ask("scancel", "--full", "--signal=KILL", "--user", self._user)
        self.ask("scancel", "--user", self._user)
        _wait("end of jobs", 2 * KILL_WAIT, lambda: not self.ask("squeue", "-h"))

    def _start(self, title: str, *command: str) -> None:
        """Start a daemon in a session of its own: Ctrl-C in a terminal is not for it."""
        with open(self.top / f"{title}.out", "ab") as output:
            self._daemons[title] = subprocess.Popen(
                [f"{self.top}/bin/{command[0]}", *command[1:]],
                cwd=self.top,
                env={**os.environ, **self.env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _stop(self, title: str) -> None:
        daemon = self._daemons.pop(title)
        daemon.terminate()
        try:
            daemon.wait(20)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def _stop_all(self) -> None:
        for title in reversed([*self._daemons]):
            self._stop(title)

    def _start_munge(self) -> None:
        (self.top / "munge.key").touch(mode=0o600)
        (self.top / "munge.key").write_bytes(secrets.token_bytes(128))
        files = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munge.pid"}
        files |= {"log-file": "munge.log", "seed-file": "munge.seed"}
        options = [f"--{option}={self.top / name}" for option, name in files.items()]
        self._start("munged", "munged", "--foreground", "--force", *options)
        _wait("munged", 20, (self.top / "munge.socket").exists)

    def _start_database(self) -> None:
        data, sql = self.top / "sql", f"--socket={self.top}/sql.socket"
        options = [f"--datadir={data}", f"--user={self._user}"]
        made = [f"{self.top}/bin/mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal"]
        subprocess.run([*made, *options], check=True, stdout=subprocess.DEVNULL)
        bounds = ["--bind-address=127.0.0.1", f"--port={self._sql_port}", "--innodb-buffer-pool-size=64M"]
        more = ["--innodb-lock-wait-timeout=900", "--performance-schema=OFF", f"--pid-file={self.top}/sql.pid"]
        self._start("mariadbd", "mariadbd", "--no-defaults", *options, sql, *bounds, *more)
        user = f"'slurm'@'127.0.0.1' identified by '{self._secret}'"
        statement = f"create or replace user {user}; grant all on *.* to 'slurm'@'127.0.0.1'"
        ask = [f"{self.top}/bin/mariadb", "--no-defaults", "--user=root", sql, f"--execute={statement}"]
        _wait("mariadbd", 60, lambda: subprocess.run(ask, capture_output=True, check=False).returncode == 0)
        self._start("slurmdbd", "slurmdbd", "-D")
        manage = ("sacctmgr", "--immediate", "add")
        _wait("slurmdbd", 60, lambda: bool(self.ask(*manage, "cluster", "rlpyt")))
        for account, limit in (("all", "-1"), ("limited", "2")):
            self.ask(*manage, "account", account, f"MaxSubmitJobs={limit}")
            self.ask(*manage, "user", self._user, f"account={account}")


def _which(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/sbin")


def _wait(what: str, seconds: float, is_there: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while not is_there():
        if time.monotonic() > end:
            raise TimeoutError(f"A SLURM on this machine: {what} not there after {seconds:.0f} s.")
        time.sleep(0.2)


def _free_ports(n: int) -> Sequence[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports
