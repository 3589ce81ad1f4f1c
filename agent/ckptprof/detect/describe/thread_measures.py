"""What each thread did that took part in a checkpoint, from its first act for it to its last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ckptprof.detect.describe.draft import Draft
from ckptprof.detect.transfers.model.tolerances import CALLS_NS
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.file_calls import Spent
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.detect.world.threads import Use, within_span
from ckptprof.measures import ThreadMeasure

MAX_TOLD = 64
_LAST_TOLD = 8  # of those the ones that ended last, whatever they moved
_BUSY_SHARE = 0.02  # of its process's time: a thread that used less, and was met in no call, took no part
_HELPS_SHARE = 0.2  # of one that moved nothing: it compresses for others, or computes
_AT_FILES = frozenset(("data", "sync", "close", "create", "rename", "unlink", "metadata", "fault"))
_CALLS = {"synced": "sync", "closed-written": "close", "created": "create", "renamed": "rename", "unlinked": "unlink"}


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
    read_bytes: int | None = None
    data_call_ns: int | None = None
    calls: dict[str, Spent] = field(default_factory=dict)  # by kind of event
    is_counted: bool = False
    main: bool = False
    use: Use | None = None

    def spans(self, start_ns: int, end_ns: int) -> None:
        """Take note that it was at it from one time to another."""
        self.start_ns, self.end_ns = min(self.start_ns, start_ns), max(self.end_ns, end_ns)

    def in_calls(self, call_ns: int | None) -> None:
        """Add time in calls that moved data; None: they were not timed."""
        if call_ns is not None:
            self.data_call_ns = (self.data_call_ns or 0) + call_ns


def acts_of(draft: Draft) -> list[Act]:
    """Return what every thread did, in no order."""
    by_process: dict[ProcessKey, list[Transfer]] = {}
    for part in draft.candidate.parts:
        by_process.setdefault(part.process, []).append(part)
    found: list[Act] = []
    for process, parts in by_process.items():
        acts = _by_operations(draft, process, parts) or _by_looks(draft, process, parts)
        for act in acts:
            act.use = draft.known.world.host.threads.use(process, act.tid, act.start_ns, act.end_ns)
        found += acts
    return found


def _by_operations(draft: Draft, process: ProcessKey, parts: list[Transfer]) -> list[Act]:
    acts: dict[int, Act] = {}
    seen: set[int] = set()
    for part in parts:
        for stream in (part, *part.carried, *([part.staged] if part.staged is not None else [])):
            if stream.process == process and id(stream) not in seen:
                seen.add(id(stream))
                _add_sessions(acts, process, stream, own=stream is part)
    if not acts:
        return []
    _add_calls(draft, process, acts)
    if any(part.threads for part in parts):
        _add_others(draft, process, acts, seen)
    return list(acts.values())


def _add_sessions(acts: dict[int, Act], process: ProcessKey, stream: Transfer, *, own: bool) -> None:
    for session in stream.threads:
        act = acts.get(session.tid)
        if act is None:
            act = acts[session.tid] = Act(process, session.tid, session.comm, is_counted=True)
            act.main = session.tid == process[0]
        act.spans(session.first_ns, max(session.first_ns, session.last_ns))
        act.in_calls(session.call_ns)
        act.operations = (act.operations or 0) + session.operations
        if own:
            act.bytes += session.bytes
            act.files.add(stream.file)
        elif stream.writes is False:
            act.read_bytes = (act.read_bytes or 0) + session.bytes


def _add_calls(draft: Draft, process: ProcessKey, acts: dict[int, Act]) -> None:
    """Add what the threads of a process did to names and disks from the candidate's start to its end."""
    candidate = draft.candidate
    found = draft.known.world.host.calls.spent(process, candidate.start_ns, candidate.end_ns)
    for tid, calls in found.items():
        act = acts.get(tid)
        if act is None:
            comm = draft.known.world.host.threads.comm(process, tid) or draft.known.world.jobs.comm(process)
            act = acts[tid] = Act(process, tid, comm, is_counted=True, main=tid == process[0])
        act.calls = calls
        act.spans(min(one.first_ns for one in calls.values()), max(one.last_ns for one in calls.values()))


def _add_others(draft: Draft, process: ProcessKey, acts: dict[int, Act], seen: set[int]) -> None:
    """Add what they moved of other files meanwhile: what was read back, what is no checkpoint's."""
    candidate = draft.candidate
    for stream in draft.known.transfers.counted_of(process):
        if id(stream) in seen or stream.last_ns < candidate.start_ns or stream.first_ns > candidate.end_ns:
            continue
        for session in stream.threads:
            act = acts.get(session.tid)
            if act is None or session.first_ns < act.start_ns or session.last_ns > act.end_ns:
                continue
            act.in_calls(session.call_ns)
            if candidate.writes and not session.writes:
                act.read_bytes = (act.read_bytes or 0) + session.bytes


