"""How a thread that trains fared while others wrote: by its stacks, else by its time on CPU against its own rhythm."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise, takewhile

from ckptprof.detect.describe.gpu_idleness import REACH_NS, STILL, idle_spans
from ckptprof.detect.tolerances import AT_ONCE_NS, CALLS_NS, LATE_NS, LOOK_NS, MANY, MOST_SHARE, PATIENCE_NS
from ckptprof.detect.world.building import built_after, built_before
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.spans import Span, cut, length, merged, overlap_ns
from ckptprof.detect.world.stacks import (
    Doing,
    Frame,
    doing,
    is_parked,
    main_frames,
    main_sleeps,
    names_save,
    runs_library,
    saves_in_background,
)
from ckptprof.detect.world.training_threads import SPACING_NS, Rhythm, Stretch, rhythm_of, wakes
from ckptprof.detect.world.world import World

_BUSY_SHARE = 0.15  # of the time: a thread that runs so much has a rhythm of its CPU time
_GOES_ON = 0.4
_RUNS_ON = 0.7  # of its usual time on CPU, though it woke less often than it does
STEADY_SHARE = 0.3  # of a core: who uses less has no rhythm that it could have lost
_CALM_AFTER_NS = 3_000_000_000  # later looks are those of the next save
_STAGED_WITHIN_NS = 8_000_000_000
_HARDLY = 0.05  # of what is usual
_AT_ONCE_BYTES = 32 << 20  # are copied in less than the time that is reported as none
_EDGE_NS = 50_000_000  # of a save: who waited for its end goes on before its last sign was seen


class TrainingActivity:
    """Of one process that trains, around one save."""

    def __init__(self, world: World, process: ProcessKey, start_ns: int, end_ns: int, *, spins: bool) -> None:
        """`spins`: it waits for its GPU on the CPU, so that only standing still tells something, not running."""
        self.book, self._usage = world.trainers, world.usage
        self._waits = world.threads.waits(process, start_ns, end_ns)
        self.process, self.start_ns, self.end_ns = process, start_ns, end_ns
        self._spins = spins
        self._rhythm = self._usual()
        self.seen = ""  # what was seen, for a person
        self.background = False  # a library was seen saving in the background, and the thread only waiting for that
        self.room_bytes = 0  # that it took to copy its state
        self.waited = False  # for the end of a child, for most of the time
        self._as_usual = False  # it stood still, as it often does
        self._idle = self._idle_gpu()
        # one that runs a kernel may do so for another process, or wait for the GPUs of other ranks
        self._has_own_gpu = (world.jobs.ranks(process) or 1) == 1 and not self.book.shares_gpu(process)
        self._by_gpus = False  # its GPUs told
        self._doings = self._looks()
        self._pause_ns = self._usual_pause_ns()

    def _usual(self) -> Rhythm | None:
        """Return its rhythm before the save; if it never took that up again, what is usual by now."""
        before = self.book.rhythm(self.process, self.start_ns)
        after = self.book.stretches(self.process, self.end_ns, self.end_ns + _CALM_AFTER_NS)
        if before is None or before.share < _BUSY_SHARE or not after:
            return before
        if sum(one.share >= _GOES_ON * before.share for one in after) * 4 >= len(after):
            return before
        recent = self.book.stretches(self.process, self.start_ns - LOOK_NS, self.start_ns)
        now = rhythm_of([*recent, *after])
        return now if now is not None and wakes([*recent, *after]) else before

    @property
    def was_looked_at(self) -> bool:
        """Whether its Python stack was seen while the save went on, or its GPU."""
        return bool(self._doings) or self._by_gpus

    @property
    def tells_by_gpu(self) -> bool:
        """Whether a GPU of its tells when it stood still."""
        return self._idle is not None

    def went_on(self, spans: list[Span]) -> bool:
        """Return whether its GPU computed for it all the while."""
        return self._idle is not None and self._has_own_gpu and not cut(self._idle, spans)

    @property
    def reason(self) -> str:
        """Why nothing can be told."""
        if not self.book.knows(self.process):
            return "the thread that trains was not looked at"
        if self._as_usual:
            return "it stood still, but for no longer than it does when nothing is saved"
        return "none of its Python stacks was seen, and it has no rhythm on the CPU that it could have missed"

    def _looks(self) -> list[tuple[int, Doing]]:
        """Return what it was seen doing in each look while the save went on."""
        around = self.book.stacks(self.process, self.start_ns - 2 * REACH_NS, self.end_ns + _CALM_AFTER_NS)
        calm = [frames for one in around if (frames := main_frames(one)) and self._is_calm(one.at_ns, frames)]
        found = []
        for one in around:
            if self.start_ns - _EDGE_NS <= one.at_ns <= self.end_ns + _EDGE_NS:
                what = doing(main_frames(one), calm, sleeps=main_sleeps(one))
                inside = self.start_ns <= one.at_ns <= self.end_ns - _EDGE_NS
                if what is not None and (inside or what != "training"):  # at its edges that tells nothing of the rest
                    found.append((one.at_ns, what))
                self.background = self.background or saves_in_background(one)
        self.background = self.background and not any(what in ("saving", "named") for _, what in found)
        return found

    def _usual_pause_ns(self) -> int:
        """Return for how long it stands still when nothing is saved, as it does in collectives: that tells nothing.

        The longest of several is left out: who starts waits once for the others.
        """
        before = self._still_spans(self.start_ns - REACH_NS, self.start_ns)
        runs = [*before, *self._still_spans(self.end_ns, self.end_ns + _CALM_AFTER_NS)]
        lengths = sorted(end_ns - start_ns for start_ns, end_ns in runs if not self._is_at_save(start_ns, end_ns))
        return lengths[-2:][0] if lengths else 0

    def _is_at_save(self, start_ns: int, end_ns: int) -> bool:
        at_this = start_ns <= self.end_ns + CALLS_NS and end_ns >= self.start_ns - CALLS_NS
        return at_this or self._is_at_other_save(start_ns, end_ns)

    def _is_at_other_save(self, start_ns: int, end_ns: int) -> bool:
        low_ns, high_ns = start_ns - CALLS_NS, end_ns + CALLS_NS
        return self.book.in_save(low_ns) or self.book.saved_within(low_ns, high_ns)

    def _is_unusual(self, span: Span) -> bool:
        """Return whether it stood still for longer than it does without a save."""
        return self._pause_ns == 0 or span[1] - span[0] > 1.5 * self._pause_ns + CALLS_NS

    def _is_calm(self, at_ns: int, frames: tuple[Frame, ...]) -> bool:
        """Return whether it went its usual way at a time: no save, and no waiting for the end of one."""
        if self.start_ns <= at_ns <= self.end_ns or self.book.in_save(at_ns):
            return False
        if at_ns >= self.start_ns - AT_ONCE_NS and names_save(frames):
            return False  # what comes later may be the next one, of which nothing is known yet
        if runs_library(frames) or is_parked(frames):
            return False
        return self._rhythm_at(self._stretches(at_ns - AT_ONCE_NS, at_ns + AT_ONCE_NS), at_ns) is not True

    def blocked(self, frames: list[Span], *, by_child: bool = False) -> list[Span] | None:
        """Return when it was blocked within these times; None if nothing tells. `by_child`: a child of its may write.

        Who was met waiting for a child is blocked, whatever it does when nothing is saved.
        """
        waits = merged(self._waits) if by_child else []
        stretches = self._stretches(self.start_ns, self.end_ns)
        blocked: list[Span] | None
        if self._idle is not None and frames and (self._has_own_gpu or not self._doings):
            blocked = self._by_gpu(frames, self._idle)
        elif self._doings:
            blocked = self._by_stacks(stretches)
        else:
            blocked = self._by_rhythm(stretches, frames, waits)
        self.waited = bool(waits) and length(cut(waits, frames)) * 2 >= length(frames)
        if self.waited:
            self.seen = ", and ".join(filter(None, (self.seen, "it was met waiting for the end of a child process")))
        if blocked is None and not self.waited:
            return None
        return cut(merged([*(blocked or []), *waits]), frames)

    def _by_rhythm(self, stretches: Sequence[Stretch], frames: list[Span], waits: list[Span]) -> list[Span] | None:
        """Return when it stood still longer than it does without a save; None if too little of the time tells."""
        told = [one for one in stretches if self._is_still(one) is not None and overlap_ns(one[:2], frames)]
        if sum(overlap_ns(one[:2], frames) for one in told) * 2 < length(frames):
            return None
        still = [one[:2] for one in told if self._is_still(one)]
        blocked = [
            span
            for span in merged(still)
            if self._is_unusual(span) or any(low_ns <= span[1] and high_ns >= span[0] for low_ns, high_ns in waits)
        ]
        if still and len(still) * 2 >= len(told) and not blocked:
            self._as_usual = True
            return None
        self.seen = f"it stood still in {len(still)} of {len(told)} looks at its time on CPU"
        return blocked

    def _idle_gpu(self) -> list[Span] | None:
        """Return when the GPU of its that stood still the longest did; None if none tells."""
        save = self.start_ns, self.end_ns
        uses = self.book.gpu_uses(self.process)
        told = [idle_spans(points, save, self._is_at_other_save) for points in uses]
        return max((spans for spans in told if spans is not None), key=length, default=None)

    def _by_gpu(self, frames: list[Span], idle: list[Span]) -> list[Span]:
        blocked = cut(idle, frames)
        self._by_gpus = True
        whole = self.start_ns, self.end_ns
        self.seen = f"its GPU stood still for {length(cut(idle, [whole])) / 1e9:.1f} of {length([whole]) / 1e9:.1f} s"
        return blocked

    def _by_stacks(self, stretches: Sequence[Stretch]) -> list[Span]:
        """Return when it was blocked: a moment is as the looks around it are; its rhythm decides where they differ.

        Looks that are far apart may miss what its rhythm shows; one that met it standing still tells nothing of when
        it ran.
        """
        times = [at_ns for at_ns, _ in self._doings]
        saving = [self._is_blocked(at_ns, what, stretches) for at_ns, what in self._doings]
        self.seen = f"{sum(saving)} of {len(saving)} looks at its Python stack met it in the save"
        edges = {self.start_ns, self.end_ns, *(edge for one in stretches for edge in (one.start_ns, one.end_ns))}
        still = [span for span in self._still_spans(self.start_ns, self.end_ns) if self._is_unusual(span)]
        blocked: list[Span] = []
        for start_ns, end_ns in pairwise(sorted(edges)):
            middle_ns = (start_ns + end_ns) // 2
            after = bisect_left(times, middle_ns)
            first, last = max(0, after - 1), min(after, len(times) - 1)
            near = first if middle_ns - times[first] <= times[last] - middle_ns else last
            told, by_rhythm = saving[near], self._rhythm_at(stretches, middle_ns)
            if saving[first] != saving[last]:
                told = told if by_rhythm is None or (by_rhythm and self._pause_ns) else by_rhythm
            elif by_rhythm is False and self._rhythm_at(stretches, times[near]):
                told = False
            if told or any(span[0] <= middle_ns < span[1] for span in still):
                blocked.append((start_ns, end_ns))
        return blocked

    def _is_blocked(self, at_ns: int, what: Doing, stretches: Sequence[Stretch]) -> bool:
        """Return whether a look met it in the save; a `save()` that keeps the usual rhythm trains until all is out."""
        return what != "training" and not (what == "named" and self._rhythm_at(stretches, at_ns) is False)

    def _rhythm_at(self, stretches: Sequence[Stretch], at_ns: int) -> bool | None:
        """Return whether it stood still at a time; None if that cannot be told."""
        one = next((one for one in stretches if one.start_ns <= at_ns < one.end_ns), None)
        return None if one is None else self._is_still(one)

    def _still_spans(self, start_ns: int, end_ns: int) -> list[Span]:
        return merged([one[:2] for one in self._stretches(start_ns, end_ns) if self._is_still(one)])

    def _stretches(self, start_ns: int, end_ns: int) -> Sequence[Stretch]:
        rhythm = self._rhythm
        least_ns = SPACING_NS
        if rhythm is not None and rhythm.share < _BUSY_SHARE and rhythm.slices_per_second > 0:
            least_ns = max(least_ns, int(MANY / rhythm.slices_per_second * 1e9))
        return self.book.stretches(self.process, start_ns, end_ns, least_ns)

    def _is_still(self, one: Stretch) -> bool | None:
        """Return whether it stood still in a stretch, against its rhythm; None if that cannot be told."""
        rhythm = self._rhythm
        if rhythm is None:
            return None
        seconds = (one.end_ns - one.start_ns) / 1e9
        usual = rhythm.slices_per_second * seconds
        if rhythm.share < _BUSY_SHARE:
            if one.share >= _BUSY_SHARE or usual < MANY / 2:  # too few were to be missed
                return None  # who computes for once runs, though it does not wake as it does else
            if one.slices < STILL * usual:
                return True
            return False if one.slices >= _GOES_ON * usual else None
        if one.share < STILL * rhythm.share:  # one that sleeps and wakes may have another way by now
            hardly = one.share < _HARDLY * rhythm.share  # it stirs, as who waits with a timeout does
            stirs = MANY * seconds + (_HARDLY * usual if hardly else 0.0)
            return True if one.slices <= max(1.0, stirs) else None
        least = _GOES_ON if one.slices >= _GOES_ON * usual else _RUNS_ON  # it may have computed for a part, then waited
        return False if one.share >= least * rhythm.share and not self._spins else None

    def standing_beside(self, spans: list[Span]) -> list[Span]:
        """Return when it stood still right before and after these times, if it hardly ever does otherwise."""
        if spans and self._idle is not None:
            near = merged([*spans, *self._idle], AT_ONCE_NS)
            return [
                one
                for one in self._idle
                if any(overlap_ns(one, [whole]) and overlap_ns(whole, spans) for whole in near)
            ]
        rhythm = self._rhythm
        if not spans or rhythm is None or rhythm.share < STEADY_SHARE:
            return []
        start_ns, end_ns = min(span[0] for span in spans), max(span[1] for span in spans)
        before = self.book.stretches(self.process, start_ns - REACH_NS, start_ns)
        after = self.book.stretches(self.process, end_ns, end_ns + REACH_NS)
        of_this = takewhile(
            lambda one: not self.book.in_save(one.start_ns), reversed(before)
        )  # else of an earlier save
        found = [one[:2] for beside in (of_this, after) for one in takewhile(self._is_still, beside)]
        return [span for span in merged(found) if self._is_unusual(span)]

    def staged(self, first_ns: int, size: int, *, long_before: bool) -> list[Span] | None:
        """Return when its memory grew by about the size of the checkpoint, right before its first byte was written.

        None: it grew, but as it does without a save, or by another size; or it may have room from an earlier save; or
        it grew `long_before`: a process that writes for it has to be started first.
        """
        from_ns = first_ns - _STAGED_WITHIN_NS
        if self._idle is not None:
            since_ns = max(from_ns, self.book.saved_until_ns(first_ns))
            at_once = [one for one in self._idle if long_before or first_ns - one[1] <= LATE_NS]
            return cut(at_once, [(since_ns, first_ns)])
        grown = self._growth(from_ns, first_ns)
        chain = _chain(grown, first_ns, size // 50)
        edge = chain[-1][0] if chain else first_ns
        total = sum(one[2] for one in chain)
        unknown: list[Span] | None = None if size > _AT_ONCE_BYTES else []
        if total * 4 < size:
            earlier = self._growth(first_ns - 2 * REACH_NS, first_ns) if long_before else []
            roomy = (
                self._spins
                or self.book.has_room(self.process, size)
                or self._usage.growth(self.process, from_ns, first_ns) is None
            )
            return unknown if roomy or sum(one[2] for one in earlier) * 2 >= size else []
        seen_ns = edge - max(from_ns, self.book.first_ns(self.process) or 0)
        usual = sum(one[2] for one in grown if one[1] <= edge) * (chain[0][1] - edge) / max(1, seen_ns)
        if not 0.5 * size <= total <= 1.6 * size or usual > 0.3 * total:
            return unknown
        self.room_bytes = total
        return [(edge, chain[0][1])]  # what is between the copy and the first byte is not known to be blocked

    def built(self, first_ns: int, size: int) -> list[Span]:
        """Return when it built in memory what it then wrote."""
        saved_ns = self.book.saved_until_ns(first_ns) + AT_ONCE_NS  # by then it has given back what it wrote
        since_ns = max(self.book.first_ns(self.process) or 0, saved_ns)
        looks = self._usage.memory(self.process, max(since_ns, first_ns - 2 * REACH_NS), first_ns)
        looks = [one for one in looks if one.start_ns >= since_ns]
        began_ns = self._gave_back(first_ns, size)
        if began_ns is not None and began_ns > since_ns:  # else it took memory ever since
            return [(began_ns, first_ns)]
        kept = built_before(looks, first_ns, size)
        self.room_bytes = 0 if kept is None else size
        return [] if kept is None else [kept]

    def has_room(self, size: int) -> bool:
        """Return whether it may have memory left of what it built for an earlier save."""
        return self.book.has_room(self.process, size)

    def parsed(self, last_ns: int, size: int) -> list[Span]:
        """Return when it built in memory of what it had read."""
        after = built_after(
            self._usage.memory(self.process, last_ns, last_ns + PATIENCE_NS), self.start_ns, last_ns, size
        )
        return [] if after is None else [after]

    def _gave_back(self, first_ns: int, size: int) -> int | None:
        """Return since when its memory grew by what it then wrote, and gave back with the last byte; None if not."""
        chain = _chain(_in_steps(self._growth(first_ns - REACH_NS, first_ns), size // 100), first_ns, size // 100)
        if not chain:
            return None
        start_ns = chain[-1][0]
        taken = self._usage.used(self.process, start_ns, first_ns)
        kept = self._usage.used(self.process, start_ns, self.end_ns + AT_ONCE_NS)
        if taken is None or kept is None or taken.grown_bytes < MOST_SHARE * size:
            return None
        if taken.grown_bytes * 2 < sum(one[2] for one in chain):
            return None  # training takes memory, and gives it back, in each step
        return start_ns if abs(kept.grown_bytes) * 2 <= size else None  # if less, it has ended

    def _growth(self, start_ns: int, end_ns: int) -> list[tuple[int, int, int]]:
        """Return how its memory grew since it trains, as (from, to, bytes)."""
        since_ns = self.book.first_ns(self.process) or 0
        return [one for one in self._usage.growth(self.process, start_ns, end_ns) or [] if one[0] > since_ns]


def _chain(grown: list[tuple[int, int, int]], first_ns: int, least_bytes: int) -> list[tuple[int, int, int]]:
    """Return how memory grew without a pause until a time, the last first; what grew by less is none of it."""
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


def _in_steps(grown: list[tuple[int, int, int]], least_bytes: int) -> list[tuple[int, int, int]]:
    """Return how memory grew with what came slowly taken together: from look to look it is too little to tell."""
    steps: list[tuple[int, int, int]] = []
    for one in grown:
        last = steps[-1] if steps else None
        if last is not None and last[2] < least_bytes and one[1] - last[0] <= AT_ONCE_NS:
            steps[-1] = last[0], one[1], last[2] + one[2]
        else:
            steps.append(one)
    return steps
