"""What tells a sending or a checking from a restore: the bytes pass through, in pieces, and nothing of them is kept.

None of these decides alone but `uploads`: which of them do together is said in the decision table. All speak of a
reading from end to end in even pieces only: a restore may well leave no trace in memory, but then it seeks.
"""

from __future__ import annotations

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.events.pass_through import ends_at_once, is_straight, kept_share
from ckptprof.detect.events.traits import candidate_bytes
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.pieces import big_of, is_whole
from ckptprof.frameworks.formats import SOUGHT

_KEPT = 0.5
_UNKEPT = 0.3  # what its process imported meanwhile is in it
_SENT = (0.9, 1.6)
_SENT_BYTES = 8 << 20


def straight(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether it was read from end to end in even pieces, and not seen to be kept."""
    return is_straight(candidate, known) and (kept_share(candidate, known) or 0.0) < _KEPT


def unsought(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether files were read so in which their loaders jump, or which they map."""
    big = big_of(candidate.parts)
    sought = sum(part.bytes for part in big if part.path.endswith(SOUGHT))
    return sought * 2 >= sum(part.bytes for part in big) and straight(candidate, known)


def several(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether more than one was read so: one alone may have a loader of its own kind."""
    return len({part.path for part in big_of(candidate.parts)}) > 1 and straight(candidate, known)


def unkept(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether memory did not grow by what was read: who loads a model has it then."""
    share = kept_share(candidate, known)
    return share is not None and share < _UNKEPT and straight(candidate, known)


def sent(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether as much went out by the network as was read, at the same time."""
    size = candidate_bytes(candidate)
    if candidate.writes or size < _SENT_BYTES:
        return False
    went = known.world.devices.sent_bytes(candidate.start_ns, candidate.end_ns)
    return went is not None and _SENT[0] * size <= went <= _SENT[1] * size and straight(candidate, known)


def ends(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether its processes ended at once, before anybody looked at them, maybe: who restores goes on."""
    return ends_at_once(candidate, known) and straight(candidate, known)


def uploads(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether another thread of the process that wrote it read it from end to end."""
    big = big_of(candidate.parts)
    if candidate.writes or not big or not all(_is_of_other_threads(part, known) for part in big):
        return False
    return straight(candidate, known)


def _is_of_other_threads(part: Transfer, known: Knowledge) -> bool:
    """Return whether the process wrote the file itself, and none but its other threads read it."""
    author = known.past.author(part.path)
    if author is None or part.process not in author.processes:
        return False
    return is_whole(part, pooled=True) and all(session.tid != session.pid for session in part.threads)
