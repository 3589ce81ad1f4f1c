"""Programs that start the processes of a job, how they tell each its rank, and who runs Python code."""

from __future__ import annotations

from ckptprof.frameworks.table import FRAMEWORKS

# programs whose children are the ranks of one job, as scripts or as modules (`python -m`)
LAUNCHERS = frozenset(
    (
        "torchrun", "torch.distributed.run", "torch.distributed.launch", "torch.distributed.elastic", "torchx",
        "colossalai", "horovodrun", "bytepsrun", "ipexrun",
        *(program for framework in FRAMEWORKS for program in framework.launchers),
    )
)  # fmt: skip
# (rank, size) as each launcher sets them, the most particular first
RANK_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("PMIX_RANK", ""),
    ("PALS_RANKID", ""),
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
    ("JAX_PROCESS_ID", "JAX_NUM_PROCESSES"),
)
# beginnings of the names of processes that run Python code
INTERPRETERS = ("python", "pt_main_thread", "pt_elastic", "torchrun", "accelerate", "deepspeed", "pypy")
# programs that run another one: a job is named by what they run
RUNNERS = frozenset(
    (
        "ash", "bash", "busybox", "csh", "dash", "fish", "ksh", "sh", "tcsh", "zsh",
        "chrt", "env", "ionice", "nice", "nohup", "numactl", "script", "setpriv", "setsid", "stdbuf", "su", "sudo",
        "taskset", "time", "timeout", "xargs",
        "ckptprof",
        "conda", "docker-init", "dumb-init", "mamba", "micromamba", "pipenv", "pixi", "poetry", "tini", "uv",
    )
)  # fmt: skip
# what multiprocessing and its kin run in the processes that they start by exec
HELPERS = ("multiprocessing.", "multiprocess.", "billiard.", "joblib.", "loky.", "torch._inductor.")
