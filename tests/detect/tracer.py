"""What the trace would tell of the moves on a stage: sessions sampled at ticks and when closed, events of files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ckptprof_collectors.samples import FileActivity, FileLifeEvent, OperationKind, Sample

if TYPE_CHECKING:
    from tests.detect.stage import Mapping, Move, Stage

SECOND_NS = 1_000_000_000
MIB = 1 << 20
MONOTONIC_NS = 5_000 * SECOND_NS
DEVICE = 2049


def mono(at_s: float) -> int:
    """Return CLOCK_MONOTONIC at a time of the stage."""
    return MONOTONIC_NS + round(at_s * SECOND_NS)


def activity(pid: int = 100, path: str | None = "/ckpt/step_1.pt", start_s: float = 2.0, end_s: float = 2.02,
             moved: int = 100 * MIB, *, inode: int = 7, offset: int = 0, call_bytes: int = MIB, writes: bool = True,
             tid: int | None = None, closed: bool = True, **fields: Any) -> FileActivity:  # fmt: skip
    """Return one session that goes from `offset` over `moved` bytes in order, unless `fields` say otherwise."""
    operations = -(-moved // call_bytes)
    tid = pid if tid is None else tid
    described: dict[str, Any] = {
        "session": f"{tid}-{inode}-{int(writes)}-{mono(start_s)}", "pid": pid, "start_ticks": pid * 10, "tid": tid,
        "comm": "python3", "device": DEVICE, "inode": inode, "generation": 1, "writes": writes, "path": path,
        "size": offset + moved, "operations": operations, "bytes": moved, "consecutive_operations": operations,
        "consecutive_bytes": moved, "sequential_operations": operations, "sequential_bytes": moved,
        "large_bytes": moved if moved >= MIB else 0, "direct_bytes": 0, "call_ns": 1000 * operations,
        "timed_operations": operations, "first_ns": mono(start_s), "last_ns": mono(end_s), "first_offset": offset,
        "end_offset": offset + moved, "low_offset": offset, "high_offset": offset + moved,
        "kinds": int(OperationKind.READ_WRITE), "sizes": sizes(moved, call_bytes), "faulted_bytes": 0,
        "closed_ns": mono(end_s) if closed else None,
    }  # fmt: skip
    return FileActivity(**{**described, **fields})


def sizes(size: int, call_bytes: int) -> tuple[tuple[int, int, int], ...]:
    """Return the histogram of as many whole operations as fit, and the rest."""
    whole, rest = divmod(size, call_bytes)
    found: dict[int, tuple[int, int]] = {}
    for count, each in ((whole, call_bytes), (1, rest)):
        if count and each:
            low = 1 << (each.bit_length() - 1)
            before = found.get(low, (0, 0))
            found[low] = (before[0] + count, before[1] + count * each)
    return tuple((low, *pair) for low, pair in sorted(found.items()))


def life(kind: str, at_s: float, pid: int = 100, *, inode: int | None = 7, duration_s: float | None = None,
         path: str | None = None, new_path: str | None = None, is_guessed: bool = False) -> FileLifeEvent:  # fmt: skip
    """Return one event."""
    return FileLifeEvent(
        at_ns=mono(at_s), kind=kind, pid=pid, start_ticks=pid * 10, tid=pid,
        device=None if inode is None else DEVICE, inode=inode,
        duration_ns=None if duration_s is None else round(duration_s * SECOND_NS), path=path, new_path=new_path,
        is_guessed=is_guessed,
    )  # fmt: skip


def traced(stage: Stage, before_s: float, at_s: float) -> list[Sample]:
    """Return what a trace yields at one tick."""
    found: list[Sample] = []
    for move in stage.moves:
        died_s = move.actor.exit_s if move.actor.exit_s is not None else 1e9
        closed_s = min(move.closed_s, died_s)
        if move.start_s < at_s and before_s < closed_s:
            sample = _of_move(stage, move, min(at_s, died_s), closed=closed_s <= at_s)
            if sample is not None and (closed_s <= at_s or move.moved(at_s) != move.moved(before_s)):
                found.append(sample)
        found += _events(stage, move, before_s, at_s)
    for mapping in stage.mappings if stage.faults else ():
        if mapping.start_s < at_s and before_s < mapping.end_s:
            found.append(_of_mapping(mapping, min(at_s, mapping.end_s)))
    return found


def _last_s(move: Move, at_s: float) -> float:
    last_s = min(at_s, move.end_s)
    for low, high in move.pauses:
        if low < last_s < high:
            last_s = low
    return last_s


def _of_move(stage: Stage, move: Move, at_s: float, *, closed: bool) -> FileActivity | None:
    moved = move.moved(at_s)
    if moved <= 0:
        return None
    path = (move.final_path or move.path) if closed and move.final_path is None else move.path
    offset = move.size_before if move.flags & os.O_APPEND else 0
    fields: dict[str, Any] = {"size": move.size(at_s)}
    operations = -(-moved // move.call_bytes)
    if move.layout in ("strided", "random"):
        once = min(moved, move.call_bytes)
        fields |= {"consecutive_operations": 1, "consecutive_bytes": once, "large_bytes": moved,
                   "high_offset": 4 * moved if move.layout == "strided" else move.bytes}  # fmt: skip
    if move.layout == "random":
        half = max(1, operations // 2)
        fields |= {"sequential_operations": half, "sequential_bytes": max(once, moved // 2)}
    if closed:
        fields["closed_ns"] = mono(min(move.closed_s, at_s))
    return activity(
        move.actor.pid, path if closed or moved >= MIB else None, move.start_s, _last_s(move, at_s), moved,
        inode=move.inode, offset=offset, call_bytes=move.call_bytes, writes=move.writes, closed=closed, **fields,
    )  # fmt: skip


def _events(stage: Stage, move: Move, before_s: float, at_s: float) -> list[Sample]:
    if not move.writes or move.start_s == move.closed_s:
        return []
    found: list[Sample] = []
    pid = move.actor.pid
    if before_s < move.start_s <= at_s and move.birth_s == move.start_s:
        found.append(life("created", move.start_s, pid, inode=move.inode, path=move.path))
    if before_s < move.closed_s <= at_s and (move.actor.exit_s or 1e9) > move.closed_s:
        if move.closed_s > move.end_s:
            held_s = move.closed_s - move.end_s
            found.append(life("synced", move.closed_s, pid, inode=move.inode, duration_s=held_s, path=move.path))
        if move.final_path is not None:
            found.append(life("renamed", move.closed_s, pid, inode=None, path=move.path, new_path=move.final_path))
    return found


def _of_mapping(mapping: Mapping, at_s: float) -> FileActivity:
    share = (at_s - mapping.start_s) / (mapping.end_s - mapping.start_s)
    touched = int(mapping.bytes * mapping.touched * share) // 4096 * 4096 + 4096
    return activity(
        mapping.actor.pid, mapping.path, mapping.start_s, at_s, touched, inode=mapping.inode, call_bytes=65536,
        writes=False, closed=False, size=mapping.bytes, kinds=int(OperationKind.FAULT), faulted_bytes=touched,
        call_ns=None, timed_operations=0,
    )  # fmt: skip
