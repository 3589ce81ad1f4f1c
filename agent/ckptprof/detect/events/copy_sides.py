"""One event for the two sides of a copy: the written side is reported at once, the read side only if it stays alone."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ckptprof.detect.events.event_history import HistoryEvent
from ckptprof.detect.events.grouping import CERTAIN_GAP_NS, LOOSE_GAP_NS
from ckptprof.detect.tolerances import is_similar_size
from ckptprof.detect.transfers.recent_files import SavedFiles
from ckptprof.detect.transfers.transfer_tracker import QUIET_NS
from ckptprof.detect.world.bounded import MAX_RECENT
from ckptprof.model import Checkpoint


class _CopySide(NamedTuple):
    copy: Checkpoint
    start_ns: int  # CLOCK_MONOTONIC
    end_ns: int
    names: frozenset[str]  # of its biggest files, without folders
    other_paths: frozenset[str]  # paths of the other side, as far as observed


class Copies:
    """The recent sides of copies."""

    def __init__(self) -> None:
        self._written: deque[_CopySide] = deque(maxlen=MAX_RECENT)
        self._read: deque[_CopySide] = deque(maxlen=MAX_RECENT)

    def add(self, copy: Checkpoint, event: HistoryEvent, others: frozenset[str] | None) -> list[Checkpoint]:
        """Add one side; return it if it may be reported. `others`: paths of the written side, for a read side."""
        names = frozenset(path.rpartition("/")[2] for path in event.paths)
        side = _CopySide(copy, event.start_ns, event.end_ns, names, others or frozenset())
        (self._written if others is None else self._read).append(side)
        return [copy] if others is None else []

    def release_unpaired(self, now_ns: int, saved: SavedFiles) -> list[Checkpoint]:
        """Return the read sides without a written side: sent, packed, or copied to staging files of unknown names."""
        unpaired = []
        longest_ns = CERTAIN_GAP_NS + QUIET_NS  # the written side may wait this long for a rename
        while self._read and now_ns - self._read[0].end_ns >= longest_ns:
            side = self._read.popleft()
            is_reported = any(_is_same_copy(side, other) for other in self._written) or any(
                map(saved.contains, side.other_paths)
            )
            if not is_reported:
                unpaired.append(side.copy)
        return unpaired


def _is_same_copy(read: _CopySide, written: _CopySide) -> bool:
    """Match two sides of one copy: at the same time, with as many bytes or the same names."""
    apart_ns = max(read.start_ns, written.start_ns) - min(read.end_ns, written.end_ns)
    if apart_ns > LOOSE_GAP_NS:
        return False
    return is_similar_size(read.copy.bytes, written.copy.bytes) or bool(read.names & written.names)
