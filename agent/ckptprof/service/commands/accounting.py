"""Reads and writes the AdminComment of jobs with Slurm's own programs, which find its accounting and authenticate.

`sacct` and `sacctmgr` of Slurm 22.05 and newer (`man sacct`, `man sacctmgr`: "SPECIFICATIONS FOR JOB"). Without a
shell, and with a timeout for each call.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ckptprof.cluster.annotations import Action, Annotation, JobId, action
from ckptprof.errors import CkptprofError
from ckptprof_collectors.abandoned import run_program

MAX_JOBS_PER_CALL = 50  # jobs of one call
CALL_TIMEOUT_SECONDS = 60.0
_WRITES = (Action.WRITE, Action.RENEW)


class SlurmError(CkptprofError):
    """Slurm's accounting could not be queried, or refused."""


def read_comments(jobs: Iterable[JobId]) -> dict[JobId, str]:
    """Return the AdminComment of the jobs that this cluster's accounting knows; raises SlurmError.

    Jobs of another cluster are left out, even with the same number.
    """
    requested: dict[str, list[JobId]] = {}
    for job in jobs:
        requested.setdefault(job.number, []).append(job)
    shown = _run_slurm(
        "sacct", "-n", "-P", "-X", f"--jobs={','.join(requested)}", "-o", "JobIDRaw,Cluster,AdminComment"
    )
    found: dict[JobId, str] = {}
    for line in shown.splitlines():  # only the first line of a comment
        number, *rest = line.split("|", 2)
        if len(rest) == 2:
            cluster, comment = rest
            found.update((job, comment) for job in requested.get(number, ()) if job.cluster in (None, cluster))
    return found


def annotate_jobs(new_comments: Mapping[JobId, str], *, write: bool) -> tuple[list[Annotation], str | None]:
    """Return the action for each job's comment, done if `write`, and why Slurm could not be queried (None: it was).

    Comments are read right before they are written, in small batches, so that little can change in between. Raises
    SlurmError if they are to be written and cannot be read.
    """
    found: list[Annotation] = []
    jobs = list(new_comments)
    for first in range(0, len(jobs), MAX_JOBS_PER_CALL):
        batch = jobs[first : first + MAX_JOBS_PER_CALL]
        try:
            present = read_comments(batch)
        except SlurmError as error:
            if write:
                raise
            return [
                Annotation(cluster=job.cluster, job=job.number, note=note) for job, note in new_comments.items()
            ], str(error)
        annotated = [_annotate_job(job, new_comments[job], present.get(job), write=write) for job in batch]
        found += _verify_written(batch, annotated) if write else annotated
    return found, None


def _verify_written(jobs: Sequence[JobId], annotated: Sequence[Annotation]) -> list[Annotation]:
    """Add an error where Slurm reported none, but the comment differs."""
    present = read_comments(jobs)
    lost = "sacctmgr reported no error, but the comment was not written"
    return [
        msgspec.structs.replace(one, error=lost)
        if one.error is None and one.action in _WRITES and present.get(job) != one.note
        else one
        for job, one in zip(jobs, annotated, strict=True)
    ]


def _annotate_job(job: JobId, note: str, present: str | None, *, write: bool) -> Annotation:
    todo = action(note, present)
    annotation = Annotation(cluster=job.cluster, job=job.number, note=note, comment=present, action=todo)
    if write and todo in _WRITES:
        try:
            _write(job, note)
        except SlurmError as error:
            return msgspec.structs.replace(annotation, error=str(error))
    return annotation


def _write(job: JobId, note: str) -> None:
    _run_slurm("sacctmgr", "-i", "-Q", "modify", "job", "where", f"jobid={job.number}", "set", f"AdminComment={note}")


def _run_slurm(*command: str) -> str:
    try:
        done = run_program(command, timeout_seconds=CALL_TIMEOUT_SECONDS)
    except FileNotFoundError as error:
        hint = "run it on a host with Slurm's programs, such as its controller"
        raise SlurmError(f"{command[0]} is not installed here", hint=hint) from error
    except subprocess.TimeoutExpired as error:
        hint = "check whether slurmdbd answers: `sacctmgr ping`"
        raise SlurmError(f"{command[0]} did not answer within {CALL_TIMEOUT_SECONDS:.0f} s", hint=hint) from error
    if done.returncode:
        raise SlurmError(f"{command[0]} ended with {done.returncode}: {_last_line(done.stderr or done.stdout)}")
    return done.stdout


def _last_line(out: str) -> str:
    lines: Sequence[str] = [line.strip() for line in out.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"
