"""What each thread did that took part in a checkpoint, from its first act for it to its last."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ckptprof.detect.describe.draft import Draft
from ckptprof.detect.describe.layout import NVFS
from ckptprof.detect.describe.writers import by_process
from ckptprof.detect.tolerances import CALLS_NS, MAX_EACH
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.file_calls import Spent
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.detect.world.threads import Use, within_span
from ckptprof.measures import ThreadMeasure

_LAST_TOLD = 8  # of them, those that ended last, whatever their bytes
_BUSY_SHARE = 0.02  # of the time: a thread with less, and sampled in no call, took no part
_HELPS_SHARE = 0.2  # without bytes: it compresses for others, or computes
_SYNC_WEIGHT = 0.25  # of a sample in sync: a fast writer into the page cache is sampled only there
_AT_FILES = frozenset(("data", "sync", "close", "create", "rename", "unlink", "metadata", "fault"))
_SYNC = {"synced": "sync"}
_CALLS = {**_SYNC, "closed-written": "close", "created": "create", "renamed": "rename", "unlinked": "unlink"}


@dataclass(slots=True)
class Act:
    """What one thread did for a checkpoint. Times are CLOCK_MONOTONIC."""

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
    calls: dict[str, Spent] = field(default_factory=dict)  # by kind of event
    is_counted: bool = False
    use: Use | None = None

    @property
    def main(self) -> bool:
        """It is the main thread of its process."""
        return self.tid == self.process[0]

    @property
    def is_at_files(self) -> bool:
        """A sample found it in a call on files."""
        return self.use is not None and not _AT_FILES.isdisjoint(self.use.looks_in)

    def took_part(self, busy: float) -> bool:
        """Whether it was sampled at files, or used this share of the time on a CPU."""
        on_cpu_ns = None if self.use is None else self.use.on_cpu_ns or 0
        return self.is_at_files or (on_cpu_ns is not None and on_cpu_ns >= busy * (self.end_ns - self.start_ns))

    def spans(self, start_ns: int, end_ns: int) -> None:
        """Extend its time to include a span."""
        self.start_ns, self.end_ns = min(self.start_ns, start_ns), max(self.end_ns, end_ns)

    def in_calls(self, call_ns: int | None) -> None:
        """Add time in calls that transferred data; None: not timed."""
        if call_ns is not None:
            self.data_call_ns = (self.data_call_ns or 0) + call_ns


def acts_of(draft: Draft) -> list[Act]:
    """List the acts of all threads, unordered."""
    return [
        act
        for process, parts in by_process(draft.candidate.parts).items()
        for act in _by_operations(draft, process, parts) or _by_looks(draft, process, parts)
    ]


def _by_operations(draft: Draft, process: ProcessKey, parts: list[Transfer]) -> list[Act]:
    acts: dict[int, Act] = {}
    seen: set[int] = set()
    for part in parts:
        for stream in (part, *part.copied_from):  # including its staging file
            if stream.process == process and id(stream) not in seen:
                seen.add(id(stream))
                _add_sessions(acts, stream, own=stream is part)
    if acts:
        _add_calls(draft, process, acts)
        _add_others(draft, process, acts, seen)
    for act in acts.values():
        act.use = draft.world.threads.use(process, act.tid, act.start_ns, act.end_ns)
    return list(acts.values())


def _add_sessions(acts: dict[int, Act], stream: Transfer, *, own: bool) -> None:
    for session in stream.threads:
        act = acts.get(session.tid)
        if act is None:
            act = acts[session.tid] = Act(stream.process, session.tid, session.comm, is_counted=True)
        act.spans(session.first_ns, max(session.first_ns, session.last_ns))
        act.in_calls(session.call_ns)
        act.operations = (act.operations or 0) + session.operations
        if own:
            act.bytes += session.bytes
            act.files.add(stream.file)
        elif not stream.writes:
            act.read_bytes += session.bytes


def _add_calls(draft: Draft, process: ProcessKey, acts: dict[int, Act]) -> None:
    world = draft.world
    found = world.calls.spent(process, draft.candidate.start_ns, draft.candidate.end_ns)
    for tid, calls in found.items():
        act = acts.get(tid)
        if act is None:
            comm = world.threads.comm(process, tid) or draft.world.jobs.comm(process)
            act = acts[tid] = Act(process, tid, comm, is_counted=True)
        act.calls = calls
        act.spans(min(one.first_ns for one in calls.values()), max(one.last_ns for one in calls.values()))


def _add_others(draft: Draft, process: ProcessKey, acts: dict[int, Act], seen: set[int]) -> None:
    """Add transfers of other files in that time: what was read back, what belongs to no checkpoint."""
    recent = draft.known.transfers.recent
    span = min(act.start_ns for act in acts.values()), max(act.end_ns for act in acts.values())
    for stream in (one for writes in (True, False) for one in recent.moved(process, *span, writes=writes)):
        for session in () if id(stream) in seen else stream.threads:
            act = acts.get(session.tid)
            if act is None or session.first_ns < act.start_ns or session.last_ns > act.end_ns:
                continue
            act.in_calls(session.call_ns)
            if not session.writes:
                act.read_bytes += session.bytes


def _by_looks(draft: Draft, process: ProcessKey, parts: list[Transfer]) -> list[Act]:
    span = min(part.start_ns for part in parts), max(part.end_ns for part in parts)
    looks = draft.world.threads

    def act(tid: int, comm: str) -> Act:
        return Act(process, tid, comm, *span, use=looks.use(process, tid, *span))

    acts = [
        one for tid, comm in looks.threads(process, *span).items() if (one := act(tid, comm)).took_part(_BUSY_SHARE)
    ]
    acts = acts or [act(process[0], draft.world.jobs.comm(process))]
    _share_out(draft, acts, sum(part.bytes for part in parts))
    acts = [one for one in acts if one.bytes or one.took_part(_HELPS_SHARE)]
    max(acts, key=lambda one: one.bytes).files = {part.file for part in parts}
    return acts


def _share_out(draft: Draft, acts: list[Act], moved: int) -> None:
    """Distribute the bytes of a process: to the main thread what it transferred, to the others by their samples."""
    main = next((act for act in acts if act.main), None)
    others = [act for act in acts if act is not main]
    if main is not None:
        main.bytes = _by_main(draft, main, moved, others) if others else moved
        moved -= main.bytes
    weights = [_weight(act) for act in others]
    total = sum(weights)
    for act, weight in zip(others, weights, strict=True):
        act.bytes = int(moved * weight / total) if total else moved // len(others)


def _by_main(draft: Draft, main: Act, moved: int, others: list[Act]) -> int:
    """Bytes transferred by the main thread itself, if known; all if no other thread was sampled at files."""
    alone = not any(act.is_at_files for act in others)
    if alone and (draft.writers[main.process].role != "thread" or main.is_at_files):
        return moved
    told = draft.world.trainers.moved(main.process, main.start_ns - CALLS_NS, main.end_ns + CALLS_NS)
    return 0 if told is None else min(moved, max(0, told[0 if draft.candidate.writes else 1]))


def _weight(act: Act) -> float:
    if act.use is None:
        return 1.0
    met = act.use.looks_in
    at_it = met.get("data", 0) + met.get("fault", 0) + _SYNC_WEIGHT * met.get("sync", 0)
    return at_it or (act.use.on_cpu_ns or 0) / 1e12


def measured(draft: Draft, acts: list[Act]) -> tuple[ThreadMeasure, ...]:
    """Measures of the threads: those with most bytes, and among them those that ended last."""
    acts = sorted(acts, key=lambda act: (-act.bytes, -act.end_ns))
    if len(acts) > MAX_EACH:
        late = sorted(acts[MAX_EACH - _LAST_TOLD :], key=lambda act: -act.end_ns)[:_LAST_TOLD]
        acts = [*acts[: MAX_EACH - _LAST_TOLD], *late]
    return tuple(_measure(draft, act) for act in acts)


def _measure(draft: Draft, act: Act) -> ThreadMeasure:
    writer, wall = draft.writers[act.process], draft.world.clock.wall
    span_ns = max(0, act.end_ns - act.start_ns)
    spent: dict[str, Any] = {}
    kinds = _CALLS if act.is_counted else {}
    for kind, word in kinds.items():
        known = act.calls.get(kind, Spent(0, 0, 0, 0))
        spent[f"{word}_call_ns"] = within_span(known.spent_ns, span_ns)
        spent[f"{word}s"] = known.number
    if "created" in kinds and (emptied := act.calls.get("emptied")) is not None:
        took_ns = (spent["create_call_ns"] or 0) + (emptied.spent_ns or 0)
        spent["create_call_ns"] = within_span(took_ns, span_ns)
    return ThreadMeasure(
        pid=act.process[0],
        tid=act.tid,
        comm=act.comm,
        rank=writer.rank,
        role=writer.role,
        is_main=act.main and writer.role not in {"child", "daemon"},
        start_ns=wall(act.start_ns),
        end_ns=wall(act.end_ns),
        bytes=act.bytes,
        operations=act.operations,
        files=len(act.files) or None,
        read_bytes=act.read_bytes if act.is_counted and draft.candidate.writes else None,
        data_call_ns=within_span(act.data_call_ns, span_ns),
        **spent,
        **({**act.use._asdict(), **_looked(draft, act.use)} if act.use is not None else {}),
    )


def _looked(draft: Draft, use: Use) -> dict[str, Any]:
    """Count samples in the driver of nvidia-fs, whose calls have no class, as data."""
    met = use.looks_in
    if draft.engine != NVFS or "other" not in met:
        return {}
    rest = {word: looks for word, looks in met.items() if word != "other"}
    return {"looks_in": {**rest, "data": met["other"] + met.get("data", 0)}}
