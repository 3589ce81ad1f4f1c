"""Reads and writes the AdminComment of jobs with Slurm's own programs, which find its accounting and authenticate.

`sacct` and `sacctmgr` of Slurm 22.05 and newer (`man sacct`, `man sacctmgr`: "SPECIFICATIONS FOR JOB"). Without a
shell, and with a timeout for each call.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ckptprof.cluster.fleet.annotations import Action, Annotation, JobId, action
from ckptprof.errors import CkptprofError
from ckptprof_collectors.abandoned import run

AT_ONCE = 50  # jobs of one call
PATIENCE_SECONDS = 60.0
_WRITES = (Action.WRITE, Action.RENEW)


class SlurmError(CkptprofError):
    """Slurm's accounting could not be queried, or refused."""


def comments(jobs: Iterable[JobId]) -> dict[JobId, str]:
    """Return the AdminComment of the jobs that this cluster's accounting knows; raises SlurmError.

    Jobs of another cluster are left out, even with the same number.
    """
    asked: dict[str, list[JobId]] = {}
    for job in jobs:
        asked.setdefault(job.number, []).append(job)
    shown = _called("sacct", "-n", "-P", "-X", f"--jobs={','.join(asked)}", "-o", "JobIDRaw,Cluster,AdminComment")
    found: dict[JobId, str] = {}
    for line in shown.splitlines():  # of a comment of several lines the first
        number, *rest = line.split("|", 2)
        if len(rest) == 2:
            cluster, comment = rest
            found.update((job, comment) for job in asked.get(number, ()) if job.cluster in (None, cluster))
    return found


def annotated(made: Mapping[JobId, str], *, write: bool) -> tuple[list[Annotation], str | None]:
    """Return the action for each job's comment, done if `write`, and why Slurm could not be queried (None: it was).

    Comments are read right before they are written, in small batches, so that little can change in between. Raises
    SlurmError if they are to be written and cannot be read.
    """
    found: list[Annotation] = []
    jobs = list(made)
    for first in range(0, len(jobs), AT_ONCE):
        few = jobs[first : first + AT_ONCE]
        try:
            present = comments(few)
        except SlurmError as error:
            if write:
                raise
            return [Annotation(cluster=job.cluster, job=job.number, note=note) for job, note in made.items()], str(
                error
            )
        told = [_annotated(job, made[job], present.get(job), write=write) for job in few]
        found += _proven(few, told) if write else told
    return found, None


def _proven(jobs: Sequence[JobId], told: Sequence[Annotation]) -> list[Annotation]:
    """Add an error where Slurm reported none, but the comment differs."""
    kept = comments(jobs)
    lost = "sacctmgr reported no error, but the comment was not written"
    return [
        msgspec.structs.replace(one, error=lost)
        if one.error is None and one.action in _WRITES and kept.get(job) != one.note
        else one
        for job, one in zip(jobs, told, strict=True)
    ]


def _annotated(job: JobId, note: str, now: str | None, *, write: bool) -> Annotation:
    todo = action(note, now)
    told = Annotation(cluster=job.cluster, job=job.number, note=note, comment=now, action=todo)
    if write and todo in _WRITES:
        try:
            _write(job, note)
        except SlurmError as error:
            return msgspec.structs.replace(told, error=str(error))
    return told


def _write(job: JobId, note: str) -> None:
    _called("sacctmgr", "-i", "-Q", "modify", "job", "where", f"jobid={job.number}", "set", f"AdminComment={note}")


def _called(*command: str) -> str:
    try:
        done = run(command, timeout_seconds=PATIENCE_SECONDS)
    except FileNotFoundError as error:
        hint = "run it on a host with Slurm's programs, such as its controller"
        raise SlurmError(f"{command[0]} is not installed here", hint=hint) from error
    except subprocess.TimeoutExpired as error:
        hint = "check whether slurmdbd answers: `sacctmgr ping`"
        raise SlurmError(f"{command[0]} did not answer within {PATIENCE_SECONDS:.0f} s", hint=hint) from error
    if done.returncode:
        raise SlurmError(f"{command[0]} ended with {done.returncode}: {_said(done.stderr or done.stdout)}")
    return done.stdout


def _said(out: str) -> str:
    lines: Sequence[str] = [line.strip() for line in out.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"
