"""When files reached stable storage: by their own sync, or by samples of how much was still unwritten.

Also when they were in an object store, by the process that read them back and sent as much; and what a crash may cost,
from the order of the calls of a traced save.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ckptprof.detect.describe.overheads import find_copies
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.detection_knowledge import Knowledge
from ckptprof.detect.events.event_context import EventContext
from ckptprof.detect.tolerances import (
    ALL_SHARE,
    CONCURRENT_NS,
    EDGE_TOLERANCE_NS,
    LITTLE_SHARE,
    STAMP_TOLERANCE_NS,
    is_same_state_size,
)
from ckptprof.detect.transfers.model.sending import OTHER_ADDRESSES
from ckptprof.detect.transfers.model.traced_transfer import TracedTransfer
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.observed.file_events import is_temporary
from ckptprof.detect.transfers.recent_files import Writeback
from ckptprof.detect.world.host.devices import Devices
from ckptprof.detect.world.keys import FileKey
from ckptprof.detect.world.recording_clock import RecordingClock
from ckptprof.frameworks.places import DELAYED_ALLOCATION, FLUSHED_BY_REPLACING
from ckptprof.measures import UploadMeasure
from ckptprof.model import Checkpoint, Evidence, Frailty
from ckptprof.units import duration, plural, size

MAX_UPLOADS = 4  # of one save


class FileWriteEnd(NamedTuple):
    """What decides when a written file is durable. Times are CLOCK_MONOTONIC."""

    file: FileKey
    bytes: int
    last_ns: int  # its last write
    synced_ns: int | None  # the end of a sync after that
    stamp_ns: int  # latest modification time that the writer left: with a later one it was written again


@dataclass(frozen=True)
class Durability:
    """When all files were on stable storage. Times are CLOCK_MONOTONIC."""

    at_ns: int | None = None
    is_exact: bool = True  # by syncs; else `at_ns` is an upper bound
    last_unwritten_ns: int | None = None  # the last sample with something unwritten
    unwritten_bytes: int = 0  # at the last sample


def list_write_ends(parts: Iterable[Transfer], clock: RecordingClock) -> tuple[FileWriteEnd, ...]:
    """List the ends of written files."""
    return tuple(
        FileWriteEnd(part.file, part.bytes, part.written_ns(clock), part.durable_ns, _stamp_ns(part, clock))
        for part in parts
    )


def _stamp_ns(part: Transfer, clock: RecordingClock) -> int:
    """Latest modification time: the clock of the file's server may be ahead of ours."""
    stamp_ns = clock.stamp(part.end_ns)
    return stamp_ns if part.fact is None else max(stamp_ns, part.fact.modified_ns)


def estimate_durability(ends: Iterable[FileWriteEnd], writeback: Writeback) -> Durability:
    """Estimate durability so far: `at_ns` only if nearly all bytes are known durable, and none is known unwritten."""
    total = durable = unwritten = 0
    durable_times: list[int] = []
    dirty_times: list[int] = []
    exact = True
    for end in ends:
        total += end.bytes
        if end.synced_ns is not None:
            durable += end.bytes
            durable_times.append(end.synced_ns)
            continue
        exact = False
        writeback_samples = writeback.get(end.file)
        if (
            writeback_samples is None
            or writeback_samples.at_ns < end.last_ns - STAMP_TOLERANCE_NS
            or writeback_samples.modified_ns > end.stamp_ns + EDGE_TOLERANCE_NS
        ):
            continue
        if writeback_samples.last_dirty_ns is not None:
            dirty_times.append(writeback_samples.last_dirty_ns)
        if writeback_samples.first_clean_ns is None:
            unwritten += writeback_samples.unwritten_bytes
        elif writeback_samples.first_clean_ns >= end.last_ns:
            durable += end.bytes
            durable_times.append(writeback_samples.first_clean_ns)
    if not durable_times or unwritten or durable < ALL_SHARE * total:  # the smallest of thousands are not followed
        return Durability(unwritten_bytes=unwritten, last_unwritten_ns=max(dirty_times, default=None))
    return Durability(max(durable_times), exact, max(dirty_times, default=None))


def measure_writeback(
    found: Durability, path: str, span: tuple[int, int], devices: Devices, wall: Callable[[int], int]
) -> dict[str, int | None]:
    """Fields of `Measures` on the write-back of a save in `span`; `wall` converts to wall time."""
    values: dict[str, int | None] = {
        "unwritten_ns": None if found.last_unwritten_ns is None else wall(found.last_unwritten_ns)
    }
    start_ns, end_ns = span
    if found.at_ns is None or found.at_ns <= end_ns or not (chain := devices.chain_of(path)):
        return values
    written = devices.disks.measure_writes(chain[0], start_ns, found.at_ns)
    if written is not None:
        values |= {"written_back_bytes": written.bytes, "written_back_ns": written.busy_ns}
    return values


def durability_evidence(found: Durability) -> tuple[Evidence, ...]:
    """How exact the time of durability is; empty if exact."""
    if found.is_exact or found.at_ns is None:
        return ()
    text = "the first sample in which none of its files was unwritten"
    if found.last_unwritten_ns is not None:
        seconds = max(0, found.at_ns - found.last_unwritten_ns) / 1e9
        text = f"written back by the kernel: some of it was still unwritten {seconds:.1f} s before"
    return (Evidence(name="durable", weight=0.0, text=text),)


