"""Activity of a training thread while others wrote: by its GPU, its stacks, else its CPU time against its rhythm."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise, takewhile
from operator import itemgetter

from ckptprof.detect.describe.gpu_idleness import BASELINE_REACH_NS, STILL_SHARE, idle_spans
from ckptprof.detect.describe.preparation import Profile
from ckptprof.detect.describe.state_in_memory import StateInMemory
from ckptprof.detect.tolerances import (
    AT_ONCE_NS,
    COPY_WITHIN_NS,
    COUNTER_LAG_NS,
    LATE_COUNTER_NS,
    MANY,
    MOST_SHARE,
    NEARBY_NS,
    POLL_INTERVAL_NS,
)
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.spans import OverlapWeights, Span, clip, length, merged, overlap_ns
from ckptprof.detect.world.stack_states import (
    Frame,
    ThreadState,
    classify_thread,
    is_parked,
    main_frames,
    main_sleeps,
    names_save,
    runs_library,
    saves_in_background,
)
from ckptprof.detect.world.training_threads import (
    BASELINE_NS,
    SPACING_NS,
    Rhythm,
    Stretch,
    usual_rhythm,
    wakes_by_itself,
)
from ckptprof.detect.world.world import World

_BUSY_SHARE = 0.15  # of the time: above that its rhythm is its CPU time, below its wake-ups
RUNNING_SHARE = 0.4
_RUNNING_RARELY_WAKING_SHARE = 0.7  # of its usual CPU time, though it woke less often
STEADY_SHARE = 0.3  # of a core: with less it has no rhythm to lose
_USUAL_AFTER_NS = 3_000_000_000  # later samples belong to the next save
_HARDLY_SHARE = 0.05  # of its usual CPU time
_EDGE_NS = 50_000_000  # of a save: a waiting thread resumes before its end is observed


class TrainingActivity:
    """Activity of one training process around one save."""

    def __init__(self, world: World, process: ProcessKey, start_ns: int, end_ns: int, *, spins: bool) -> None:
        """`spins`: it busy-waits for its GPU, so that only pauses are evidence, not running."""
        self.trainers = world.trainers
        self.memory = StateInMemory(world, process, end_ns, spins=spins)
        self._waits = world.threads.child_waits(process, start_ns, end_ns)
        self.process, self.start_ns, self.end_ns = process, start_ns, end_ns
        self._spins = spins
        self._rhythm = self.trainers.rhythm(process, start_ns)
        self._rhythm = self._usual_rhythm()
        self.observation = ""  # what was observed, for the report
        self.saves_in_background = False  # a library saves in the background, and the thread only waits for it
        self.waited_for_child = False  # for the end of a child, for most of the time
        self._is_usual_pause = False  # it paused, as it often does
        self._gpu_idle_spans = self._longest_gpu_idleness()
        # a busy GPU may work for another process, or wait for the GPUs of other ranks
        self._has_own_gpu = (world.jobs.ranks(process) or 1) == 1 and not self.trainers.shares_gpu(process)
        self._is_decided_by_gpu = False  # by its GPUs
        self._stack_states = self._classify_stacks()
        self._usual_pause = self._usual_pause_ns()

    def _usual_rhythm(self) -> Rhythm | None:
        """Rhythm before the save; the present one if it changed for good and it is not blocked."""
        before = self._rhythm
        after = self.trainers.stretches(self.process, self.end_ns, self.end_ns + _USUAL_AFTER_NS)
        if before is None or before.share < _BUSY_SHARE or all(map(self._is_still, after)):
            return before
        if sum(one.share >= RUNNING_SHARE * before.share for one in after) * 4 >= len(after):
            return before
        recent = self.trainers.stretches(self.process, self.start_ns - POLL_INTERVAL_NS, self.start_ns)
        now = usual_rhythm([*recent, *after])
        return now if now is not None and wakes_by_itself([*recent, *after]) else before

    @property
    def is_observed(self) -> bool:
        """Its Python stack was sampled during the save, or its GPU decided."""
        return bool(self._stack_states) or self._is_decided_by_gpu

    @property
    def has_gpu_activity(self) -> bool:
        """One of its GPUs shows when it was idle."""
        return self._gpu_idle_spans is not None

    def was_gpu_busy(self, spans: list[Span]) -> bool:
        """Whether its GPU computed for it all the time."""
        return self._gpu_idle_spans is not None and self._has_own_gpu and not clip(self._gpu_idle_spans, spans)

    def was_running(self, spans: list[Span]) -> bool:
        """Whether it ran, or was runnable, for most of these times."""
        ran_ns = sum((self.trainers.running_share(self.process, *span) or 0.0) * length([span]) for span in spans)
        return ran_ns >= MOST_SHARE * max(1, length(spans))

    def was_training(self, start_ns: int, end_ns: int) -> bool:
        """Whether it trained in a time: by each sampled stack, else as it always runs."""
        if states := [state for at_ns, state in self._stack_states if start_ns <= at_ns < end_ns]:
            return all(state == "training" for state in states)
        if self._rhythm is None or self._rhythm.share < MOST_SHARE:
            return False
        ran = [one[:2] for one in self._stretches(start_ns, end_ns) if self._is_still(one) is False]
        return length(ran) >= MOST_SHARE * (end_ns - start_ns)

    @property
    def unknown_reason(self) -> str:
        """Why it is unknown whether it was blocked."""
        if not self.trainers.is_known(self.process):
            return "the training thread was not sampled"
        if self._is_usual_pause:
            return "it paused, but for no longer than it does without a save"
        return "none of its Python stacks was sampled, and its CPU time has no rhythm to compare with"

    def _classify_stacks(self) -> list[tuple[int, ThreadState]]:
        samples = self.trainers.stacks(
            self.process, self.start_ns - 2 * BASELINE_REACH_NS, self.end_ns + _USUAL_AFTER_NS
        )
        usual_stacks = list(
            dict.fromkeys(
                frames for one in samples if (frames := main_frames(one)) and self._is_usual_time(one.at_ns, frames)
            )
        )
        found = []
        for one in samples:
            if self.start_ns - _EDGE_NS <= one.at_ns <= self.end_ns + _EDGE_NS:
                state = classify_thread(main_frames(one), usual_stacks, sleeps=main_sleeps(one))
                inside = self.start_ns <= one.at_ns <= self.end_ns - _EDGE_NS
                # at its edges training is no evidence for the rest
                if state is not None and (inside or state != "training"):
                    found.append((one.at_ns, state))
                self.saves_in_background = self.saves_in_background or saves_in_background(one)
        self.saves_in_background = self.saves_in_background and not any(
            state in ("saving", "named") for _, state in found
        )
        return found

    def _usual_pause_ns(self) -> int:
        """Longest usual pause without a save, as in collectives: pauses up to that are no evidence.

        The longest of several is left out: at the start each process waits once for the others.
        """
        before = self._still_spans(self.start_ns - BASELINE_REACH_NS, self.start_ns)
        runs = [*before, *self._still_spans(self.end_ns, self.end_ns + _USUAL_AFTER_NS)]
        lengths = sorted(end_ns - start_ns for start_ns, end_ns in runs if not self._is_at_save(start_ns, end_ns))
        return lengths[-2:][0] if lengths else 0

    def _is_at_save(self, start_ns: int, end_ns: int) -> bool:
        before_ns = max(COUNTER_LAG_NS, _max_burst_ns(start_ns, end_ns))
        at_this = start_ns <= self.end_ns + COUNTER_LAG_NS and end_ns >= self.start_ns - before_ns
        return at_this or self._is_at_other_save(start_ns, end_ns)

    def _is_at_other_save(self, start_ns: int, end_ns: int) -> bool:
        low_ns, high_ns = start_ns - COUNTER_LAG_NS, end_ns + COUNTER_LAG_NS
        return bool(self.trainers.saves_between(self.process, low_ns, high_ns))

    def _is_unusual(self, span: Span) -> bool:
        return self._usual_pause == 0 or span[1] - span[0] > 1.5 * self._usual_pause + COUNTER_LAG_NS

    def _is_usual_time(self, at_ns: int, frames: tuple[Frame, ...]) -> bool:
        """Whether it did what it usually does: no save, and no wait for the end of one."""
        if self.start_ns <= at_ns <= self.end_ns or self.trainers.saves_between(self.process, at_ns, at_ns):
            return False
        if at_ns >= self.start_ns - AT_ONCE_NS and names_save(frames):
            return False  # later samples may belong to the next save, not known yet
        if runs_library(frames) or is_parked(frames):
            return False
        return self._is_still_at(self._stretches(at_ns - AT_ONCE_NS, at_ns + AT_ONCE_NS), at_ns) is not True

    def blocked_spans(self, frames: list[Span], *, by_child: bool = False) -> list[Span] | None:
        """Find when it was blocked within these times; None if unknown. `by_child`: one of its children may write.

        A thread that was sampled waiting for a child is blocked, whatever it does without a save.
        """
        waits = merged(self._waits) if by_child else []
        stretches = self._stretches(self.start_ns, self.end_ns)
        blocked: list[Span] | None
        if self._gpu_idle_spans is not None and frames and (self._has_own_gpu or not self._stack_states):
            blocked, self._is_decided_by_gpu = clip(self._gpu_idle_spans, frames), True
            idle_ns = length(clip(self._gpu_idle_spans, [(self.start_ns, self.end_ns)]))
            seconds = (self.end_ns - self.start_ns) / 1e9
            self.observation = f"its GPU was idle for {idle_ns / 1e9:.1f} of {seconds:.1f} s"
        elif self._stack_states:
            blocked = self._blocked_by_stacks(stretches)
        else:
            blocked = self._blocked_by_rhythm(stretches, frames, waits)
        self.waited_for_child = bool(waits) and length(clip(waits, frames)) * 2 >= length(frames)
        if self.waited_for_child:
            observed = (self.observation, "it was sampled waiting for a child process to end")
            self.observation = ", and ".join(filter(None, observed))
        if blocked is None and not self.waited_for_child:
            return None
        return clip(merged([*(blocked or []), *waits]), frames)

    def _blocked_by_rhythm(
        self, stretches: Sequence[Stretch], frames: list[Span], waits: list[Span]
    ) -> list[Span] | None:
        """Pauses longer than its usual ones; None if too little of the time is covered."""
        alongside = OverlapWeights((frame, 1) for frame in frames)
        decided = [one for one in stretches if self._is_still(one) is not None and alongside.weight(one[:2])]
        if length(clip([one[:2] for one in decided], frames)) * 2 < length(frames):
            return None
        still = [one[:2] for one in decided if self._is_still(one)]
        since_ns = stretches[-1].end_ns if stretches and stretches[-1].end_ns < self.end_ns else self.end_ns
        if self._is_still_to_the_end(since_ns):
            still.append((since_ns, self.end_ns))
        blocked = [
            span
            for span in merged(still)
            if self._is_unusual(span) or any(low_ns <= span[1] and high_ns >= span[0] for low_ns, high_ns in waits)
        ]
        if still and len(still) * 2 >= len(decided) and not blocked:
            self._is_usual_pause = True
            return None
        self.observation = f"it was idle in {len(still)} of {len(decided)} samples of its CPU time"
        return blocked

    def _longest_gpu_idleness(self) -> list[Span] | None:
        save = self.start_ns, self.end_ns
        uses = self.trainers.gpu_uses(self.process)
        idle_by_gpu = [idle_spans(points, save, self._is_at_other_save) for points in uses]
        return max((spans for spans in idle_by_gpu if spans is not None), key=length, default=None)

    def _blocked_by_stacks(self, stretches: Sequence[Stretch]) -> list[Span]:
        """Classify each moment as the nearest samples; where these differ, its rhythm decides.

        Samples far apart may miss what its rhythm shows; one that found it pausing is no evidence for times when it
        ran.
        """
        times = [at_ns for at_ns, _ in self._stack_states]
        saving = [  # in a function named `save`, but in rhythm, it is training
            state != "training" and not (state == "named" and self._is_still_at(stretches, at_ns) is False)
            for at_ns, state in self._stack_states
        ]
        self.observation = f"{sum(saving)} of {len(saving)} samples of its Python stack were in the save"
        edges = {self.start_ns, self.end_ns, *(edge for one in stretches for edge in (one.start_ns, one.end_ns))}
        unusual = filter(self._is_unusual, self._still_spans(self.start_ns, self.end_ns))
        still = OverlapWeights((span, 1) for span in unusual)
        blocked: list[Span] = []
        for start_ns, end_ns in pairwise(sorted(edges)):
            middle_ns = (start_ns + end_ns) // 2
            after = bisect_left(times, middle_ns)
            first, last = max(0, after - 1), min(after, len(times) - 1)
            nearest = first if middle_ns - times[first] <= times[last] - middle_ns else last
            is_blocked, by_rhythm = saving[nearest], self._is_still_at(stretches, middle_ns)
            if saving[first] != saving[last]:
                is_blocked = is_blocked if by_rhythm is None or (by_rhythm and self._usual_pause) else by_rhythm
            elif by_rhythm is False and self._is_still_at(stretches, times[nearest]):
                is_blocked = False
            if is_blocked or still.weight((middle_ns, middle_ns + 1)):
                blocked.append((start_ns, end_ns))
        return blocked

    def _is_still_at(self, stretches: Sequence[Stretch], at_ns: int) -> bool | None:
        place = bisect_right(stretches, at_ns, key=itemgetter(0)) - 1
        return self._is_still(stretches[place]) if place >= 0 and at_ns < stretches[place].end_ns else None

    def _still_spans(self, start_ns: int, end_ns: int) -> list[Span]:
        return merged([one[:2] for one in self._stretches(start_ns, end_ns) if self._is_still(one)])

    def _stretches(self, start_ns: int, end_ns: int) -> Sequence[Stretch]:
        rhythm = self._rhythm
        least_ns = SPACING_NS
        if rhythm is not None and rhythm.share < _BUSY_SHARE and rhythm.slices_per_second > 0:
            least_ns = max(least_ns, int(MANY / rhythm.slices_per_second * 1e9))
        return self.trainers.stretches(self.process, start_ns, end_ns, least_ns)

    def _is_still(self, one: Stretch) -> bool | None:
        """Whether it paused in a stretch, against its rhythm; None if unknown."""
        rhythm = self._rhythm
        if rhythm is None:
            return None
        seconds = (one.end_ns - one.start_ns) / 1e9
        usual = rhythm.slices_per_second * seconds
        if rhythm.share < _BUSY_SHARE:
            if one.share >= _BUSY_SHARE or usual < MANY / 2:  # too few wake-ups to miss
                return None  # it may compute for once, without waking as usual
            if one.slices < STILL_SHARE * usual:
                return True
            return False if one.slices >= RUNNING_SHARE * usual else None
        if one.share < STILL_SHARE * rhythm.share:  # its rhythm may have changed by now
            hardly = one.share < _HARDLY_SHARE * rhythm.share  # it wakes, as in a wait with a timeout
            stirs = MANY * seconds + (_HARDLY_SHARE * usual if hardly else 0.0)
            in_save = overlap_ns(one[:2], [(self.start_ns, self.end_ns)]) > 0  # it left its rhythm for it alone
            return True if one.slices <= max(1.0, stirs) or (in_save and self._runs_as_usual_around) else None
        # it may have computed, then waited
        least = RUNNING_SHARE if one.slices >= RUNNING_SHARE * usual else _RUNNING_RARELY_WAKING_SHARE
        return False if one.share >= least * rhythm.share and not self._spins else None

    def _is_still_to_the_end(self, since_ns: int) -> bool:
        """Whether it paused from a time on, by the sample that spans the end of the save.

        That time was too short for a sample of its own: CPU time beyond it is that of the time after.
        """
        if self._rhythm is None or self._rhythm.share < MOST_SHARE or since_ns >= self.end_ns:
            return False
        one = next(iter(self.trainers.stretches(self.process, since_ns, self.end_ns + NEARBY_NS)), None)
        if one is None or one.end_ns <= self.end_ns:
            return False
        usual = self._rhythm.share
        ran_ns = one.share * (one.end_ns - one.start_ns) - usual * (one.end_ns - self.end_ns)
        return ran_ns < STILL_SHARE * usual * (self.end_ns - since_ns)

    @cached_property
    def _runs_as_usual_around(self) -> bool:
        """Whether it ran as usual right before and after: if it sleeps for another reason, it continues to sleep."""
        rhythm = self._rhythm
        if rhythm is None or rhythm.share < MOST_SHARE:
            return False
        sides = (
            (self.start_ns - LATE_COUNTER_NS, self.start_ns - NEARBY_NS),
            (self.end_ns + NEARBY_NS, self.end_ns + LATE_COUNTER_NS),
        )
        neighbours = [self.trainers.stretches(self.process, *side) for side in sides]
        return all(
            side
            and sum(stretch.share >= _RUNNING_RARELY_WAKING_SHARE * rhythm.share for stretch in side)
            >= MOST_SHARE * len(side)
            for side in neighbours
        )

    def unusual_pauses_between(self, spans: list[Span]) -> list[Span]:
        """Find unusual pauses of training in the gaps between these spans."""
        if not spans or self._rhythm is None or self._rhythm.share < STEADY_SHARE:
            return []
        gaps = [(before[1], after[0]) for before, after in pairwise(merged(spans))]
        return clip(filter(self._is_unusual, self._still_spans(spans[0][0], spans[-1][1])), gaps)

    def still_around(self, spans: list[Span], until_ns: int | None = None) -> list[Span]:
        """Find its pauses right before and after these times, if they are unusual.

        `until_ns`: when what it could wait for had ended.
        """
        if spans and self._gpu_idle_spans is not None:
            joined = merged([*spans, *self._gpu_idle_spans], AT_ONCE_NS)
            return [
                one
                for one in self._gpu_idle_spans
                if any(overlap_ns(one, [whole]) and overlap_ns(whole, spans) for whole in joined)
            ]
        if not spans:
            return []
        start_ns, end_ns = min(span[0] for span in spans), max(span[1] for span in spans)
        rhythm, prepared = self._rhythm, self.profile.preparation(start_ns)
        if rhythm is None or rhythm.share < STEADY_SHARE:
            return prepared or []
        last_ns = end_ns + BASELINE_REACH_NS if until_ns is None else max(end_ns, until_ns)
        before = self.trainers.stretches(self.process, start_ns - BASELINE_REACH_NS, start_ns)
        after = self.trainers.stretches(self.process, end_ns, last_ns)
        # a pause of an earlier save is none of this one
        saves = self.trainers.saves_between(self.process, start_ns - BASELINE_REACH_NS, start_ns)
        since_last_save = takewhile(lambda one: not any(span[0] <= one[0] <= span[1] for span in saves), before[::-1])
        still_before = [
            (self._still_since(merged(one[:2] for one in since_last_save if self._is_still(one)), start_ns), start_ns)
        ]
        found = [*still_before, *(one[:2] for one in takewhile(self._is_still, after))]
        unusual = [span for span in merged(found) if span[0] < span[1] and self._is_unusual(span)]
        if prepared is None:
            return unusual
        return [*prepared, *(one for one in unusual if one[1] > end_ns)]

    def _still_since(self, still: list[Span], first_ns: int) -> int:
        """Since when it paused up to a time, apart from moments in which it sent its state.

        It starts with an unusually long pause: usual pauses with a step between are training.
        """
        since_ns = edge_ns = first_ns
        for start_ns, end_ns in reversed(still):
            if edge_ns - end_ns > _max_burst_ns(start_ns, end_ns):
                break
            edge_ns = start_ns
            since_ns = edge_ns if self._is_unusual((start_ns, end_ns)) else since_ns
        return since_ns

    @cached_property
    def profile(self) -> Profile:
        """What its stack shows around the save, where it was profiled."""
        since_ns, until_ns = self.start_ns - BASELINE_NS, self.end_ns + _USUAL_AFTER_NS
        samples = [one for one in self.trainers.stacks(self.process, since_ns, until_ns) if one.interval_ns]
        saves = self.trainers.saves_between(self.process, since_ns, until_ns)
        others = [one for one in saves if not overlap_ns(one, [(self.start_ns, self.end_ns)])]
        return Profile(samples, (self.start_ns, self.end_ns), others)

    def copy_spans(self, first_ns: int, size: int, *, long_before: bool) -> list[Span] | None:
        """Find when it copied its state right before its first byte; None if unknown.

        `long_before`: a process that writes for it has to be sent the state, and may have to be started first.
        """
        if self._gpu_idle_spans is None:
            prepared = self.profile.preparation(first_ns, LATE_COUNTER_NS)
            if prepared is not None:
                return prepared
            return self.memory.copy_spans(first_ns, size, long_before=long_before)
        since_ns = max(first_ns - COPY_WITHIN_NS, self.trainers.last_save_end_ns(self.process, first_ns))
        at_once = [one for one in self._gpu_idle_spans if long_before or first_ns - one[1] <= LATE_COUNTER_NS]
        return clip(at_once, [(since_ns, first_ns)])


def _max_burst_ns(start_ns: int, end_ns: int) -> int:
    """How long it may run after a pause and still count as blocked: for a moment, after a long pause."""
    return AT_ONCE_NS if end_ns - start_ns >= AT_ONCE_NS else 0
