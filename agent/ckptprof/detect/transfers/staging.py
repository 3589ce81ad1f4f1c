"""Finds files that are written only to be copied: a job writes one, reads it whole, and writes as much elsewhere.

Lightning does so for every target that fsspec's transaction cannot rename to, as do writers that stage on a local disk.
The stage is no checkpoint of its own: it stands behind what it became (`Transfer.staged`), which begins with it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from ckptprof.detect.tolerances import ALL_SHARE, COMMIT_NS, HEADER_BYTES, MAX_EACH, STAMP_NS
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.frameworks.names import read_name

_UNSEEN = 0.5  # of a file at least was seen by the last look at it


def join_stages(written: list[Transfer], read: list[Transfer]) -> tuple[list[Transfer], list[Transfer]]:
    """Return what was written and read without the stages and the reading of them; their targets carry them.

    `written` and `read` are of one job. Nothing is a stage that was not read by the job, or lies where its copy lies,
    or has a step where its copy is the last or the best: that is a copy under a further name.
    """
    readings: dict[tuple[int, int], list[Transfer]] = {}
    for part in read:
        readings.setdefault(part.file, []).append(part)
    if not readings:
        return written, read
    gone: set[int] = set()
    taken: set[int] = set()  # what is gone, and the targets
    targets = sorted(written, key=lambda part: part.start_ns)
    starts = [part.start_ns for part in targets]
    found: dict[int, tuple[Transfer, Transfer, Transfer]] = {}  # by its target: that, the stage, its reading
    for stage in targets:
        reading = _reading_of(stage, readings.get(stage.file, []), gone)
        if reading is None:
            continue
        first = bisect_left(starts, stage.end_ns - STAMP_NS)
        last = bisect_right(starts, reading.end_ns + STAMP_NS)
        target = _target_of(stage, reading, targets[first : min(last, first + MAX_EACH)], taken)
        if target is not None:
            found[id(target)] = target, stage, reading
            gone.update((id(stage), id(reading)))
            taken.update((id(stage), id(reading), id(target)))
    for target, stage, reading in found.values():
        target.join_stage(stage, reading)
    return [part for part in written if id(part) not in gone], [part for part in read if id(part) not in gone]


def _reading_of(stage: Transfer, readings: list[Transfer], gone: set[int]) -> Transfer | None:
    if stage.is_open or stage.bytes < HEADER_BYTES:
        return None
    for part in readings:
        after = stage.end_ns - STAMP_NS <= part.end_ns and part.start_ns <= stage.end_ns + COMMIT_NS
        unseen = part.operations is None and read_name(stage.folder).staging  # the rest was read between two looks
        whole = part.is_open or part.bytes >= stage.bytes * ALL_SHARE or unseen
        if id(part) not in gone and after and whole and part.start_ns >= stage.start_ns:
            return part
    return None


def _target_of(stage: Transfer, reading: Transfer, targets: list[Transfer], taken: set[int]) -> Transfer | None:
    for part in targets:
        if part.end_ns < reading.start_ns - STAMP_NS or part.file == stage.file or id(part) in taken:
            continue
        if (part.folder == stage.folder and not stage.name.staging) or part.name.is_further(stage.name):
            continue
        if _may_grow(part, reading) if part.is_open else _is_as_big(part, stage, reading):
            return part
    return None


def _may_grow(target: Transfer, reading: Transfer) -> bool:
    """Return whether a file that is open yet may become a copy: once all was read, a few bytes are lines of a log."""
    return reading.is_open or target.operations is None or target.bytes >= HEADER_BYTES


def _is_as_big(target: Transfer, stage: Transfer, reading: Transfer) -> bool:
    """Return whether a copy has the size of its stage.

    Polled, what was seen of a file that is gone is the least that it held, and its reading shows how much that was; so
    is what was seen of a target of which the file system has not said yet.
    """
    size = stage.bytes if stage.operations is not None else max(stage.bytes, reading.size)
    least = ALL_SHARE if target.operations is not None or target.fact is not None else _UNSEEN
    return size * least <= target.bytes and target.bytes * ALL_SHARE <= size
