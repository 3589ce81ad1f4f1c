"""What the memory of a training process shows of a save: when it copied its state, or built what it wrote."""

from __future__ import annotations

from ckptprof.detect.describe.gpu_idleness import BASELINE_REACH_NS
from ckptprof.detect.tolerances import AT_ONCE_NS, COPY_WITHIN_NS, PATIENCE_NS
from ckptprof.detect.transfers.recent_files import RecentTransfers
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.memory_growth import find_build_after, find_build_before
from ckptprof.detect.world.spans import Span
from ckptprof.detect.world.world import World

_INSTANT_COPY_BYTES = 32 << 20  # are copied in less time than is reported


class StateInMemory:
    """Memory of one process, around one save or restore."""

    def __init__(self, world: World, process: ProcessKey, end_ns: int, *, spins: bool) -> None:
        """`spins`: it busy-waits for its GPU, from which its state is copied."""
        self._trainers, self._usage, self._history = world.trainers, world.usage, world.histories[process]
        self._process, self._end_ns, self._spins = process, end_ns, spins
        self.copy_buffer_bytes = 0  # of memory in which it copied its state

    def copy_spans(self, first_ns: int, size: int, *, long_before: bool) -> list[Span] | None:
        """Find when its memory grew by about the size of the checkpoint, right before its first byte.

        A part may be copied into memory that was free already. None, unknown: memory grew as it does without a save, or
        by another size; or it may reuse memory of an earlier save; or it grew `long_before`, since a process that
        writes for it has to be started or sent the state first.
        """
        from_ns = first_ns - COPY_WITHIN_NS
        grown = _join_small_steps(self._growth(from_ns, first_ns), size // 50)
        chain = _continuous_growth(grown, first_ns, size // 50)
        undecided: list[Span] | None = None if size > _INSTANT_COPY_BYTES else []
        if sum(one[2] for one in chain) * 4 < size:
            earlier = self._growth(first_ns - 2 * BASELINE_REACH_NS, first_ns) if long_before else []
            may_reuse_buffer = (
                self._spins
                or self._trainers.has_copy_buffer(self._process, size)
                or self._usage.resident_growth(self._process, from_ns, first_ns) is None
            )
            return undecided if may_reuse_buffer or sum(one[2] for one in earlier) * 2 >= size else []
        trains_ns = max(from_ns, self._trainers.first_ns(self._process) or 0)
        edge, total = chain[-1][0], sum(one[2] for one in chain)
        usual = sum(one[2] for one in grown if one[1] <= edge) * (chain[0][1] - edge) / max(1, edge - trains_ns)
        least_share = 0.5 if long_before else 0.25
        if not least_share * size <= total <= 1.6 * size or usual > 0.3 * total:
            return undecided
        self.copy_buffer_bytes = total
        # between the copy and the first byte it may have trained
        return [(edge, min(chain[0][1], first_ns))]

    def build_spans(self, first_ns: int, size: int, recent: RecentTransfers) -> list[Span]:
        """Find when it built in memory what it then wrote."""
        released_ns = self._trainers.last_save_end_ns(self._process, first_ns) + AT_ONCE_NS  # what it wrote
        since_ns = max(self._trainers.first_ns(self._process) or 0, released_ns)
        from_ns, until_ns = max(since_ns, first_ns - 2 * BASELINE_REACH_NS), self._end_ns + AT_ONCE_NS
        changes = self._usage.memory_changes(self._process, from_ns, until_ns)
        changes = [one for one in changes if one.start_ns >= since_ns]

        def read_bytes(start_ns: int, end_ns: int) -> int:
            in_files = recent.transfers_between(self._process, start_ns, end_ns, writes=False)
            return self._history.returned_bytes(start_ns, end_ns) if in_files else 0  # else from pipes

        build_span = find_build_before(changes, first_ns, self._end_ns, size, read_bytes)
        self.copy_buffer_bytes = 0 if build_span is None else size
        return [] if build_span is None else [build_span]

    def parse_spans(self, start_ns: int, last_ns: int, size: int) -> list[Span]:
        """Find when the process built objects in memory from data that it read between these times."""
        changes = self._usage.memory_changes(self._process, last_ns, last_ns + PATIENCE_NS)
        after = find_build_after(changes, start_ns, last_ns, size)
        return [] if after is None else [after]

    def _growth(self, start_ns: int, end_ns: int) -> list[tuple[int, int, int]]:
        since_ns = self._trainers.first_ns(self._process) or 0
        return [one for one in self._usage.resident_growth(self._process, start_ns, end_ns) or [] if one[0] > since_ns]


def _continuous_growth(
    grown: list[tuple[int, int, int]], first_ns: int, least_bytes: int
) -> list[tuple[int, int, int]]:
    """Continuous growth up to a time, last first; steps below `least_bytes` are skipped."""
    chain: list[tuple[int, int, int]] = []
    edge = first_ns
    for one in reversed(grown):
        if one[2] < least_bytes:
            continue
        if edge - one[1] > AT_ONCE_NS:
            break
        chain.append(one)
        edge = one[0]
    return chain


def _join_small_steps(grown: list[tuple[int, int, int]], least_bytes: int) -> list[tuple[int, int, int]]:
    """Join slow growth into larger steps: from sample to sample it is too little to classify."""
    steps: list[tuple[int, int, int]] = []
    for one in grown:
        last = steps[-1] if steps else None
        if last is not None and last[2] < least_bytes and one[1] - last[0] <= AT_ONCE_NS:
            steps[-1] = last[0], one[1], last[2] + one[2]
        else:
            steps.append(one)
    return steps