def match_upload(event: EventContext, save: Checkpoint, paths: Collection[str]) -> UploadMeasure | None:
    """Match what was sent with a save in files at `paths`; None if it is no upload of it."""
    if not is_same_state_size(event.bytes, save.bytes):
        return None
    window = event.start_ns - CONCURRENT_NS, event.end_ns
    read: Counter[str] = Counter()
    for process in event.first_processes:
        for one in event.known.transfers.recent.transfers_between(process, *window, writes=False):
            if one.path in paths:
                read[one.path] = min(one.stored_size or one.bytes, read[one.path] + one.bytes)
    if not read or not is_same_state_size(read.total(), save.bytes):
        return None
    sums: Counter[tuple[str, int]] = Counter()
    for part in event.parts:
        if part.sending is not None:
            sums.update(part.sending.endpoints)
    (remote, port), _ = max(sums.items(), key=lambda one: (one[0][0] != OTHER_ADDRESSES, one[1]))
    clock = event.world.clock
    return UploadMeasure(
        remote=remote,
        port=port,
        bytes=event.bytes,
        start_ns=clock.wall(event.start_ns),
        end_ns=clock.wall(event.end_ns),
        processes=tuple(sorted(pid for pid, _ in event.first_processes)),
    )


def find_frailties(candidate: Candidate, known: Knowledge) -> Iterator[Evidence]:
    """Yield what a crash may cost, by the order in which a complete, fully traced save was written."""
    parts = [part for part in candidate.parts if isinstance(part, TracedTransfer) and not part.is_mapped]
    health, clock = known.world.health, known.world.clock
    if (
        not candidate.writes
        or len(parts) < len(candidate.parts)
        or health.loss_limitations(candidate.start_ns, candidate.end_ns)
    ):
        return
    markers = [part for part in parts if part.name.commit and part.name.rank is None]
    data = [part for part in parts if part.bytes >= LITTLE_SHARE * candidate.bytes and not part.name.commit]
    if not data:
        return
    marker = max(markers, key=_named_ns, default=None)
    written_after_marker = [] if marker is None else [part for part in data if part.active_ns > _named_ns(marker)]
    if marker is not None and written_after_marker:
        lead = duration(max(part.active_ns for part in written_after_marker) - _named_ns(marker))
        text = f"{marker.file_name} existed {lead} before the last byte of {_describe_files(written_after_marker)}"
        yield _frailty(Frailty.MARKER_FIRST, text)
    elif unsynced := _unsynced(data, marker, known):
        when = f"{marker.file_name} was written" if marker is not None else "it was renamed"
        text = (
            f"{_describe_files(unsynced)} had not been synced when {when}: after a loss of power it "
            "may be empty or torn"
        )
        yield _frailty(Frailty.COMMIT_UNSYNCED, text)
    emptied = [part.emptied_ns for part in data if part.emptied_ns is not None and part.name_given_ns is None]
    paths = frozenset(part.path for part in data)
    is_overwritten = len(emptied) == len(data) and not find_copies(candidate.parts)
    if is_overwritten and known.history.is_only_state(candidate.job, paths, candidate.bytes):
        torn = duration(max(part.last_data_ns(clock) for part in data) - min(emptied))
        text = f"it overwrote the only copy that was observed: for {torn} no complete copy existed"
        yield _frailty(Frailty.OVERWRITTEN, text)


def _named_ns(part: TracedTransfer) -> int:
    return max(part.active_ns, part.name_given_ns or 0)


def _unsynced(data: Sequence[TracedTransfer], marker: TracedTransfer | None, known: Knowledge) -> list[TracedTransfer]:
    """Files still unwritten after the save was marked complete, or after they got their final names."""
    found = []
    for part in data:
        types = {mount.fs_type for mount in known.world.devices.mounts_of_device(part.file[0])}
        renamed = part.name_given_ns is not None and part.earlier_path is not None and is_temporary(part.earlier_path)
        if not types or not types <= DELAYED_ALLOCATION or (marker is None and not renamed):
            continue
        if renamed and types <= FLUSHED_BY_REPLACING and known.history.author_of(part.path) is not None:
            continue
        named_ns = _named_ns(part if marker is None else marker)
        writeback_samples = known.transfers.writeback.get(part.file)
        dirty_ns = None if writeback_samples is None else writeback_samples.last_dirty_ns
        if dirty_ns is not None and dirty_ns > named_ns and (part.durable_ns is None or part.durable_ns > named_ns):
            found.append(part)
    return found


def _describe_files(parts: Sequence[Transfer]) -> str:
    more = f" and {plural(len(parts) - 1, 'more file')}" if len(parts) > 1 else ""
    return f"{max(parts, key=lambda part: part.bytes).file_name}{more} ({size(sum(part.bytes for part in parts))})"


def _frailty(kind: Frailty, text: str) -> Evidence:
    return Evidence(name=kind.value, weight=0.0, text=text)
