"""Makes parts of streams: edges and bytes, by the trace where there is one, else by the counters of the process."""

from __future__ import annotations

import itertools

from ckptprof.detect.transfers.edges import read_edges, write_edges
from ckptprof.detect.transfers.file_events import is_temporary
from ckptprof.detect.transfers.moved_bytes import leapt_bytes_of, part_bytes, traced_bytes_of
from ckptprof.detect.transfers.openings import Openings
from ckptprof.detect.transfers.part import Part, name_of
from ckptprof.detect.transfers.reconcile import faulted_before, faulted_bytes_of, mapped_openings
from ckptprof.detect.transfers.streams import Stream
from ckptprof.detect.transfers.traced_streams import TracedStreams
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.process_counters import ProcessHistory, writing
from ckptprof.detect.world.world import World
from ckptprof.frameworks.formats import COMPRESSED, file_format
from ckptprof.frameworks.names import Name
from ckptprof_collectors.samples import OperationKind

BESIDE_NS = 1_000_000_000  # between a descriptor and the mapping that was made of it
_APART_NS = 60_000_000  # counters and looks are read one after the other
_SETTLED_NS = 2_000_000_000  # after it was written nothing of its writing is told any more
_TELLING_BYTES = 1 << 20
_SUPPORTED = 0.5  # of its bytes were counted while a file was open: it is not that one which was looked at only
_FEW = 256  # files of one process, of each of which the counters are asked
_SILENT_SHARE = 0.1  # of a mapping, without an event


_Version = tuple[object, ...]


def untangle(written: list[Part]) -> None:
    """Let a file that a process wrote after another one begin after that: the file's birth is that of the first."""
    last: dict[tuple[int, int], Part] = {}
    for part in sorted((part for part in written if part.stream.trace is None), key=lambda part: part.stream.first_ns):
        before = last.get(part.stream.file)
        closed_ns = before.stream.closed_ns if before is not None else None
        first_ns = part.stream.first_ns
        if before is not None and closed_ns is not None and closed_ns <= first_ns and part.start_ns < before.end_ns:
            part.start_ns = min(max(part.stream.before_ns, before.end_ns), part.end_ns)
            if part.stream.before_ns >= first_ns:
                part.stream.before_ns = min(closed_ns, first_ns - 1)  # then it was not open: the next round knows
        last[part.stream.file] = part


def _is_beside(part: Part, mapping: Part) -> bool:
    """Return whether a file was mapped while it was open, or right before or after."""
    apart_ns = max(part.start_ns, mapping.start_ns) - min(part.end_ns, mapping.end_ns)
    return apart_ns < BESIDE_NS


def _is_counted(stream: Stream) -> bool:
    """Return whether it is of a mapping that has ended, of which all pages are counted."""
    trace = stream.trace
    return trace is not None and bool(trace.sessions) and bool(trace.totals.kinds & OperationKind.UNMAPPED)


def _doubtful(parts: list[Part], history: ProcessHistory) -> list[Part]:
    """Return the files that were met open, and of which little speaks for their having been read, the least first.

    Nothing does if the position was never seen to advance; little, if it did while its process read nothing.
    """
    found: list[tuple[float, int, Part]] = []
    for part in parts:
        looks = part.stream.looks
        support = 0.0
        if any(later.position > look.position for look, later in itertools.pairwise(looks)):
            support = _support(part, history) if len(parts) <= _FEW else 1.0
        if looks and support < _SUPPORTED:
            found.append((support, len(looks), part))
    return [part for *_, part in sorted(found, key=lambda one: one[:2])]


def _support(part: Part, history: ProcessHistory) -> float:
    """Return how much of what a file seems to have been read of was read by its process while that had it open."""
    return history.returned_bytes(part.stream.may_begin_ns, part.stream.may_end_ns) / part.bytes


def is_nothing(stream: Stream, name: Name) -> bool:
    """Return whether its name says that it is no checkpoint, and its first bytes do not say otherwise.

    Nobody looks into what is only read: then a word for checkpoints must tell.
    """
    if not name.never or name.commit:
        return False
    if name.framework is None:
        return True
    if stream.fact is None and not stream.writes:
        return not name.hint
    kind = file_format(stream.fact.magic if stream.fact is not None else None, stream.path)
    return kind == COMPRESSED or kind not in name.framework.formats


