"""What tells a sending or a checking from a restore: the bytes pass through, in pieces, and nothing of them is kept.

None of these decides alone; together they must weigh what `PASSED` says (signs/weights.py). All but `uploads` speak of
a reading from end to end in even pieces only: a restore may well leave no trace in memory, but then it seeks.
"""

from __future__ import annotations

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.events.pass_through import ends_at_once, is_straight, kept_share
from ckptprof.detect.events.signals.weights import WEIGHTS
from ckptprof.detect.events.traits import candidate_bytes
from ckptprof.detect.transfers.pieces import big_of, is_whole
from ckptprof.detect.transfers.transfer import Transfer
from ckptprof.frameworks.formats import SOUGHT
from ckptprof.model import Evidence

_KEPT = 0.5
_UNKEPT = 0.3  # what its process imported meanwhile is in it
_SENT = (0.9, 1.6)
_SENT_BYTES = 8 << 20


def straight(candidate: Candidate, known: Knowledge) -> Evidence | None:
    """Weigh a reading from end to end in even pieces."""
    if not _passes(candidate, known):
        return None
    return _evidence("straight", "read from end to end in pieces of one size, as uploads and checks do")


def unsought(candidate: Candidate, known: Knowledge) -> Evidence | None:
    """Weigh that files were read so in which their loaders jump, or which they map."""
    big = big_of(candidate.parts)
    sought = sum(part.bytes for part in big if part.path.endswith(SOUGHT))
    if sought * 2 < sum(part.bytes for part in big) or not _passes(candidate, known):
        return None
    return _evidence("unsought", "no loader of such files reads them so: it looks for their directory first")


def several(candidate: Candidate, known: Knowledge) -> Evidence | None:
    """Weigh that more than one was read so: one alone may have a loader of its own kind."""
    if len({part.path for part in big_of(candidate.parts)}) < 2 or not _passes(candidate, known):
        return None
    return _evidence("several", "all its files were read in the same way")


def unkept(candidate: Candidate, known: Knowledge) -> Evidence | None:
    """Weigh that memory did not grow by what was read: who loads a model has it then."""
    share = kept_share(candidate, known)
    if share is None or share >= _UNKEPT or not _passes(candidate, known):
        return None
    return _evidence("unkept", "the memory of its process did not grow by what it read")


def sent(candidate: Candidate, known: Knowledge) -> Evidence | None:
    """Weigh that as much went out by the network as was read, at the same time."""
    size = candidate_bytes(candidate)
    if candidate.writes or size < _SENT_BYTES:
        return None
    went = known.world.devices.sent_bytes(candidate.start_ns, candidate.end_ns)
    if went is None or not _SENT[0] * size <= went <= _SENT[1] * size or not _passes(candidate, known):
        return None
    return _evidence("sent", "as much went out by the network at the same time")


def ends(candidate: Candidate, known: Knowledge) -> Evidence | None:
    """Weigh that its processes ended at once, before anybody looked at them, maybe: who restores goes on."""
    if not ends_at_once(candidate, known) or not _passes(candidate, known):
        return None
    return _evidence("ends", "its process was over as soon as it had read")


def uploads(candidate: Candidate, known: Knowledge) -> Evidence | None:
    """Weigh a reading from end to end by another thread of the process that wrote it."""
    big = big_of(candidate.parts)
    if candidate.writes or not big or not all(_is_of_other_threads(part, known) for part in big):
        return None
    if not _passes(candidate, known):
        return None
    return _evidence("uploads", "a thread of the process that wrote it read it from end to end, as uploads do")


def _passes(candidate: Candidate, known: Knowledge) -> bool:
    """Return whether it was read straight on, and not seen to be kept."""
    return is_straight(candidate, known) and (kept_share(candidate, known) or 0.0) < _KEPT


def _is_of_other_threads(part: Transfer, known: Knowledge) -> bool:
    """Return whether the process wrote the file itself, and none but its other threads read it."""
    author = known.past.author(part.path)
    if author is None or part.process not in author.processes:
        return False
    return is_whole(part, pooled=True) and all(session.tid != session.pid for session in part.threads)


def _evidence(name: str, text: str) -> Evidence:
    return Evidence(name=name, weight=WEIGHTS[name], text=text)
