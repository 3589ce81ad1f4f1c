"""Finds files that are written only to be copied: a job writes one, reads it whole, and writes as much elsewhere.

Lightning does so for every target that fsspec's transaction cannot rename to, as do writers that stage on a local disk.
The staging file is no checkpoint of its own: it becomes part of its copy (`Transfer.staging_file`), which starts with
it. A file that a child fetched for the process that reads it is none either: that process reads the source.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from ckptprof.detect.tolerances import (
    ALL_SHARE,
    COMMIT_NS,
    HEADER_BYTES,
    MAX_PER_ITEM,
    SIGNIFICANT_BYTES,
    STAMP_TOLERANCE_NS,
)
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.frameworks.file_names import parse_name

_MIN_OBSERVED_SHARE = 0.5  # of a file, in its last sample


def merge_staging_files(written: list[Transfer], read: list[Transfer]) -> tuple[list[Transfer], list[Transfer]]:
    """Return written and read transfers without staging files and the reads of them; their copies include them.

    `written` and `read` are of one job. A staging file was read by the job, is in another folder than its copy and of
    no other step. If the copy is called last or best, it is one under a further name.
    """
    readings: dict[tuple[int, int], list[Transfer]] = {}
    for part in read:
        readings.setdefault(part.file, []).append(part)
    if not readings:
        return written, read
    dropped: set[int] = set()
    claimed: set[int] = set()  # removed transfers, and the targets
    for reading, copy, source in _fetched(written, read):
        reading.rename(source.path)
        reading.merge_staging(copy, source)
        dropped.update((id(source), id(copy)))
    targets = sorted((part for part in written if id(part) not in dropped), key=lambda part: part.start_ns)
    starts = [part.start_ns for part in targets]
    found: dict[int, tuple[Transfer, Transfer, Transfer]] = {}  # by target: target, staging file, the read of it
    for staging in targets:
        read_back = _reading_of(staging, readings.get(staging.file, []), dropped)
        if read_back is None:
            continue
        first = bisect_left(starts, staging.end_ns - STAMP_TOLERANCE_NS)
        last = bisect_right(starts, read_back.end_ns + STAMP_TOLERANCE_NS)
        target = _target_of(staging, read_back, targets[first : min(last, first + MAX_PER_ITEM)], claimed)
        if target is not None:
            found[id(target)] = target, staging, read_back
            dropped.update((id(staging), id(read_back)))
            claimed.update((id(staging), id(read_back), id(target)))
    for target, staging, reading in found.values():
        target.merge_staging(staging, reading)
    return [part for part in written if id(part) not in dropped], [part for part in read if id(part) not in dropped]


def _fetched(written: list[Transfer], read: list[Transfer]) -> Iterator[tuple[Transfer, Transfer, Transfer]]:
    """Yield (read of a copy that a process started later has just made, the copy, the read of its source)."""
    copies = {part.file: part for part in written if not part.is_open and part.bytes >= SIGNIFICANT_BYTES}
    sources: dict[int, list[Transfer]] = {}
    for part in read if copies else ():
        sources.setdefault(part.size_in_use, []).append(part)
    for reading in read if copies else ():
        if (copy := copies.get(reading.file)) is not None and copy.process[1] > reading.process[1]:  # started for it
            source = _source_of(reading, copy, sources.get(copy.stored_size, ()))
            if source is not None and -STAMP_TOLERANCE_NS <= reading.start_ns - copy.end_ns <= COMMIT_NS:
                del copies[reading.file]
                yield reading, copy, source


def _source_of(reading: Transfer, copy: Transfer, parts: Sequence[Transfer]) -> Transfer | None:
    near = [
        part
        for part in parts[:MAX_PER_ITEM]
        if part.process[1] > reading.process[1] and part.folder != copy.folder and part.start_ns <= copy.end_ns
        and copy.start_ns <= part.end_ns + STAMP_TOLERANCE_NS
    ]  # fmt: skip
    return max(near, key=lambda part: (part.process == copy.process, part.file_name == copy.file_name), default=None)


def _reading_of(staging: Transfer, readings: list[Transfer], dropped: set[int]) -> Transfer | None:
    if staging.is_open or staging.bytes < HEADER_BYTES:
        return None
    for part in readings:
        after = staging.end_ns - STAMP_TOLERANCE_NS <= part.end_ns and part.start_ns <= staging.end_ns + COMMIT_NS
        is_partly_unobserved = part.operations is None and parse_name(staging.folder).staging  # read between samples
        is_whole = part.is_open or part.bytes >= staging.bytes * ALL_SHARE or is_partly_unobserved
        if id(part) not in dropped and after and is_whole and part.start_ns >= staging.start_ns:
            return part
    return None


def _target_of(staging: Transfer, reading: Transfer, targets: list[Transfer], claimed: set[int]) -> Transfer | None:
    for part in targets:
        if part.end_ns < reading.start_ns - STAMP_TOLERANCE_NS or part.file == staging.file or id(part) in claimed:
            continue
        is_other_step = len({part.name.step, staging.name.step} - {None}) > 1  # what was joined may still be mapped
        is_beside = part.folder == staging.folder and not staging.name.staging
        is_by_other = reading.process == staging.process != part.process  # ranks write files of one size
        if is_beside or is_other_step or is_by_other or part.name.is_alias_of(staging.name):
            continue
        if _may_grow(part, reading) if part.is_open else _is_same_size(part, staging, reading):
            return part
    return None


def _may_grow(target: Transfer, reading: Transfer) -> bool:
    """Decide whether an open file may become a copy: if it has a few bytes after all was read, it is a log."""
    return reading.is_open or target.operations is None or target.bytes >= HEADER_BYTES


def _is_same_size(target: Transfer, staging: Transfer, reading: Transfer) -> bool:
    """Compare the size of a copy with that of its staging file.

    When polled, the samples of a deleted file give its minimum size, and the read of it the full size. The samples of a
    target without a reported size give its minimum, too.
    """
    size = staging.bytes if staging.operations is not None else max(staging.bytes, reading.size)
    min_share = ALL_SHARE if target.operations is not None or target.fact is not None else _MIN_OBSERVED_SHARE
    return size * min_share <= target.bytes and target.bytes * ALL_SHARE <= size