def _stays_nothing(stream: Stream, name: Name) -> bool:
    """Return whether it is no checkpoint, and nothing that is still to be heard of the file can change that."""
    may_be_heard = name.framework is not None and stream.writes and stream.fact is None
    return not may_be_heard and is_nothing(stream, name)


class Parts:
    """Keeps the parts of the traced streams that wait, until something is learnt of them."""

    def __init__(self, world: World, openings: Openings, traced: TracedStreams) -> None:
        """Start with nothing; what is given is looked into when a part is made."""
        self._world = world
        self._openings = openings
        self._traced = traced
        self._before: dict[int, tuple[int, Part]] = {}
        self._parts: dict[int, tuple[int, Part]] = {}  # by the stream, with the version that they are of
        self._found_before: dict[int, tuple[_Version, Part]] = {}
        self._found: dict[int, tuple[_Version, Part]] = {}  # likewise, of files that were found in their folders

    def begin(self) -> None:
        """Begin a round: what is not asked for in it is forgotten."""
        self._before, self._parts = self._parts, {}
        self._found_before, self._found = self._found, {}

    def part_of(self, stream: Stream) -> Part | None:
        """Return the stream with its edges and bytes; None if it carries nothing that could be of a checkpoint."""
        if stream.trace is not None:
            version, part = self._before.get(id(stream), (-1, None))
            if version != stream.trace.version or part is None or part.stream is not stream or stream.mapping:
                part = self._traced_part(stream)
            if part is not None:
                self._parts[id(stream)] = (stream.trace.version, part)
            return part
        history = self._world.histories.get(stream.process)
        if history is None:
            return None
        state = self._version_of(stream, history)
        if state is None:
            return self._polled_part(stream, history)
        known = self._found_before.get(id(stream))
        part = known[1] if known is not None and known[0] == state and known[1].stream is stream else None
        part = part or self._polled_part(stream, history)
        if part is not None:
            self._found[id(stream)] = (state, part)
        return part

    def _version_of(self, stream: Stream, history: ProcessHistory) -> _Version | None:
        """Return what the part of a file depends on that was found by its times, long enough after; None: on more.

        Of tens of thousands none is made anew at each round.
        """
        last_ns = stream.may_end_ns
        if stream.seen_by != "directory" or history.last_ns < last_ns + _SETTLED_NS:
            return None
        fact = stream.fact
        said = None if fact is None else (fact.size, fact.birth_ns, fact.modified_ns, fact.changed_ns)
        sent = self._world.host.threads.met_until(stream.process, "close", last_ns)
        synced = self._world.host.threads.met_until(stream.process, "sync", last_ns)
        return stream.path, stream.first_ns, stream.before_ns, stream.last_ns, stream.closed_ns, said, sent, synced

    def _polled_part(self, stream: Stream, history: ProcessHistory) -> Part | None:
        name = name_of(stream)
        if _stays_nothing(stream, name):
            return None
        if stream.writes:
            self._hear_size(stream)
            edges = write_edges(stream, history, self._world, self._openings)
        else:
            edges = read_edges(stream, history, self._openings)
        size = part_bytes(stream, history, edges)
        if size <= 0:
            return None
        return Part(stream, name, edges[0], edges[1], size)

    def _hear_size(self, stream: Stream) -> None:
        """Take the size with which a file was closed, unless its file system was asked: it may be deleted since."""
        if stream.fact is None:
            stream.size = max(stream.size, self._openings.size_when_closed(stream))

    def unsaid_bytes(self, stream: Stream) -> int:
        """Return what a process wrote while a file was open that is empty as far as polling saw; 0: it is not empty.

        A server is told of what was written as late as in close(2), and asked for the size only later.
        """
        history = self._world.histories.get(stream.process)
        if stream.trace is not None or not stream.writes or stream.is_mapping or history is None:
            return 0
        self._hear_size(stream)
        if stream.size or stream.fact is not None:
            return 0
        around = (stream.may_begin_ns - BESIDE_NS, stream.may_end_ns)
        written = sum(writing(interval) for interval in history.between(*around))
        return written if written >= _TELLING_BYTES else 0

    def open_part_of(self, stream: Stream) -> Part | None:
        """Return what is known by now of a stream that goes on; None if it is nothing of a checkpoint's."""
        name = name_of(stream)
        if _stays_nothing(stream, name):
            return None
        size = stream.size
        if stream.trace is not None:
            size = traced_bytes_of(stream)
        return Part(stream, name, stream.first_ns, max(stream.first_ns, stream.last_ns), size, is_open=True)

    def count_once(self, read: list[Part]) -> None:
        """Leave to a mapping what came in through it: a descriptor beside it carries what calls returned.

        Polled only: what a process had fetched is told by neither file nor way.
        """
        mapped: dict[tuple[ProcessKey, tuple[int, int]], list[Part]] = {}
        for part in read:
            if part.stream.is_mapping:
                mapped.setdefault((part.stream.process, part.stream.file), []).append(part)
        for part in read if mapped else ():
            stream, history = part.stream, self._world.histories.get(part.stream.process)
            if stream.trace is not None or stream.is_mapping or part.is_open or history is None:
                continue
            beside = mapped.get((stream.process, stream.file), ())
            if any(_is_beside(part, other) for other in beside):
                part.bytes = min(part.bytes, max(1, history.returned_bytes(part.start_ns, part.end_ns + 1)))
        self._bound(read)

    def _bound(self, read: list[Part]) -> None:
        """Take from files what their process cannot have read of them: it read less in all than they seem to be.

        Who seeks to a file's last piece stands near its end, as who read all of it does; the counters tell them apart.
        """
        own: dict[ProcessKey, list[Part]] = {}
        for part in read:
            if part.stream.trace is None and not part.is_open and not part.stream.mapped_bytes:
                own.setdefault(part.stream.process, []).append(part)
        for process, parts in own.items():
            history = self._world.histories.get(process)
            end_ns = max(part.end_ns for part in parts)
            if len(parts) < 2 or history is None or history.last_ns <= end_ns:
                continue  # what it read last was not counted
            over = sum(part.bytes for part in parts)
            over -= history.returned_bytes(min(part.start_ns for part in parts), end_ns + _APART_NS)
            for part in _doubtful(parts, history) if over > 0 else ():
                taken = min(part.bytes - 1, max(0, over))
                part.bytes -= taken
                over -= taken

    def _traced_part(self, stream: Stream) -> Part | None:
        name = name_of(stream)
        size = traced_bytes_of(stream)
        if _stays_nothing(stream, name) or size <= 0 or stream.trace is None:
            return None
        start_ns, end_ns = stream.trace.edges()
        if not stream.writes and stream.trace.totals.faulted_bytes:
            size, end_ns = self._mapped(stream, size, end_ns)
        if size <= 0:
            return None
        return Part(stream, name, start_ns, end_ns, size, temporary=is_temporary(stream.path))

    def _of_others(self, stream: Stream, edges: tuple[int, int]) -> int:
        """Return what its process was seen to touch of other mapped files meanwhile: its memory tells no file."""
        return sum(
            traced_bytes_of(other)
            for other in self._traced.moved_by(stream.process)
            if other.file != stream.file
            and other.first_ns <= edges[1]
            and other.last_ns >= edges[0]
            and faulted_bytes_of(other)
        )

    def _mapped(self, stream: Stream, size: int, end_ns: int) -> tuple[int, int]:
        """Return bytes and end of a mapped file's reading: its pages count once, however often it was opened.

        Large folios come in without an event each: the end of the mapping tells how many. Until then, if those are a
        part of it to speak of, memory tells when the last came in; else the last event does: a mapping is kept for as
        long as anything points into it.
        """
        openings = mapped_openings(stream, self._traced)
        before = faulted_before(stream, openings)
        if before:
            return min(size, max(0, stream.size - before)), end_ns
        if _is_counted(stream):
            return size, end_ns
        history = self._world.histories.get(stream.process)
        elsewhere = sum(traced_bytes_of(other) for other in openings[1:])
        if stream.mapping is None or history is None:  # it was gone before anybody looked
            return max(size, leapt_bytes_of(stream) - elsewhere), end_ns
        edges = read_edges(stream.mapping, history, self._openings)
        touched = part_bytes(stream.mapping, history, edges) - elsewhere - self._of_others(stream, edges)
        if touched - size > _SILENT_SHARE * touched:
            end_ns = max(end_ns, edges[1])
        return max(size, touched), end_ns
