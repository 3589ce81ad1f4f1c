"""The activity at one instant; None: not known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from ckptprof.bounds import Amount, Count, Share, one_of
from ckptprof.model import HUNG, Checkpoint, Kind, Status, Writer
from ckptprof.report.clean import clean, named
from ckptprof.verdicts import InterimVerdict

MAX_LAST = 100  # completed checkpoints: more than a screen has lines
_ACCOUNTS = 4  # of one checkpoint: a state is sent every second


class Underway(msgspec.Struct, frozen=True, kw_only=True):
    """A save or restore in progress, as far as it was observed."""

    uid: str  # of the part observed so far: it changes when more files belong to it
    kind: Kind
    job: str
    framework: str | None
    step: int | None
    ranks: Count | None  # of the job
    bytes: Count  # so far
    usual_bytes: Count | None = None  # of the last complete one of its job and kind: progress is estimated from it
    start_ns: int  # epoch nanoseconds of the first I/O
    last_ns: int  # and of the last one observed
    stall_ns: Count | None = None  # time in which training was blocked by it, so far
    largest_writer: str | None = None  # the process with most of its bytes so far
    path: str | None
    hung: str | None = None  # which of its writers stopped, where and how; None: it moves
    so_far: InterimVerdict | None = None  # None: not diagnosed


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """The rates of a disk or a link, averaged between two samples of its counters."""

    name: str
    kind: Annotated[str, one_of("disk", "nic", "rdma")]
    read_bytes_per_second: Amount | None  # into the host
    written_bytes_per_second: Amount | None  # out of the host
    busy_share: Share | None  # of the time in which a request was in flight; None of links
    at_ns: int  # epoch nanoseconds of the later sample


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The activity at one instant, and recent checkpoints."""

    at_ns: int  # epoch nanoseconds
    host: str | None
    level: str | None  # trace | poll
    since_ns: int | None  # epoch nanoseconds: start of the recording
    notes: tuple[str, ...] = ()  # what is not up to date, a sentence each
    dropped_frames: Count = 0  # samples that the recorder lost in this session
    underway: tuple[Underway, ...] = ()  # the oldest first
    devices: tuple[Device, ...] = ()
    last: tuple[Checkpoint, ...] = ()  # the newest first; without streams, devices and timelines


def underway(one: Checkpoint) -> Underway:
    """Summarise a checkpoint in progress."""
    so_far, verdict, most = None, one.verdict, max(one.writers, key=lambda writer: writer.bytes, default=None)
    if verdict is not None:
        so_far = InterimVerdict(
            limit=verdict.limit,
            candidates=verdict.candidates,
            confidence=verdict.confidence,
            seconds=verdict.seconds,
            accounts=verdict.accounts[:_ACCOUNTS],
        )
    return Underway(
        uid=one.uid,
        kind=one.kind,
        job=one.job,
        framework=one.framework,
        step=one.step,
        ranks=one.ranks,
        bytes=one.bytes,
        start_ns=one.start_ns,
        last_ns=one.end_ns,
        stall_ns=one.stall_ns,
        path=one.path,
        so_far=so_far,
        largest_writer=None if most is None else _name(most),
        hung=next((evidence.text for evidence in one.evidence if evidence.name == HUNG), None),
    )


def hangs(hung: Sequence[Underway]) -> list[tuple[str, str]]:
    """Return titles and texts: which saves hang now, and where."""
    return [("Hangs now", f"{named(one.job)} in a save: {clean(one.hung or '')}") for one in hung]


def _name(writer: Writer) -> str:
    return f"{writer.comm if writer.rank is None else f'rank {writer.rank}, pid'} {writer.pid}"


def with_usual_bytes(going_on: Sequence[Underway], last: Sequence[Checkpoint]) -> tuple[Underway, ...]:
    """Add the bytes of the last complete checkpoint of the same job and kind; `last`: the newest first."""
    usual: dict[tuple[str, Kind], int] = {}
    for one in last:
        if one.status is not Status.INCOMPLETE:
            usual.setdefault((one.job, one.kind), one.bytes)
    return tuple(msgspec.structs.replace(one, usual_bytes=usual.get((one.job, one.kind))) for one in going_on)
