"""Finds files that are written only to be copied: a job writes one, reads it whole, and writes as much elsewhere.

Lightning does so for every target that fsspec's transaction cannot rename to, as do writers that stage on a local disk.
The stage is no checkpoint of its own: it stands behind the part that it became (`Part.staged`), which begins with it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import replace

from ckptprof.detect.transfers.part import Part

FOLLOWS_NS = 30_000_000_000  # from the end of the stage to the begin of the copy
_EARLY_NS = 50_000_000  # a file is stamped with the clock of the last timer tick
_LIKE = 0.01
_UNSEEN = 0.5  # of a file may be written after the last look at it
_MAX_TARGETS = 64  # that may be the copy of one stage
MIN_STAGED_BYTES = 64 << 10


def join_stages(written: list[Part], read: list[Part]) -> tuple[list[Part], list[Part]]:
    """Return what was written and read without the stages and the reading of them; their targets carry them.

    `written` and `read` are of one job. Nothing is a stage that was not read by the job, or lies where its copy lies:
    that is a copy under a further name.
    """
    readings: dict[tuple[int, int], list[Part]] = {}
    for part in read:
        readings.setdefault(part.stream.file, []).append(part)
    if not readings:
        return written, read
    gone: set[int] = set()
    targets = sorted(written, key=lambda part: part.start_ns)
    starts = [part.start_ns for part in targets]
    staged: dict[int, Part] = {}
    for stage in targets:
        reading = _reading_of(stage, readings.get(stage.stream.file, []), gone)
        if reading is None:
            continue
        first = bisect_left(starts, stage.end_ns - _EARLY_NS)
        last = bisect_right(starts, reading.end_ns + _EARLY_NS)
        target = _target_of(stage, reading, targets[first : min(last, first + _MAX_TARGETS)], gone | staged.keys())
        if target is not None:
            behind = staged.pop(id(stage), stage)
            staged[id(target)] = _carrying(target, behind, reading)
            gone |= {id(stage), id(reading)}
    kept = [staged.get(id(part), part) for part in written if id(part) not in gone]
    return kept, [part for part in read if id(part) not in gone]


def _carrying(target: Part, stage: Part, reading: Part) -> Part:
    """Return the target as it stands for its stage: a part of its own, for the other is kept until more is learnt."""
    over = [] if reading.is_open else [reading.stream]
    return replace(
        target,
        staged=stage.stream,
        carried=[stage.stream, *stage.carried, *over],
        start_ns=min(target.start_ns, stage.start_ns),
        is_open=target.is_open or reading.is_open,
    )


def _reading_of(stage: Part, readings: list[Part], gone: set[int]) -> Part | None:
    """Return the reading of all of a file that was written just before."""
    if stage.is_open or stage.bytes < MIN_STAGED_BYTES:
        return None
    for part in readings:
        after = stage.end_ns - _EARLY_NS <= part.end_ns and part.start_ns <= stage.end_ns + FOLLOWS_NS
        whole = part.is_open or part.bytes >= stage.bytes * (1 - _LIKE)
        if id(part) not in gone and after and whole and part.start_ns >= stage.start_ns:
            return part
    return None


def _target_of(stage: Part, reading: Part, targets: list[Part], taken: set[int]) -> Part | None:
    folder = stage.stream.path.rpartition("/")[0]
    for part in targets:
        if part.stream.file == stage.stream.file or id(part) in taken:
            continue
        if part.stream.path.rpartition("/")[0] == folder and not stage.name.staging:
            continue
        overlaps = part.end_ns >= reading.start_ns - _EARLY_NS
        if overlaps and (part.is_open or _is_as_big(part, stage, reading)):
            return part
    return None


def _is_as_big(target: Part, stage: Part, reading: Part) -> bool:
    """Return whether a copy has the size of its stage.

    Polled, what was seen of a file that is gone is the least that it held, and its reading tells how much that was; so
    is what was seen of a target of which the file system has not told yet.
    """
    size = stage.bytes if stage.stream.trace is not None else max(stage.bytes, reading.stream.size)
    least = _LIKE if target.stream.trace is not None or target.stream.fact is not None else _UNSEEN
    return size * (1 - least) <= target.bytes <= size * (1 + _LIKE)
