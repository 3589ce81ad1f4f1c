"""Who reads a save back, when and for what; which saves are deleted or overwritten before any process reads them.

The model. A restore reads each save that was the newest to write one of its files; of an object store, the newest save
of its job. It rereads if its processes wrote the save. If they save later, it resumes where a restart begins with it
(`restarts`), else it branches (fine-tuning). If not, it only reads (evaluation, export). A save is gone when its
largest file is deleted, or written by a later save.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Annotated

import msgspec

from ckptprof import figures
from ckptprof.bounds import Amount, Count, Share, one_of
from ckptprof.diagnose.restarts import JobRestarts
from ckptprof.model import Checkpoint, Kind
from ckptprof.units import NS

Files = Mapping[int, Sequence[str]]  # by the id of a checkpoint: paths of its files, its own largest one first


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """A restore of a save, or a copy by a program that does not train."""

    restore: Count  # id
    job: str  # the reader
    pids: tuple[Count, ...]
    start_ns: int  # epoch nanoseconds
    delay_seconds: Amount  # from the end of the save
    cache: Annotated[str, one_of("cold", "warm", "partly")] | None  # null: not observed
    use: Annotated[str, one_of("resume", "branch", "reread", "read", "copy")]  # read: no save followed


class SaveReads(msgspec.Struct, frozen=True, kw_only=True):
    """A complete save, and what became of it."""

    save: Count  # id
    step: Count | None
    path: str | None  # null: in an object store
    saved_ns: int  # epoch nanoseconds of its end
    written_bytes: Count
    reads: tuple[Read, ...]  # the first one first
    gone: Annotated[str, one_of("deleted", "overwritten")] | None  # null: not observed
    gone_ns: int | None  # epoch nanoseconds
    age_seconds: Amount | None  # when it was gone


class JobReads(msgspec.Struct, frozen=True, kw_only=True):
    """The complete saves of one job, those after its restarts included."""

    job: str  # its name at the last save
    saves: tuple[SaveReads, ...]  # the oldest first
    read_saves: Count
    read_share: Share  # of the saves
    unread_bytes: Count  # written for saves without a read
    gone_unread: Count  # saves that were gone without a read
    gone_unread_bytes: Count  # written for these


def find_reads(
    checkpoints: Iterable[Checkpoint], files: Files, restarts: Sequence[JobRestarts], chosen: Container[int]
) -> list[JobReads]:
    """Return the jobs with saves among the chosen ids, the job with most unread bytes first.

    Of `checkpoints` are those that may have read these saves, or saved after that, whatever their job.
    """
    ordered = sorted(checkpoints, key=lambda one: (one.start_ns, one.id))
    saves = figures.complete(one for one in ordered if one.kind is Kind.SAVE)
    purposes = _Purposes(ordered, saves, restarts)
    written: dict[str, Checkpoint] = {}  # the newest save, by file; in an object store by job
    overwritten_ns: dict[int, int] = {}
    reads: dict[int, list[Read]] = {}  # by the id of the save
    for one in ordered:
        places = [f"job {one.job}"] if one.sent is not None else files.get(one.id, ())
        sources = {found.id: found for place in places if (found := written.get(place)) is not None}
        if one.kind is Kind.RESTORE or (one.kind is Kind.COPY and one.moments.first_data_ns is None):
            for save in sources.values():
                reads.setdefault(save.id, []).append(_read(one, save, purposes.of(one, save)))
            continue
        gone = [key for key in sources if files.get(key, ("",))[0] in places]
        overwritten_ns |= dict.fromkeys(gone, one.start_ns)
        for place in places:
            written.pop(place, None)
        written |= dict.fromkeys(places if one.kind is Kind.SAVE else (), one)
    names = {name: job.names[0] for job in restarts for name in job.names}
    jobs: dict[str, list[Checkpoint]] = {}
    for one in (save for save in saves if save.id in chosen):
        jobs.setdefault(names.get(one.job, one.job), []).append(one)
    reported = [
        _job(each[-1].job, [_fate(one, reads.get(one.id, ()), overwritten_ns.get(one.id)) for one in each])
        for each in jobs.values()
    ]
    return sorted(reported, key=lambda one: (-one.unread_bytes, one.job))


class _Purposes:
    """What readers did next."""

    def __init__(
        self, ordered: Sequence[Checkpoint], saves: Sequence[Checkpoint], restarts: Sequence[JobRestarts]
    ) -> None:
        ids = {one.restore for job in restarts for one in job.restarts}
        self._restarted = {key for one in ordered if one.id in ids for key in _processes(one)}
        self._last_save_ns = {  # also by the job alone
            key: one.start_ns for one in saves for key in (*_processes(one), (one.job, None))
        }

    def of(self, reader: Checkpoint, save: Checkpoint) -> str:
        """Return the use of a read."""
        if reader.kind is Kind.COPY:
            return "copy"
        processes = _processes(reader)
        if not processes.isdisjoint(_processes(save)):
            return "reread"
        is_restart = not processes.isdisjoint(self._restarted)
        savers = {*processes, *([(reader.job, None)] if reader.job != save.job or is_restart else [])}
        if all(self._last_save_ns.get(key, 0) < reader.start_ns for key in savers):
            return "read"
        return "resume" if is_restart else "branch"


def _read(restore: Checkpoint, save: Checkpoint, use: str) -> Read:
    return Read(
        restore=restore.id,
        job=restore.job,
        pids=tuple(sorted({writer.pid for writer in restore.writers})),
        start_ns=restore.start_ns,
        delay_seconds=max(0, restore.start_ns - save.end_ns) / NS,
        cache=restore.cache,
        use=use,
    )


def _fate(save: Checkpoint, reads: Sequence[Read], overwritten_ns: int | None) -> SaveReads:
    ends = [(save.moments.deleted_ns, "deleted"), (overwritten_ns, "overwritten")]
    gone_ns, gone = min(((at_ns, how) for at_ns, how in ends if at_ns is not None), default=(None, None))
    return SaveReads(
        save=save.id,
        step=save.step,
        path=save.path,
        saved_ns=save.end_ns,
        written_bytes=save.bytes if save.written_bytes is None else save.written_bytes,
        reads=tuple(reads),
        gone=gone,
        gone_ns=gone_ns,
        age_seconds=None if gone_ns is None else max(0, gone_ns - save.end_ns) / NS,
    )


def _job(job: str, saves: Sequence[SaveReads]) -> JobReads:
    unread = [one for one in saves if not one.reads]
    gone = [one for one in unread if one.gone is not None]
    return JobReads(
        job=job,
        saves=tuple(saves),
        read_saves=len(saves) - len(unread),
        read_share=1 - len(unread) / len(saves),
        unread_bytes=sum(one.written_bytes for one in unread),
        gone_unread=len(gone),
        gone_unread_bytes=sum(one.written_bytes for one in gone),
    )


def _processes(one: Checkpoint) -> set[tuple[str, int | None]]:
    return {(one.job, writer.pid) for writer in one.writers}
