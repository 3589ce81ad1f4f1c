"""What the prolog of a Slurm job wrote of it (deploy/slurm): whose it is, which its own environment can only claim."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

FOLDER = "ckptprof-slurm/jobs"  # in /run, of root; a file for each job, which has its number for a name
WHOSE = ("SLURM_JOB_USER", "SLURM_JOB_ACCOUNT", "SLURM_JOB_PARTITION")
_MOST_BYTES = 4096
_LINE = re.compile(r"([A-Z_]{1,64})=([!-~]{1,256})")
_JOB = re.compile(r"[0-9]{1,10}")
_IN_CGROUP = re.compile(r"/job_([0-9]{1,10})/step_")


def whose(run: Path, cgroup: str | None, environment: Mapping[str, str], uid: int | None) -> dict[str, str]:
    """Return variables that say whose the job of a process is; none where no prolog of root told of such a process.

    The cgroup names the job; where it does not, the environment may, for the job has to be of the same user.
    """
    placed = _IN_CGROUP.search(cgroup or "")
    job = environment.get("SLURM_JOB_ID", "") if placed is None else placed[1]
    if not _JOB.fullmatch(job):
        return {}
    told = {found[1]: found[2] for line in _lines(run / FOLDER / job) if (found := _LINE.fullmatch(line)) is not None}
    if uid is None or told.get("SLURM_JOB_UID") != str(uid):
        return {}
    return {name: told[name] for name in WHOSE if name in told}


def _lines(path: Path) -> list[str]:
    """Return the lines of a file that root alone can have written; none of any other."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return []
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != 0 or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return []
        return os.pread(fd, _MOST_BYTES, 0).decode("ascii", "replace").split("\n")
    except OSError:
        return []
    finally:
        os.close(fd)
