"""Whether a save hangs, and at whom: a writer that has an unfinished file open, and neither writes nor computes."""

from __future__ import annotations

from typing import NamedTuple

from ckptprof.detect.describe.completeness import lacks_only_bytes
from ckptprof.detect.describe.writers import name_writer
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.detection_knowledge import Knowledge
from ckptprof.detect.tolerances import LITTLE_SHARE, POLL_INTERVAL_NS, SIGNIFICANT_BYTES
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.units import size

HANG_NS = 20_000_000_000  # no byte for so long; it is named within 30 s
_STATES = {"T": "was stopped by a signal", "t": "was stopped by a debugger"}
_CALLS = {"data": "read or write", "sync": "sync", "close": "close"}


class Hang(NamedTuple):
    """The writer that a save waits for."""

    pid: int
    since_ns: int  # CLOCK_MONOTONIC of its last byte
    text: str


def find_hang(candidate: Candidate, known: Knowledge) -> Hang | None:
    """Find the writer that stopped first; None: the save moves, or may have ended."""
    now_ns = known.world.counted_ns
    if not candidate.writes or candidate.is_sent or candidate.bytes < SIGNIFICANT_BYTES:
        return None
    open_parts = [part for part in candidate.parts if part.closed_ns is None]
    last_bytes_ns = [_last_byte_ns(part) for part in open_parts]
    if now_ns - max([candidate.end_ns if not open_parts else 0, *last_bytes_ns]) < HANG_NS:
        return None
    hung = [
        (since_ns, part, why)
        for since_ns, part in zip(last_bytes_ns, open_parts, strict=True)
        if (why := _why_hung(part, since_ns, candidate, known, now_ns)) is not None
    ]
    if not hung:
        return None
    since_ns, part, why = min(hung, key=lambda one: one[0])
    who = name_writer(part.process, candidate, known.world.jobs)
    others = len(set(candidate.processes) - {one.process for _, one, _ in hung})
    ended = f"; {others} other process{'es have' if others > 1 else ' has'} ended its part" if others else ""
    return Hang(part.process[0], since_ns, f"{who} {why}, {size(part.bytes)} into {part.file_name}{ended}")


def _last_byte_ns(part: Transfer) -> int:
    if part.operations is not None or not part.samples:
        return part.active_ns
    *_, last = part.samples
    since_ns = last.at_ns
    for sample in reversed(part.samples):
        if sample[1:] != last[1:]:
            break
        since_ns = sample.at_ns
    return since_ns


def _why_hung(part: Transfer, since_ns: int, candidate: Candidate, known: Knowledge, now_ns: int) -> str | None:
    world = known.world
    if world.died_ns(part.process) is not None:
        return None
    stat = world.histories[part.process].last_stat
    if stat is not None and stat.state in _STATES:
        return _STATES[stat.state]
    for call, text in _CALLS.items():
        until_ns = world.threads.state_end_ns(part.process, call, since_ns)
        if until_ns is not None and now_ns - until_ns <= 2 * POLL_INTERVAL_NS:
            return f"is in a {text} that does not return"
    used = world.usage.totals(part.process, since_ns, now_ns)
    is_idle = used is not None and used.busy < LITTLE_SHARE
    return "is idle" if is_idle and lacks_only_bytes(candidate, known) else None
