"""Which processes train together: by Slurm's or torchrun's name for the job, else by the process tree."""

from __future__ import annotations

import re

from ckptprof.detect.streams import ProcessKey
from ckptprof_collectors.samples import ProcessInfo

TRAINING_RUNTIMES = frozenset(("torch", "jax", "tensorflow", "paddle", "mindspore", "mxnet"))
NUMERIC_RUNTIMES = frozenset(("numpy", "safetensors"))
GPU_RUNTIMES = frozenset(("cuda", "hip", "nccl", "gpu"))
_TOOLS = frozenset(
    (
        "cp", "mv", "dd", "rsync", "scp", "sftp", "tar", "gzip", "gunzip", "pigz", "zstd", "xz", "zip", "unzip", "cat",
        "git", "git-lfs", "pip", "pip3", "conda", "apt", "apt-get", "dpkg", "dnf", "rpm", "npm", "node", "curl", "wget",
        "aria2c", "aws", "gsutil", "rclone", "azcopy", "huggingface-cl", "hf", "postgres", "mysqld", "sqlite3",
        "redis-server", "fio", "cc1", "cc1plus", "ld", "rustc", "systemd-coredum", "journald", "logrotate", "rsyslogd",
        "sha256sum", "md5sum",
    )
)  # fmt: skip
MAX_KNOWN = 20_000
_MADE_UP = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # torchrun's own run id says nothing to a person


class JobBook:
    """Knows the processes that were described, and what job each belongs to."""

    def __init__(self, monitor_pids: tuple[int, ...] = ()) -> None:
        """Start with nobody; `monitor_pids` are ckptprof's own and never a job's root."""
        self._infos: dict[ProcessKey, ProcessInfo] = {}
        self._current: dict[int, ProcessKey] = {}
        self._monitors = frozenset(monitor_pids)
        self._comms: dict[ProcessKey, str] = {}  # of those that were traced, but lived too shortly to be described

    def learn(self, info: ProcessInfo) -> None:
        """Take a description; what an earlier one knew of runtimes is kept."""
        key = (info.pid, info.start_ticks)
        if len(self._infos) >= MAX_KNOWN and key not in self._infos:
            oldest = next(iter(self._infos))
            del self._infos[oldest]
            if self._current.get(oldest[0]) == oldest:
                del self._current[oldest[0]]
        self._infos[key] = info
        self._current[info.pid] = key

    def hear(self, process: ProcessKey, comm: str) -> None:
        """Take the name of a process that did something; whether it will be described is open."""
        if process not in self._infos:
            while len(self._comms) >= MAX_KNOWN and process not in self._comms:
                del self._comms[next(iter(self._comms))]
            self._comms[process] = comm

    def comm(self, process: ProcessKey) -> str:
        """Return the name of a process; empty if it is not known."""
        info = self._infos.get(process)
        return info.comm if info is not None else self._comms.get(process, "")

    def info(self, process: ProcessKey) -> ProcessInfo | None:
        """Return what is known of a process."""
        return self._infos.get(process)

    def parent(self, process: ProcessKey) -> ProcessKey | None:
        """Return its parent, if that is known."""
        info = self._infos.get(process)
        return self._current.get(info.parent_pid) if info is not None else None

    def job_of(self, process: ProcessKey) -> str:
        """Return the job's name: the same for all its processes, whatever the order in which they were met."""
        info = self._infos.get(process)
        if info is None:
            return f"pid-{process[0]}"
        environment = info.environment
        if "SLURM_JOB_ID" in environment:
            return f"slurm-{environment['SLURM_JOB_ID']}"
        root = self._root(info)
        run_id = environment.get("TORCHELASTIC_RUN_ID")
        program = _script(root, info)
        if run_id and run_id != "none" and not _MADE_UP.fullmatch(run_id):
            return f"{program}-{run_id}"
        return f"{program}-{root.pid}"

    def _root(self, info: ProcessInfo) -> ProcessInfo:
        seen = {info.pid}
        while info.parent_pid not in seen and info.parent_pid not in self._monitors:
            key = self._current.get(info.parent_pid)
            parent = self._infos.get(key) if key is not None else None
            if parent is None or parent.start_ticks > info.start_ticks or not _is_script(parent):
                break
            seen.add(parent.pid)
            info = parent
        return info

    def is_tool(self, process: ProcessKey) -> bool:
        """Return whether it is a program that copies, packs, installs or serves, and trains nothing."""
        info = self._infos.get(process)
        if info is None:
            return self._comms.get(process) in _TOOLS
        return info.comm in _TOOLS or info.program in _TOOLS

    def rank(self, process: ProcessKey) -> int | None:
        """Return the process's rank, from its environment."""
        return self._number(process, ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "JAX_PROCESS_ID"))

    def ranks(self, process: ProcessKey) -> int | None:
        """Return how many ranks the job has, from the environment."""
        return self._number(process, ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "JAX_NUM_PROCESSES"))

    def _number(self, process: ProcessKey, names: tuple[str, ...]) -> int | None:
        info = self._infos.get(process)
        for name in names:
            value = info.environment.get(name, "") if info else ""
            if value.isascii() and value.isdigit() and len(value) < 10:
                return int(value)
        return None


def _is_script(info: ProcessInfo) -> bool:
    return info.comm.startswith(("python", "pt_main_thread", "torchrun", "accelerate", "deepspeed", "pypy")) or (
        info.program.endswith(".py")
    )


def _script(root: ProcessInfo, leaf: ProcessInfo) -> str:
    """Return the program that names the job best: the leaf's script, unless the leaf is but a helper of the root."""
    for info in (leaf, root):
        if info.program.endswith(".py"):
            return info.program
    return root.program or leaf.program or leaf.comm
