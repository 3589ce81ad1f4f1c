"""Limitations: what could not be observed of a checkpoint, one sentence each."""

from __future__ import annotations

from collections.abc import Iterator

from ckptprof.detect.describe.completeness import missing_pieces
from ckptprof.detect.describe.layout import OBSERVED_SHARE
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.tolerances import CODE_BYTES, LITTLE_SHARE, SIGNIFICANT_BYTES
from ckptprof.detect.transfers.ledger import evenly_counted_bytes
from ckptprof.detect.transfers.model.group import level_of
from ckptprof.detect.transfers.model.operations import OperationSums
from ckptprof.detect.world.process_counters import ProcessHistories
from ckptprof.detect.world.starvation import Starvation
from ckptprof.detect.world.trace_health import TraceHealthHistory
from ckptprof.model import Level, Pattern
from ckptprof.units import size
from ckptprof_collectors.samples import OperationKind

_COUNTED_AS_REQUESTED = (OperationKind.AIO | OperationKind.URING).value  # a flag's own `&` takes ten times as long
_READ_AROUND_NS = 300_000_000  # a restore reads its unobserved first or last files without a pause


def list_limitations(
    candidate: Candidate, pattern: Pattern, files: int, health: TraceHealthHistory, starvation: Starvation
) -> Iterator[str]:
    """Yield the limitations known at assembly; `unsettled_limitation` has the one that may be resolved later."""
    if candidate.is_sent:
        yield from _sent_limitations(candidate)
        yield from starvation.limitations_during(candidate.start_ns, candidate.end_ns)
        return
    operation_sums = [part.operations for part in candidate.parts if part.operations is not None]
    polled = level_of(candidate.parts) is not Level.TRACE
    if polled:
        yield "offset, size and time of single operations: polling shows only their sums between two ticks"
    mapped = [(part, part.operations) for part in candidate.parts if part.is_mapped]
    if any(sums is None or part.bytes > sums.bytes - sums.unevented_bytes for part, sums in mapped):
        yield "order of page faults in mapped files: their bytes are the touched parts of the mappings"
    elif pattern.class_ is None:
        yield "order of the operations: too few samples of the positions in the files"
    elif (pattern.order_known_share_bytes or 0.0) < OBSERVED_SHARE:
        yield (
            "order of most operations: inferred from new files as long as what was written to them, or from a few "
            "large operations that transferred each byte once"
        )
    yield from _file_limitations(candidate, files)
    if operation_sums:
        yield from _operation_limitations(operation_sums)
        yield from health.loss_limitations(candidate.start_ns, candidate.end_ns)
        yield from health.degraded
    yield from starvation.limitations_during(candidate.start_ns, candidate.end_ns, polled=polled)


def unsettled_limitation(candidate: Candidate) -> str:
    """Limitation while it is unknown when a save became durable, or where the bytes of a restore came from."""
    if candidate.is_sent and candidate.writes:
        return "when the object store had it on stable storage: its answers are inside the connections"
    if candidate.is_sent:
        return "whether the object store had it in memory, or read it from a device"
    if not candidate.writes:
        return "which of the bytes came from the page cache and which from the device or the network"
    inside = "" if level_of(candidate.parts) is Level.TRACE else ", and the time inside fsync"
    return f"when the last byte left the page cache for stable storage{inside}"


def not_durable_limitation(unwritten_bytes: int) -> str:
    """Limitation of a save that was not yet on stable storage when the recording ended."""
    return f"when it became durable: {size(unwritten_bytes)} was still unwritten when the recording ended"


def untracked_bytes_limitation(
    candidate: Candidate, histories: ProcessHistories, written_bytes: int | None
) -> list[str]:
    """Limitation if its processes transferred far more in this time than polling found in files; else empty."""
    if candidate.is_sent or any(part.operations is not None for part in candidate.parts):
        return []
    writes = candidate.writes
    found = max(candidate.bytes, (written_bytes or 0) if writes else 0)
    least, around_ns, verb = (SIGNIFICANT_BYTES, 0, "written") if writes else (CODE_BYTES, _READ_AROUND_NS, "read")
    window = candidate.start_ns - around_ns, candidate.end_ns + around_ns
    transferred = sum(
        evenly_counted_bytes(histories[process], *window, writes=writes) for process in candidate.processes
    )
    if transferred - found < max(least, LITTLE_SHARE * found):  # logs, and counters that are a tick apart, make less
        return []
    share = f"{'most' if transferred > 2 * found else 'a part'} of what was {verb}: its processes"
    if not writes:
        return [f"{share} read {size(transferred)} around that time, {size(found)} of it from the files found"]
    return [f"{share} wrote {size(transferred)}, {size(found)} of it to the files found"]


def _sent_limitations(candidate: Candidate) -> Iterator[str]:
    yield "names, number and sizes of its objects, and its step: encrypted, or in data that is not read"
    if level_of(candidate.parts) is not Level.TRACE:
        yield "size and time of single operations: only the sums of its connections between two samples are known"


def _file_limitations(candidate: Candidate, files: int) -> Iterator[str]:
    files_text = "1 file" if files == 1 else f"{files} files"
    if candidate.writes and candidate.is_unnamed:
        yield "what training waited for after the last byte: no rename of its files was observed"
    if credited := sum(part.is_credited for part in candidate.parts):
        yield (
            f"{credited} of {files_text}: not open at any tick; found by the times in the folder, "
            "and credited to the process that wrote at that time"
        )
    if missing_files := missing_pieces(candidate):
        yield (
            f"{missing_files[0]} of the {missing_files[1]} files that the names imply: no process here "
            "was observed writing them"
        )
    if unsized := sum(not part.is_size_reported for part in candidate.parts):
        yield (
            f"the size of {unsized} of {files_text}: the file system did not report it within a minute, "
            "so what the process wrote in that time is counted"
        )


def _operation_limitations(operation_sums: list[OperationSums]) -> Iterator[str]:
    if any(one.faulted_bytes for one in operation_sums):
        yield "which part of each faulted page was touched: whole pages are counted"
    if any(one.kinds & _COUNTED_AS_REQUESTED for one in operation_sums):
        yield "short or failed operations of io_uring and aio: they are counted with the size that was requested"
    operations = sum(one.number for one in operation_sums)
    untimed = operations - sum(one.timed_operations for one in operation_sums)
    if untimed > 0:
        yield f"how long {untimed:,} of {operations:,} operations took: they were not timed"
    if any(one.is_shared_by_threads for one in operation_sums):
        yield "order of several threads that filled a file together: taken as one after another"
