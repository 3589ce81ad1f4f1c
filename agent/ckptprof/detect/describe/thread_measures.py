"""Measures of each thread that took part in a checkpoint, from its first operation for it to its last."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ckptprof.detect.describe.draft import Draft
from ckptprof.detect.describe.layout import NVFS
from ckptprof.detect.describe.writers import by_process
from ckptprof.detect.tolerances import COUNTER_LAG_NS, MAX_PER_ITEM
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.file_calls import CallTotals
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.detect.world.thread_histories import ThreadUsage, clamp_to_span
from ckptprof.measures import ThreadMeasure

_LAST_REPORTED = 8  # of them, those that ended last, whatever their bytes
_BUSY_SHARE = 0.02  # of the time: a thread with less, and sampled in no call, took no part
_HELPS_SHARE = 0.2  # without bytes: it compresses for others, or computes
_SYNC_WEIGHT = 0.25  # of a sample in sync: a fast writer into the page cache is sampled only there
_AT_FILES = frozenset(("data", "sync", "close", "create", "rename", "unlink", "metadata", "fault"))
_SYNC = {"synced": "sync"}
_CALLS = {**_SYNC, "closed-written": "close", "created": "create", "renamed": "rename", "unlinked": "unlink"}


@dataclass(slots=True)
class ThreadAct:
    """Activity of one thread for a checkpoint. Times are CLOCK_MONOTONIC."""

    process: ProcessKey
    tid: int
    comm: str = ""
    start_ns: int = 1 << 62
    end_ns: int = 0
    bytes: int = 0
    operations: int | None = None
    files: set[FileKey] = field(default_factory=set)
    read_bytes: int = 0
    data_call_ns: int | None = None
    calls: dict[str, CallTotals] = field(default_factory=dict)  # by kind of event
    is_counted: bool = False
    usage: ThreadUsage | None = None

    @property
    def is_main(self) -> bool:
        """It is the main thread of its process."""
        return self.tid == self.process[0]

    @property
    def is_at_files(self) -> bool:
        """A sample found it in a call on files."""
        return self.usage is not None and not _AT_FILES.isdisjoint(self.usage.samples_by_state)

    def has_taken_part(self, busy: float) -> bool:
        """Whether it was sampled at files, or used this share of the time on a CPU."""
        on_cpu_ns = None if self.usage is None else self.usage.on_cpu_ns or 0
        return self.is_at_files or (on_cpu_ns is not None and on_cpu_ns >= busy * (self.end_ns - self.start_ns))

    def extend(self, start_ns: int, end_ns: int) -> None:
        """Extend its time to include a span."""
        self.start_ns, self.end_ns = min(self.start_ns, start_ns), max(self.end_ns, end_ns)

    def add_call_time(self, call_ns: int | None) -> None:
        """Add time in calls that transferred data; None: not timed."""
        if call_ns is not None:
            self.data_call_ns = (self.data_call_ns or 0) + call_ns


def list_acts(draft: Draft) -> list[ThreadAct]:
    """List the acts of all threads, unordered."""
    return [
        act
        for process, parts in by_process(draft.candidate.parts).items()
        for act in _acts_by_operations(draft, process, parts) or _acts_by_samples(draft, process, parts)
    ]


def _acts_by_operations(draft: Draft, process: ProcessKey, parts: list[Transfer]) -> list[ThreadAct]:
    acts: dict[int, ThreadAct] = {}
    counted_ids: set[int] = set()
    for part in parts:
        for stream in (part, *part.stands_for):  # including its staging file
            if stream.process == process and id(stream) not in counted_ids:
                counted_ids.add(id(stream))
                _add_sessions(acts, stream, own=stream is part)
    if acts:
        _add_calls(draft, process, acts)
        _add_others(draft, process, acts, counted_ids)
    for act in acts.values():
        act.usage = draft.world.threads.usage(process, act.tid, act.start_ns, act.end_ns)
    return list(acts.values())


def _add_sessions(acts: dict[int, ThreadAct], stream: Transfer, *, own: bool) -> None:
    for session in stream.threads:
        act = acts.get(session.tid)
        if act is None:
            act = acts[session.tid] = ThreadAct(stream.process, session.tid, session.comm, is_counted=True)
        act.extend(session.first_ns, max(session.first_ns, session.last_ns))
        act.add_call_time(session.call_ns)
        act.operations = (act.operations or 0) + session.operations
        if own:
            act.bytes += session.bytes
            act.files.add(stream.file)
        elif not stream.writes:
            act.read_bytes += session.bytes


def _add_calls(draft: Draft, process: ProcessKey, acts: dict[int, ThreadAct]) -> None:
    world = draft.world
    found = world.calls.totals_by_thread(process, draft.candidate.start_ns, draft.candidate.end_ns)
    for tid, calls in found.items():
        act = acts.get(tid)
        if act is None:
            comm = world.threads.comm(process, tid) or draft.world.jobs.comm(process)
            act = acts[tid] = ThreadAct(process, tid, comm, is_counted=True)
        act.calls = calls
        act.extend(min(one.first_ns for one in calls.values()), max(one.last_ns for one in calls.values()))


def _add_others(draft: Draft, process: ProcessKey, acts: dict[int, ThreadAct], counted_ids: set[int]) -> None:
    """Add transfers of other files in that time: what was read back, what belongs to no checkpoint."""
    recent = draft.known.transfers.recent
    span = min(act.start_ns for act in acts.values()), max(act.end_ns for act in acts.values())
    for stream in (one for writes in (True, False) for one in recent.transfers_between(process, *span, writes=writes)):
        for session in () if id(stream) in counted_ids else stream.threads:
            act = acts.get(session.tid)
            if act is None or session.first_ns < act.start_ns or session.last_ns > act.end_ns:
                continue
            act.add_call_time(session.call_ns)
            if not session.writes:
                act.read_bytes += session.bytes


def _acts_by_samples(draft: Draft, process: ProcessKey, parts: list[Transfer]) -> list[ThreadAct]:
    span = min(part.start_ns for part in parts), max(part.end_ns for part in parts)
    histories = draft.world.threads

    def act(tid: int, comm: str) -> ThreadAct:
        return ThreadAct(process, tid, comm, *span, usage=histories.usage(process, tid, *span))

    acts = [act(tid, comm) for tid, comm in histories.threads(process, *span).items()]
    acts = [one for one in acts if one.has_taken_part(_BUSY_SHARE)] or [act(process[0], draft.world.jobs.comm(process))]
    _distribute_bytes(draft, acts, sum(part.bytes for part in parts))
    acts = [one for one in acts if one.bytes or one.has_taken_part(_HELPS_SHARE)]
    max(acts, key=lambda one: one.bytes).files = {part.file for part in parts}
    return acts


def _distribute_bytes(draft: Draft, acts: list[ThreadAct], transferred: int) -> None:
    """Distribute the bytes of a process: to the main thread what it transferred, to the others by their samples."""
    main = next((act for act in acts if act.is_main), None)
    others = [act for act in acts if act is not main]
    if main is not None:
        main.bytes = _bytes_of_main(draft, main, transferred, others) if others else transferred
        transferred -= main.bytes
    weights = [_weight(act) for act in others]
    total = sum(weights)
    for act, weight in zip(others, weights, strict=True):
        act.bytes = int(transferred * weight / total) if total else transferred // len(others)


def _bytes_of_main(draft: Draft, main: ThreadAct, transferred: int, others: list[ThreadAct]) -> int:
    """Bytes transferred by the main thread itself, if known; all if no other thread was sampled at files."""
    alone = not any(act.is_at_files for act in others)
    if alone and (draft.writers[main.process].role != "thread" or main.is_at_files):
        return transferred
    counted = draft.world.trainers.transferred_bytes(
        main.process, main.start_ns - COUNTER_LAG_NS, main.end_ns + COUNTER_LAG_NS
    )
    return 0 if counted is None else min(transferred, max(0, counted[0 if draft.candidate.writes else 1]))


def _weight(act: ThreadAct) -> float:
    if act.usage is None:
        return 1.0
    samples_in = act.usage.samples_by_state
    data_samples = samples_in.get("data", 0) + samples_in.get("fault", 0) + _SYNC_WEIGHT * samples_in.get("sync", 0)
    return data_samples or (act.usage.on_cpu_ns or 0) / 1e12


def measure_threads(draft: Draft, acts: list[ThreadAct]) -> tuple[ThreadMeasure, ...]:
    """Measures of the threads: those with most bytes, and among them those that ended last."""
    acts = sorted(acts, key=lambda act: (-act.bytes, -act.end_ns))
    if len(acts) > MAX_PER_ITEM:
        late = sorted(acts[MAX_PER_ITEM - _LAST_REPORTED :], key=lambda act: -act.end_ns)[:_LAST_REPORTED]
        acts = [*acts[: MAX_PER_ITEM - _LAST_REPORTED], *late]
    return tuple(_measure(draft, act) for act in acts)


def _measure(draft: Draft, act: ThreadAct) -> ThreadMeasure:
    writer, wall = draft.writers[act.process], draft.world.clock.wall
    span_ns = max(0, act.end_ns - act.start_ns)
    spent: dict[str, Any] = {}
    kinds = _CALLS if act.is_counted else {}
    for kind, word in kinds.items():
        calls = act.calls.get(kind, CallTotals(0, 0, 0, 0))
        spent[f"{word}_call_ns"] = clamp_to_span(calls.call_ns, span_ns)
        spent[f"{word}s"] = calls.number
    if "created" in kinds and (emptied := act.calls.get("emptied")) is not None:
        create_ns = (spent["create_call_ns"] or 0) + (emptied.call_ns or 0)
        spent["create_call_ns"] = clamp_to_span(create_ns, span_ns)
    return ThreadMeasure(
        pid=act.process[0],
        tid=act.tid,
        comm=act.comm,
        rank=writer.rank,
        role=writer.role,
        is_main=act.is_main and writer.role not in {"child", "daemon"},
        start_ns=wall(act.start_ns),
        end_ns=wall(act.end_ns),
        bytes=act.bytes,
        operations=act.operations,
        files=len(act.files) or None,
        read_bytes=act.read_bytes if act.is_counted and draft.candidate.writes else None,
        data_call_ns=clamp_to_span(act.data_call_ns, span_ns),
        **spent,
        **({**act.usage._asdict(), **_driver_samples(draft, act.usage)} if act.usage is not None else {}),
    )


def _driver_samples(draft: Draft, usage: ThreadUsage) -> dict[str, Any]:
    """Count samples in the driver of nvidia-fs, whose calls have no class, as data."""
    samples_in = usage.samples_by_state
    if draft.engine != NVFS or "other" not in samples_in:
        return {}
    rest = {word: count for word, count in samples_in.items() if word != "other"}
    return {"samples_by_state": {**rest, "data": samples_in["other"] + samples_in.get("data", 0)}}
