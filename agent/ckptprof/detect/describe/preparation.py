"""What a training thread did right before a save, by many samples of its Python stack: it prepared, or it trained.

The place of a sample is its path of calls with their lines, outermost first. Places soon after saves are training. A
place is unusual if it leaves their paths where these hardly ever branch: at another line of the training loop, but not
within a step. The preparation is the unbroken row of unusual places up to the first byte.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

from ckptprof.detect.tolerances import CONCURRENT_NS, COUNTER_LAG_NS, LITTLE_SHARE, MANY
from ckptprof.detect.world.spans import Span, length, merged, overlap_ns
from ckptprof.detect.world.stack_states import Frame, is_parked, main_frames, trains_elsewhere
from ckptprof_collectors.samples import StackSample

Place = tuple[Frame, ...]  # outermost first
_EARLY_WEIGHT = 4  # of training a third is early, of a preparation less than a fifth


class Profile:
    """The profiled samples around one save, as a tree of calls: its time at each place soon after saves, and else."""

    def __init__(self, samples: Sequence[StackSample], save: Span, others: Sequence[Span]) -> None:
        """Take `samples` of a profile, by time; `save`: its first and last byte; `others`: other saves of its job."""
        self._places = [(one.at_ns, frames[::-1]) for one in samples if (frames := main_frames(one))]
        self._interval_ns = max((one.interval_ns for one in samples), default=0)
        self._since_ns = max((end_ns for _, end_ns in others if end_ns <= save[0]), default=0)
        self._calls: defaultdict[Place, Counter[Frame]] = defaultdict(Counter)
        self._functions: Counter[tuple[str, str]] = Counter()
        if self._places:
            self._add_calls(merged((low_ns, high_ns + COUNTER_LAG_NS) for low_ns, high_ns in (*others, save)))
        self._usual = {place: self._is_usual(place) for place in {place for _, place in self._places}}

    def _add_calls(self, saves: Sequence[Span]) -> None:
        since = [self._places[0][0], *(end_ns for _, end_ns in saves)]
        until = [*(start_ns for start_ns, _ in saves), saves[-1][1] + 9 * CONCURRENT_NS]
        early = [(low_ns, low_ns + (high_ns - low_ns) // 3) for low_ns, high_ns in zip(since, until, strict=True)]
        last = self._places[-1][0] + self._interval_ns, ()
        spans = [
            (place, (at_ns, next_ns if place == next_place else min(next_ns, at_ns + self._interval_ns)))
            for (at_ns, place), (next_ns, next_place) in pairwise([*self._places, last])
        ]
        after_ns = sum(overlap_ns(span, early[1:]) for place, span in spans if not is_parked(place[::-1]))
        # the start may fill all of the first early third: that gap counts for no more than is known after saves
        late_ns = until[0] - early[0][1]
        for place, span in spans:
            weight = (_EARLY_WEIGHT + 1) * overlap_ns(span, early) + overlap_ns(span, saves) - length([span])
            weight = weight * min(late_ns, 2 * after_ns) // late_ns if span[0] < until[0] else weight
            for depth, frame in enumerate(place):
                self._calls[place[:depth]][frame] += weight
                self._functions[frame[:2]] += weight

    def preparation(self, first_ns: int, skip_ns: int = 0) -> list[Span] | None:
        """Find since when and until when it prepared what it wrote from `first_ns` on; empty if it trained.

        None if unknown. It may have trained for `skip_ns` before the first byte.
        """
        run: Span | None = None
        later_ns, later_place = first_ns, next((place for at_ns, place in self._places if at_ns >= first_ns), ())
        for at_ns, place in reversed([one for one in self._places if self._since_ns < one[0] < first_ns]):
            is_usual = self._usual[place] if later_ns - at_ns <= CONCURRENT_NS or place == later_place else None
            if is_usual is None or (is_usual and is_parked(place[::-1])):
                return None  # or another thread trains
            between_ns = (at_ns + later_ns) // 2
            if not is_usual:
                run = at_ns, run[1] if run is not None else first_ns if later_ns == first_ns else between_ns
            elif run is not None or first_ns - at_ns > skip_ns:
                found = [] if run is None else [(between_ns, run[1])]
                return found if self._tells_apart(at_ns) else None
            later_ns, later_place = at_ns, place
        return None

    def _tells_apart(self, until_ns: int) -> bool:
        """Whether it was at unusual places only now and then since the last save: else training is among them."""
        usual = [self._usual[place] for at_ns, place in self._places if self._since_ns < at_ns < until_ns]
        return list(pairwise(usual)).count((True, False)) < MANY

    def _is_usual(self, place: Place) -> bool | None:
        """Whether it trains there; None if unknown.

        A new branch is unusual only where one is improbable, and unless it leads to a function of training.
        """
        if self._early_ns(()) < MANY * self._interval_ns:
            return None
        one_sample = _EARLY_WEIGHT * self._interval_ns  # may be of a save
        depth = next((at for at, frame in enumerate(place) if self._calls[place[:at]][frame] <= one_sample), len(place))
        rare = sum(0 < weight <= one_sample for weight in self._calls[place[:depth]].values())
        if depth == len(place) or rare * self._interval_ns > LITTLE_SHARE * self._early_ns(place[:depth]):
            return True
        known = {frame[:2] for frame, weight in self._calls[place[:depth]].items() if weight > 0}
        branch = place[depth + (place[depth][:2] in known) :]  # another line of a function tells nothing of that
        return trains_elsewhere(branch, {one for one, weight in self._functions.items() if weight > 0})

    def _early_ns(self, place: Place) -> float:
        return sum(weight for weight in self._calls[place].values() if weight > 0) / _EARLY_WEIGHT
