"""Where the bytes of a restore came from: the page cache, or a device or the network.

`read_bytes` in /proc/PID/io rise when pages are fetched for a process, by calls, read-ahead and page faults alike: from
block devices (block/blk-core.c, submit_bio), NFS (fs/nfs/read.c, nfs_readahead) and ZFS. Other clients of remote
storage fetch in their own threads or do not count: counted bytes are from there, but a low count is no
evidence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from ckptprof.detect.describe.writers import by_process
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.tolerances import CODE_BYTES, EDGE_TOLERANCE_NS, LITTLE_SHARE, WHOLE_SHARE
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.keys import FileKey
from ckptprof.detect.world.process_counters import ProcessHistories, ProcessHistory
from ckptprof.detect.world.spans import length, merged
from ckptprof.frameworks.places import COUNTED_BY_READER, IN_MEMORY
from ckptprof.measures import MountMeasure
from ckptprof_collectors.samples import MountInfo

_FAULT_BYTES = 1 << 20  # of code that one page fault may fetch


@dataclass(frozen=True)
class RestoreSource:
    """Where the bytes of a restore came from."""

    storage_bytes: int | None = None
    unique_bytes: int | None = None
    cache: str | None = None  # cold | warm | partly


class _FetchedBytes(NamedTuple):
    """Bytes fetched from storage during a restore, and how many may have been code instead."""

    fetched_bytes: int
    code_bytes: int


def find_restore_source(candidate: Candidate, histories: ProcessHistories, mount: MountInfo | None) -> RestoreSource:
    """Classify the source of a restore; empty for a save. `mount`: the mount of its files, if known."""
    by_file: dict[FileKey, list[Transfer]] = {}
    for part in () if candidate.writes else candidate.parts:
        by_file.setdefault(part.file, []).append(part)
    unique = sum(map(_unique_file_bytes, by_file.values()))
    if unique <= 0:
        return RestoreSource()
    if mount is not None and mount.fs_type in IN_MEMORY:
        return RestoreSource(0, unique, "warm")
    fetched_by_process = [_fetched_by(own, histories[process]) for process, own in by_process(candidate.parts).items()]
    known_fetched = [one for one in fetched_by_process if one is not None]
    fetched = sum(one.fetched_bytes for one in known_fetched)
    is_cold = fetched >= WHOLE_SHARE * unique
    is_counted = mount is not None and (
        mount.device is not None or mount.fs_type in COUNTED_BY_READER
    )  # for the process that reads
    if len(known_fetched) < len(fetched_by_process) or not (is_cold or is_counted):
        return RestoreSource(unique_bytes=unique)
    is_warm = fetched - sum(one.code_bytes for one in known_fetched) <= LITTLE_SHARE * unique
    return RestoreSource(fetched, unique, "cold" if is_cold else "warm" if is_warm else "partly")


def refine_by_client(source: RestoreSource, candidate: Candidate, mount: MountMeasure | None) -> RestoreSource:
    """Refine the source by the mount's client: from its servers, or from local memory.

    A client counts for all processes: if others read much of the mount at the same time, it proves nothing.
    """
    if source.cache is not None or not source.unique_bytes or candidate.writes or mount is None:
        return source
    received, requested = mount.wire_read_bytes, (mount.read_bytes or 0) + (mount.direct_read_bytes or 0)
    if received is None:
        return source
    if received <= LITTLE_SHARE * source.unique_bytes:
        return replace(source, storage_bytes=received, cache="warm")
    if WHOLE_SHARE * requested > candidate.bytes:
        return source
    is_cold = received >= WHOLE_SHARE * source.unique_bytes
    return replace(source, storage_bytes=received, cache="cold" if is_cold else "partly")


def _unique_file_bytes(parts: list[Transfer]) -> int:
    """Distinct bytes of a file: at most its size, or the ranges that were read."""
    limits = [sum(part.bytes for part in parts)]
    size = max(part.stored_size or part.mapped_bytes for part in parts)
    if size > 0:
        limits.append(size)
    stretches = [part.offset_range for part in parts if part.offset_range is not None and not part.is_mapped]
    if len(stretches) == len(parts):
        limits.append(length(merged(stretches)))
    return min(limits)


def _fetched_by(parts: list[Transfer], history: ProcessHistory) -> _FetchedBytes | None:
    start_ns, end_ns = min(part.start_ns for part in parts), max(part.end_ns for part in parts)
    slack_ns = max(part.edges_slack_ns for part in parts)
    intervals = history.between(start_ns - slack_ns, end_ns + slack_ns)
    requested = sum(part.bytes for part in parts if not part.is_mapped)
    returned = sum(interval.returned_bytes for interval in intervals)
    is_covered = history.first_ns <= start_ns + EDGE_TOLERANCE_NS and history.last_ns >= end_ns - EDGE_TOLERANCE_NS
    if not is_covered and (requested == 0 or returned < WHOLE_SHARE * requested):
        return None
    faults = 0 if any(part.is_mapped for part in parts) else sum(interval.major_faults for interval in intervals)
    code = min(CODE_BYTES, _FAULT_BYTES * faults)
    return _FetchedBytes(sum(interval.fetched_bytes for interval in intervals), code)
