"""What a process runs, by its command line, and the few variables of its environment that place it in a job."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from ckptprof_collectors.samples import text

ENVIRONMENT_KEYS = frozenset(
    (
        b"RANK", b"LOCAL_RANK", b"WORLD_SIZE", b"LOCAL_WORLD_SIZE", b"GROUP_RANK", b"NODE_RANK",
        b"TORCHELASTIC_RUN_ID", b"MASTER_ADDR", b"MASTER_PORT", b"SLURM_JOB_ID", b"SLURM_STEP_ID", b"SLURM_STEPID",
        b"SLURM_PROCID", b"SLURM_LOCALID", b"SLURM_NTASKS", b"SLURM_STEP_NUM_TASKS", b"SLURM_JOB_NAME",
        b"OMPI_COMM_WORLD_RANK", b"OMPI_COMM_WORLD_SIZE", b"OMPI_COMM_WORLD_LOCAL_RANK", b"OMPI_MCA_ess_base_jobid",
        b"PMI_RANK", b"PMI_SIZE", b"PMIX_RANK", b"PMIX_NAMESPACE", b"MV2_COMM_WORLD_RANK", b"MV2_COMM_WORLD_SIZE",
        b"PALS_RANKID", b"HOROVOD_RANK", b"HOROVOD_SIZE", b"FLUX_JOB_ID", b"FLUX_TASK_RANK", b"FLUX_JOB_SIZE",
        b"JAX_PROCESS_ID", b"JAX_NUM_PROCESSES", b"JAX_COORDINATOR_ADDRESS", b"COORDINATOR_ADDRESS",
    )
)  # fmt: skip
_MAX_VALUE_BYTES = 256
_INTERPRETERS = (b"python", b"pypy")
_WITH_VALUE = b"WX"  # options of one letter that take a value, beside -c and -m (`python --help`)
# what the standard library and its kin hand to `python -c`: from multiprocessing.spawn import spawn_main; ...
_POOL = re.compile(rb"\s*(?:import sys;\s*)?from ((?:multiprocessing|multiprocess|billiard|joblib|loky)[.\w]*) import ")


def program_of(arguments: list[bytes], comm: bytes) -> bytes:
    """Return the base name of the script, the name of the module, or the executable's if it is no interpreter.

    What a process pool starts is named by the module that it starts; other code of `-c` has no name.
    """
    executable = os.path.basename(arguments[0]) if arguments and arguments[0] else comm
    if not executable.startswith(_INTERPRETERS):
        return executable
    rest = iter(arguments[1:])
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
    """Return the letter and the value of the first option in `-uXdev` that has one; nothing if none has."""
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


def environment_of(raw: bytes) -> dict[str, str]:
    """Return the known variables of an environment as /proc/PID/environ gives it; the first of a name counts."""
    found: dict[str, str] = {}
    for entry in raw.split(b"\0"):
        key, _, value = entry.partition(b"=")
        if key in ENVIRONMENT_KEYS:
            found.setdefault(text(key), text(value[:_MAX_VALUE_BYTES]))
    return found
