"""Where the bytes of a restore came from: the page cache, or a device or the network.

A process's `read_bytes` in /proc/PID/io rise when it has pages fetched, by calls, read-ahead and page faults alike:
from block devices (block/blk-core.c, submit_bio), NFS (fs/nfs/read.c, nfs_readahead) and ZFS. Other clients of remote
storage fetch in threads of their own or do not count: what was counted came from there, but little says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.transfers.model.tolerances import EDGE_NS
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.keys import FileKey, ProcessKey
from ckptprof.detect.world.process_counters import ProcessHistory
from ckptprof.detect.world.spans import length, merged
from ckptprof.frameworks.places import COUNTED, IN_MEMORY
from ckptprof_collectors.samples import MountInfo

COLD_SHARE = 0.9  # of the distinct bytes came from storage
WARM_SHARE = 0.1
_CODE_BYTES = 1 << 20  # that a page fault may fetch with the page: of code that is paged in while a checkpoint is read
_MAX_CODE_BYTES = 32 << 20
_SEEN_SHARE = 0.9  # of the bytes asked for must show in the counters, or the rest of the fetching was not seen, too


@dataclass(frozen=True)
class Source:
    """Of a restore."""

    storage_bytes: int | None = None
    unique_bytes: int | None = None
    cache: str | None = None  # cold | warm | partly


class _Fetched(NamedTuple):
    """What came from storage while a checkpoint was read, and how much of it may have been code instead."""

    fetched_bytes: int
    code_bytes: int


def source_of(candidate: Candidate, histories: dict[ProcessKey, ProcessHistory], mount: MountInfo | None) -> Source:
    """Return where the bytes came from; of a save nothing. `mount`: the one that its files are on, if known."""
    if candidate.writes:
        return Source()
    unique = _unique_bytes(candidate.parts)
    if unique <= 0:
        return Source()
    if mount is not None and mount.fs_type in IN_MEMORY:
        return Source(0, unique, "warm")
    seen = _fetched_by_all(candidate.parts, histories)
    if seen is None or (seen.fetched_bytes < COLD_SHARE * unique and not _counts(mount)):
        return Source(unique_bytes=unique)
    if seen.fetched_bytes >= COLD_SHARE * unique:
        cache = "cold"
    else:
        cache = "warm" if seen.fetched_bytes - seen.code_bytes <= WARM_SHARE * unique else "partly"
    return Source(seen.fetched_bytes, unique, cache)


def _counts(mount: MountInfo | None) -> bool:
    """Return whether what is fetched through a mount shows in the counters of the process that reads."""
    return mount is not None and (mount.device is not None or mount.fs_type in COUNTED)


def _unique_bytes(parts: list[Transfer]) -> int:
    """Return the distinct bytes: of each file at most its size, or the stretches that were read of it."""
    by_file: dict[FileKey, list[Transfer]] = {}
    for part in parts:
        by_file.setdefault(part.file, []).append(part)
    return sum(_unique_of_file(same) for same in by_file.values())


def _unique_of_file(parts: list[Transfer]) -> int:
    limits = [sum(part.bytes for part in parts)]
    size = max(part.extent_bytes for part in parts)
    if size > 0:
        limits.append(size)
    stretches = [part.stretch for part in parts if part.stretch is not None and not part.is_mapped]
    if len(stretches) == len(parts):
        limits.append(length(merged(stretches)))
    return min(limits)


def _fetched_by_all(parts: list[Transfer], histories: dict[ProcessKey, ProcessHistory]) -> _Fetched | None:
    """Return what the readers had fetched while they read; None if one of them was not looked at all the time."""
    by_process: dict[ProcessKey, list[Transfer]] = {}
    for part in parts:
        by_process.setdefault(part.process, []).append(part)
    every = []
    for process, own in by_process.items():
        history = histories.get(process)
        fetched = _fetched_by(own, history) if history is not None else None
        if fetched is None:
            return None
        every.append(fetched)
    return _Fetched(sum(one.fetched_bytes for one in every), sum(one.code_bytes for one in every))


def _fetched_by(parts: list[Transfer], history: ProcessHistory) -> _Fetched | None:
    start_ns, end_ns = min(part.start_ns for part in parts), max(part.end_ns for part in parts)
    slack_ns = max(part.edges_slack_ns for part in parts)
    around = history.between(start_ns - slack_ns, end_ns + slack_ns)
    asked = sum(part.bytes for part in parts if not part.is_mapped)
    returned = sum(interval.returned_bytes for interval in around)
    looked = history.first_ns <= start_ns + EDGE_NS and history.last_ns >= end_ns - EDGE_NS
    if not looked and (asked == 0 or returned < _SEEN_SHARE * asked):
        return None
    code = 0
    if not any(part.is_mapped for part in parts):
        code = min(_MAX_CODE_BYTES, _CODE_BYTES * sum(interval.major_faults for interval in around))
    return _Fetched(sum(interval.fetched_bytes for interval in around), code)
