"""What tells a sending, a checking or a receiving from a restore or a save: the bytes only pass through a process.

Of reads none decides alone but `sent-on` and `uploads`: which of them do together is said in the decision table. All
others speak of a reading from end to end in even pieces only: a restore may well leave no trace in memory, but then it
seeks.
"""

from __future__ import annotations

from ckptprof.detect.events.event import Event
from ckptprof.detect.events.signals.sends import HALF, sent_to_stores
from ckptprof.detect.tolerances import BESIDE_NS, LATE_NS
from ckptprof.detect.transfers import pieces
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.process_counters import Interval
from ckptprof.frameworks.programs import GPU_RUNTIMES

_KEPT = 0.5
_UNKEPT = 0.3  # what its process imported meanwhile is in it; a model without the state of its optimizer is a third
_SEEN = 0.7  # of the bytes must have been counted while memory was looked at
_AS_MUCH = (0.9, 1.6)  # went over the network as was moved: headers and neighbours are counted, too
_EXACTLY = (0.97, 1.2)  # likewise, of what a trainer writes
_LEAST_BYTES = 8 << 20  # to be told from the rest of the network


def reads_even_pieces(event: Event) -> bool:
    """Return whether it was read from end to end in even pieces, and not seen to be kept."""
    if event.reads_even_pieces is None:
        event.reads_even_pieces = (
            not event.writes and bool(pieces.big_of(event.parts)) and _is_read_in_even_pieces(event)
        )
    return event.reads_even_pieces


def unkept(event: Event) -> bool:
    """Return whether memory did not grow by what was read: who loads a model has it then."""
    share = _kept_share(event)
    return share is not None and share < _UNKEPT and reads_even_pieces(event)


def unseen(event: Event) -> bool:
    """Return whether its processes were over before anybody looked at them: who restores goes on."""
    return all(event.world.jobs.info(process) is None for process in event.processes) and reads_even_pieces(event)


def uploads(event: Event) -> bool:
    """Return whether another thread of the process that wrote it read it from end to end."""
    big = pieces.big_of(event.parts)
    return reads_even_pieces(event) and all(_is_of_other_threads(part, event) for part in big)


def sent_on(event: Event) -> bool:
    """Return whether its processes sent as much meanwhile to where object stores answer, as who uploads files does.

    It may be read several times, to be hashed first. A rank that gives others what it restored sends it elsewhere.
    """
    if event.writes:
        return False
    sizes = {part.file: min(part.bytes, part.stored_size or part.bytes) for part in event.parts}
    return sent_to_stores(event, event.start_ns, event.end_ns + BESIDE_NS) >= HALF * sum(sizes.values())


def received(event: Event) -> bool:
    """Return whether as much came in by the network as was written, at the same time."""
    if not event.writes or event.bytes < _LEAST_BYTES or event.has_rank:
        return False
    signs = (event.trains, event.candidate.step is not None, bool(event.series))
    if sum(signs) > 1:
        return False  # it counts its training, or saves such files again and again; the network may serve anybody
    low, high = _EXACTLY if event.trains else _AS_MUCH
    came = event.world.devices.received_bytes(event.start_ns, event.end_ns)
    if came is not None and low * event.bytes <= came <= high * event.bytes:
        return True
    # others receive, too, and what waited in buffers came before the file was there: then its pieces must tell
    came = event.world.devices.received_bytes(event.start_ns - BESIDE_NS, event.end_ns)
    return came is not None and came >= low * event.bytes and _is_written_in_even_pieces(event)


def _is_read_in_even_pieces(event: Event) -> bool:
    gpu = bool((event.world.runtimes(event.processes) or frozenset()) & GPU_RUNTIMES)
    # a rank may put arrays of one size into memory that is there
    counters = None if event.has_rank else _alone(event)
    is_read_in_even_pieces = pieces.is_read_in_even_pieces(
        event.parts, counters, pooled=not gpu, over=_ends_at_once(event)
    )
    return is_read_in_even_pieces and (_kept_share(event) or 0.0) < _KEPT


def _is_written_in_even_pieces(event: Event) -> bool:
    """Return whether every big file was written from its begin, in pieces of one size, page upon page.

    So is written what comes in pieces from elsewhere. The arrays of a model, and what stands before them, differ.
    """
    return bool(pieces.big_of(event.parts)) and pieces.is_written_in_even_pieces(event.parts, _alone(event))


def _is_of_other_threads(part: Transfer, event: Event) -> bool:
    """Return whether the process wrote the file itself, and none but its other threads read it."""
    author = event.known.past.author(part.path)
    if author is None or part.process not in author.processes:
        return False
    return pieces.is_whole(part, pooled=True) and all(session.tid != session.pid for session in part.threads)


def _kept_share(event: Event) -> float | None:
    """Return by how much of what they read the memory of its processes grew; None: not seen."""
    if any(part.is_mapped for part in event.parts):
        return None
    histories = (event.world.histories[process] for process in event.first_processes)
    kept, seen = pieces.kept_and_seen(event.parts, histories)
    return kept / event.bytes if seen >= _SEEN * event.bytes else None


def _alone(event: Event) -> list[Interval] | None:
    """Return what its process moved meanwhile; None: it has several, of which none tells for all."""
    if len(event.processes) > 1:
        return None
    return event.world.histories[event.processes[0]].between(event.start_ns, event.end_ns)


def _ends_at_once(event: Event) -> bool:
    """Return whether all its processes were over as soon as they had moved it, or before anybody looked at them."""
    return all(_ends(process, event) for process in event.processes)


def _ends(process: ProcessKey, event: Event) -> bool:
    if event.world.jobs.info(process) is None:
        return True
    ended_ns = event.world.ended.get(process)
    return ended_ns is not None and ended_ns - event.end_ns < LATE_NS
