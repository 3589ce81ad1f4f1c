"""Program of a process, by its command line, and the environment variables that assign it to a job."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from ckptprof_collectors.samples import text

ENVIRONMENT_KEYS = frozenset(
    (
        "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK",
        "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEPID",
        "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "SLURM_JOB_NAME",
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_MCA_ess_base_jobid",
        "PMI_RANK", "PMI_SIZE", "PMIX_RANK", "PMIX_NAMESPACE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE",
        "PALS_RANKID", "HOROVOD_RANK", "HOROVOD_SIZE", "FLUX_JOB_ID", "FLUX_TASK_RANK", "FLUX_JOB_SIZE",
        "JAX_PROCESS_ID", "JAX_NUM_PROCESSES", "JAX_COORDINATOR_ADDRESS", "COORDINATOR_ADDRESS",
        "SLURM_CLUSTER_NAME", "SLURM_JOB_SLUID", "SLURM_RESTART_COUNT", "SLURM_NODEID", "SLURM_JOB_NUM_NODES",
        "SLURM_STEP_NUM_NODES", "SLURM_HET_SIZE", "GROUP_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
        "FLUX_JOB_NNODES", "PET_RDZV_ENDPOINT", "JOB_COMPLETION_INDEX", "HOSTNAME", "KUBERNETES_SERVICE_HOST",
        "POD_NAME", "POD_NAMESPACE", "LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX",
        "SLURM_JOB_USER", "SLURM_JOB_ACCOUNT", "SLURM_JOB_PARTITION",
    )
)  # fmt: skip
_MAX_VALUE_BYTES = 256
_INTERPRETERS = (b"python", b"pypy")
_WITH_VALUE = b"WX"  # options of one letter that take a value, beside -c and -m (`python --help`)
# `python -c` of the standard library and similar packages: from multiprocessing.spawn import spawn_main; ...
_POOL = re.compile(rb"\s*(?:import sys;\s*)?from ((?:multiprocessing|multiprocess|billiard|joblib|loky)[.\w]*) import ")


# debuggers and profilers, which run a script or a module in their own process
_WRAPPERS = frozenset(
    (
        b"IPython", b"cProfile", b"coverage", b"debugpy", b"ipdb", b"ipython", b"kernprof", b"memray", b"pdb",
        b"profile", b"pyinstrument", b"scalene", b"trace", b"viztracer",
    )
)  # fmt: skip
_NOTEBOOK_KERNELS = frozenset((b"ipykernel", b"ipykernel_launcher"))  # of notebooks

SLURM_JOBS_FOLDER = (
    "ckptprof-slurm/jobs"  # in /run, of root: a file for each job, by its number, of its prolog (deploy/slurm)
)
JOB_OWNER_VARIABLES = ("SLURM_JOB_USER", "SLURM_JOB_ACCOUNT", "SLURM_JOB_PARTITION")
_MAX_FILE_BYTES = 4096
_LINE = re.compile(r"([A-Z_]{1,64})=([!-~]{1,256})")
_JOB = re.compile(r"[0-9]{1,10}")
_IN_CGROUP = re.compile(r"/job_([0-9]{1,10})/step_")


def job_owner_variables(
    run: Path, cgroup: str | None, environment: Mapping[str, str], uid: int | None
) -> dict[str, str]:
    """Variables that name the owner of a process's job; none where no prolog of root recorded the job.

    The cgroup names the job, else the environment; the job must belong to the same user.
    """
    placed = _IN_CGROUP.search(cgroup or "")
    job = environment.get("SLURM_JOB_ID", "") if placed is None else placed[1]
    if not _JOB.fullmatch(job):
        return {}
    variables = {
        found[1]: found[2]
        for line in _trusted_lines(run / SLURM_JOBS_FOLDER / job)
        if (found := _LINE.fullmatch(line)) is not None
    }
    if uid is None or variables.get("SLURM_JOB_UID") != str(uid):
        return {}
    return {name: variables[name] for name in JOB_OWNER_VARIABLES if name in variables}


def _trusted_lines(path: Path) -> list[str]:
    """Lines of a file that only root can have written; none of any other."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return []
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != 0 or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return []
        return os.pread(fd, _MAX_FILE_BYTES, 0).decode("ascii", "replace").split("\n")
    except OSError:
        return []
    finally:
        os.close(fd)


def name_program(arguments: list[bytes], comm: bytes, notebook: bytes = b"") -> bytes:
    """Find the base name of the script, the name of the module, or that of an executable that is no interpreter.

    A worker of a process pool has the name of its module; other code of `-c` or standard input has none. A debugger or
    profiler gets the name of its target, a notebook kernel that of the notebook, if its path is known.
    """
    rest = iter(arguments[1:])
    program = _run_by_interpreter(arguments, rest, comm)
    if program in _NOTEBOOK_KERNELS and notebook:
        return os.path.basename(notebook)
    return _wrapped_program(rest) or program if program in _WRAPPERS else program


def _wrapped_program(rest: Iterator[bytes]) -> bytes:
    for argument in rest:
        if argument == b"-m":
            return next(rest, b"")
        if argument.endswith(b".py"):
            return _script(argument)
    return b""


def _run_by_interpreter(arguments: list[bytes], rest: Iterator[bytes], comm: bytes) -> bytes:
    """Program that an interpreter runs; `rest` are the arguments after the executable."""
    executable = os.path.basename(arguments[0]) if arguments and arguments[0] else comm
    if not executable.startswith(_INTERPRETERS):
        return executable
    for argument in rest:
        if argument.startswith(b"--"):
            if argument == b"--check-hash-based-pycs":
                next(rest, None)
        elif argument.startswith(b"-") and len(argument) > 1:
            letter, value = _option(argument, rest)
            if letter == b"m":
                return value or executable
            if letter == b"c":
                pool = _POOL.match(value)
                return pool[1] if pool is not None else executable
        elif argument and argument != b"-":
            return _script(argument) or executable
    return executable


def _option(argument: bytes, rest: Iterator[bytes]) -> tuple[bytes, bytes]:
    """Letter and value of the first option in `-uXdev` that has a value; empty if none has."""
    for at in range(1, len(argument)):
        letter = argument[at : at + 1]
        if letter in b"cm" + _WITH_VALUE:
            return letter, argument[at + 1 :] or next(rest, b"")
    return b"", b""


def _script(path: bytes) -> bytes:
    folder, _, name = path.rstrip(b"/").rpartition(b"/")
    if name == b"__main__.py":  # a package that is run as a folder
        return os.path.basename(folder) or name
    return name


def known_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Known variables of an environment, escaped and truncated."""
    return {
        key: text(os.fsencode(variables[key])[:_MAX_VALUE_BYTES]) for key in sorted(ENVIRONMENT_KEYS & variables.keys())
    }