def _by_looks(draft: Draft, process: ProcessKey, parts: list[Transfer]) -> list[Act]:
    """Return the threads that were met at work meanwhile; if none was looked at, its main one."""
    start_ns, end_ns = min(part.start_ns for part in parts), max(part.end_ns for part in parts)
    moved = sum(part.bytes for part in parts)
    files = {part.file for part in parts}
    known = draft.known.world.host.threads.threads(process, start_ns, end_ns)
    acts = []
    for tid, comm in known.items():
        use = draft.known.world.host.threads.use(process, tid, start_ns, end_ns)
        if _took_part(use, end_ns - start_ns, _BUSY_SHARE):
            acts.append(Act(process, tid, comm, start_ns, end_ns, use=use, main=tid == process[0]))
    if not acts:
        acts = [Act(process, process[0], draft.known.world.jobs.comm(process), start_ns, end_ns, main=True)]
    _share_out(draft, acts, moved)
    acts = [act for act in acts if act.bytes or _took_part(act.use, end_ns - start_ns, _HELPS_SHARE)]
    busiest = max(acts, key=lambda act: act.bytes)
    busiest.files = files
    return acts


_SYNC_WEIGHT = 0.25  # of a look that met it in a sync: who writes fast into the page cache is met there alone


def _took_part(use: Use | None, span_ns: int, busy: float) -> bool:
    return use is not None and ((use.on_cpu_ns or 0) >= busy * span_ns or _is_at_files(use))


def _is_at_files(use: Use) -> bool:
    return not _AT_FILES.isdisjoint(use.looks_in)


def _share_out(draft: Draft, acts: list[Act], moved: int) -> None:
    """Give the bytes of a process to its threads: to the main one what it moved itself, to others by their looks."""
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
    """Return what the main thread moved itself, as far as that is told; all of it if no other was met at files."""
    alone = not any(act.use is not None and _is_at_files(act.use) for act in others)
    if alone and (draft.role(main.process) != "thread" or (main.use is not None and _is_at_files(main.use))):
        return moved
    told = draft.known.world.trainers.moved(main.process, main.start_ns - CALLS_NS, main.end_ns + CALLS_NS)
    return 0 if told is None else min(moved, max(0, told[0 if draft.candidate.writes else 1]))


def _weight(act: Act) -> float:
    """Return by how much more than others a thread was at the data: looks that met it there, else its time on CPU."""
    if act.use is None:
        return 1.0
    met = act.use.looks_in
    at_it = met.get("data", 0) + met.get("fault", 0) + _SYNC_WEIGHT * met.get("sync", 0)
    return at_it or (act.use.on_cpu_ns or 0) / 1e12


def measured(draft: Draft, acts: list[Act]) -> tuple[ThreadMeasure, ...]:
    """Return them as they are told: those that moved most first, and those that ended last among them."""
    acts = sorted(acts, key=lambda act: (-act.bytes, -act.end_ns))
    if len(acts) > MAX_TOLD:
        late = sorted(acts[MAX_TOLD - _LAST_TOLD :], key=lambda act: -act.end_ns)[:_LAST_TOLD]
        acts = [*acts[: MAX_TOLD - _LAST_TOLD], *late]
    return tuple(_measures(draft, acts))


def _measures(draft: Draft, acts: list[Act]) -> Iterator[ThreadMeasure]:
    ranks = draft.ranks()
    names = draft.known.world.health.sees_names
    for act in acts:
        use, span_ns = act.use, max(0, act.end_ns - act.start_ns)
        role = draft.role(act.process)
        spent: dict[str, int | None] = {}
        for kind, word in _CALLS.items():
            if act.is_counted and (names or word == "sync"):
                known = act.calls.get(kind)
                spent[f"{word}_call_ns"] = 0 if known is None else within_span(known.spent_ns, span_ns)
                spent[f"{word}s" if word != "sync" else "syncs"] = 0 if known is None else known.number
        yield ThreadMeasure(
            pid=act.process[0],
            tid=act.tid,
            comm=act.comm,
            rank=ranks.get(act.process[0]),
            role=role,
            is_main=act.main and role not in {"child", "daemon"},
            start_ns=draft.known.world.clock.wall(act.start_ns),
            end_ns=draft.known.world.clock.wall(act.end_ns),
            bytes=act.bytes,
            operations=act.operations,
            files=len(act.files) or None,
            read_bytes=(act.read_bytes or 0) if act.is_counted and draft.candidate.writes else None,
            on_cpu_ns=use.on_cpu_ns if use is not None else None,
            user_ns=use.user_ns if use is not None else None,
            system_ns=use.system_ns if use is not None else None,
            runqueue_ns=use.runqueue_ns if use is not None else None,
            block_delay_ns=use.block_delay_ns if use is not None else None,
            data_call_ns=within_span(act.data_call_ns, span_ns),
            looks=use.looks if use is not None else None,
            looks_in=use.looks_in if use is not None else None,
            **spent,
        )
