"""What the memory of a training process shows of a save: when it copied its state, or built what it wrote."""

from __future__ import annotations

from math import log

from ckptprof.detect.describe.gpu_idleness import REACH_NS
from ckptprof.detect.tolerances import AT_ONCE_NS, LITTLE_SHARE, MOST_SHARE, PATIENCE_NS
from ckptprof.detect.world.building import built_after, built_before
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.spans import Span
from ckptprof.detect.world.world import World

STAGED_WITHIN_NS = 8_000_000_000
_AT_ONCE_BYTES = 32 << 20  # are copied in less time than is reported


class StateInMemory:
    """Memory of one process, around one save or restore."""

    def __init__(self, world: World, process: ProcessKey, end_ns: int, *, spins: bool) -> None:
        """`spins`: it busy-waits for its GPU, from which its state is copied."""
        self._book, self._usage = world.trainers, world.usage
        self._process, self._end_ns, self._spins = process, end_ns, spins
        self.room_bytes = 0  # of memory in which it copied its state

    def copied(self, first_ns: int, size: int, *, long_before: bool) -> list[Span] | None:
        """Find when its memory grew by about the size of the checkpoint, right before its first byte.

        A part may be copied into memory that was free already. None, unknown: memory grew as it does without a save, or
        by another size; or it may reuse memory of an earlier save; or it grew `long_before`, since a process that
        writes for it has to be started or sent the state first.
        """
        from_ns = first_ns - STAGED_WITHIN_NS
        grown = _in_steps(self._growth(from_ns, first_ns), size // 50)
        chain = _chain(grown, first_ns, size // 50)
        unknown: list[Span] | None = None if size > _AT_ONCE_BYTES else []
        if sum(one[2] for one in chain) * 4 < size:
            earlier = self._growth(first_ns - 2 * REACH_NS, first_ns) if long_before else []
            roomy = (
                self._spins
                or self._book.has_room(self._process, size)
                or self._usage.growth(self._process, from_ns, first_ns) is None
            )
            return unknown if roomy or sum(one[2] for one in earlier) * 2 >= size else []
        trains_ns = max(from_ns, self._book.first_ns(self._process) or 0)
        chain = _faster(chain, grown, trains_ns, first_ns)
        edge, total = chain[-1][0], sum(one[2] for one in chain)
        usual = sum(one[2] for one in grown if one[1] <= edge) * (chain[0][1] - edge) / max(1, edge - trains_ns)
        least = 0.5 if long_before else 0.25
        if not least * size <= total <= 1.6 * size or usual > 0.3 * total:
            return unknown
        self.room_bytes = total
        # between the copy and the first byte it may have trained
        return [(edge, min(chain[0][1], first_ns))]

    def built(self, first_ns: int, size: int) -> list[Span]:
        """Find when it built in memory what it then wrote."""
        saved_ns = self._book.saved_until_ns(first_ns) + AT_ONCE_NS  # by then it has released what it wrote
        since_ns = max(self._book.first_ns(self._process) or 0, saved_ns)
        looks = self._usage.memory(self._process, max(since_ns, first_ns - 2 * REACH_NS), first_ns)
        looks = [one for one in looks if one.start_ns >= since_ns]
        began_ns = self._gave_back(first_ns, size)
        if began_ns is not None and began_ns > since_ns:  # else it allocated memory ever since
            return [(began_ns, first_ns)]
        kept = built_before(looks, first_ns, size)
        self.room_bytes = 0 if kept is None else size
        return [] if kept is None else [kept]

    def has_room(self, size: int) -> bool:
        """Whether it may still have the memory in which it built an earlier save."""
        return self._book.has_room(self._process, size)

    def parsed(self, start_ns: int, last_ns: int, size: int) -> list[Span]:
        """Find when it built objects in memory from what it had read in a time."""
        after = built_after(self._usage.memory(self._process, last_ns, last_ns + PATIENCE_NS), start_ns, last_ns, size)
        return [] if after is None else [after]

    def _gave_back(self, first_ns: int, size: int) -> int | None:
        """Since when its memory grew by what it then wrote, and released with the last byte; None if it did not."""
        chain = _chain(_in_steps(self._growth(first_ns - REACH_NS, first_ns), size // 100), first_ns, size // 100)
        if not chain:
            return None
        start_ns = chain[-1][0]
        taken = self._usage.used(self._process, start_ns, first_ns)
        kept = self._usage.used(self._process, start_ns, self._end_ns + AT_ONCE_NS)
        if taken is None or kept is None or taken.grown_bytes < MOST_SHARE * size:
            return None
        if taken.grown_bytes * 2 < sum(one[2] for one in chain) and not self._rose(start_ns, first_ns):
            return None  # training allocates and frees memory in each step
        return start_ns if abs(kept.grown_bytes) * 2 <= size else None  # if less, it has exited

    def _rose(self, start_ns: int, first_ns: int) -> bool:
        """Whether its memory hardly ever fell before its maximum: pieces are freed as they are joined."""
        looks = self._usage.memory(self._process, start_ns, first_ns)
        top = max(range(len(looks)), key=lambda at: looks[at].level_bytes, default=0)
        before = looks[: top + 1]
        fell = sum(max(0, -one.grown_bytes) for one in before)
        return fell <= LITTLE_SHARE * sum(one.grown_bytes for one in before)

    def _growth(self, start_ns: int, end_ns: int) -> list[tuple[int, int, int]]:
        since_ns = self._book.first_ns(self._process) or 0
        return [one for one in self._usage.growth(self._process, start_ns, end_ns) or [] if one[0] > since_ns]


def _chain(grown: list[tuple[int, int, int]], first_ns: int, least_bytes: int) -> list[tuple[int, int, int]]:
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


def _faster(
    chain: list[tuple[int, int, int]], grown: list[tuple[int, int, int]], since_ns: int, first_ns: int
) -> list[tuple[int, int, int]]:
    """Select what of a chain grew at another pace than before (training), by the most likely start."""
    all_bytes, own = sum(one[2] for one in grown), 0
    likely = []
    for one in chain:
        own += one[2]
        before, before_ns = all_bytes - own, max(1, one[0] - since_ns)
        told = own * log(own / max(1, first_ns - one[0]))
        likely.append(told + (before * log(before / before_ns) if before > 0 else 0.0))
    return chain[: likely.index(max(likely)) + 1]


def _in_steps(grown: list[tuple[int, int, int]], least_bytes: int) -> list[tuple[int, int, int]]:
    """Join slow growth into larger steps: from sample to sample it is too little to classify."""
    steps: list[tuple[int, int, int]] = []
    for one in grown:
        last = steps[-1] if steps else None
        if last is not None and last[2] < least_bytes and one[1] - last[0] <= AT_ONCE_NS:
            steps[-1] = last[0], one[1], last[2] + one[2]
        else:
            steps.append(one)
    return steps
