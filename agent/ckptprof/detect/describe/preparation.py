"""What a training thread did right before a save, by many samples of its Python stack: it prepared, or it trained.

The place of a sample is its path of calls with their lines, outermost first. Places soon after saves are training. A
place is unusual if it leaves their paths where these hardly ever branch: at another line of the training loop, but not
within a step. The preparation is the unbroken row of unusual places up to the first byte.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

from ckptprof.detect.tolerances import CONCURRENT_NS, COUNTER_LAG_NS, LITTLE_SHARE
from ckptprof.detect.world.spans import Span, length, merged, overlap_ns
from ckptprof.detect.world.stack_states import Frame, is_parked, trains_elsewhere

Place = tuple[Frame, ...]  # outermost first
_SAMPLE_NS = 125_000_000  # between two samples, on average; equal ones in between are left out
_LEAST_NS = 8 * _SAMPLE_NS  # of samples soon after saves: with less nothing is known
_EARLY_WEIGHT = 4  # of training a third is early, of a preparation less than a fifth


class _UsualPlaces:
    """For how long it was at each place soon after saves, against the rest of the time, as a tree of calls."""

    def __init__(self, samples: Sequence[tuple[int, Place]], saves: Sequence[Span]) -> None:
        self._calls: defaultdict[Place, Counter[Frame]] = defaultdict(Counter)
        self._functions: Counter[tuple[str, str]] = Counter()
        since = [samples[0][0], *(end_ns for _, end_ns in saves)]
        until = [*(start_ns for start_ns, _ in saves), saves[-1][1] + 9 * CONCURRENT_NS]
        early = [(low_ns, low_ns + (high_ns - low_ns) // 3) for low_ns, high_ns in zip(since, until, strict=True)]
        for (at_ns, place), (next_ns, next_place) in pairwise([*samples, (samples[-1][0] + _SAMPLE_NS, ())]):
            span = at_ns, next_ns if place == next_place else min(next_ns, at_ns + _SAMPLE_NS)
            early_ns = overlap_ns(span, early)
            weight = (_EARLY_WEIGHT + 1) * early_ns + overlap_ns(span, saves) - length([span])
            for depth, frame in enumerate(place):
                self._calls[place[:depth]][frame] += weight
                self._functions[frame[:2]] += weight

    def is_usual(self, place: Place) -> bool | None:
        """Whether it trains there; None if unknown.

        A new branch is unusual only where one is improbable, and unless it leads to a function of training.
        """
        if self._total(()) < _LEAST_NS:
            return None
        depth = next((at for at, frame in enumerate(place) if self._calls[place[:at]][frame] <= 0), len(place))
        rare = sum(0 < weight <= _EARLY_WEIGHT * _SAMPLE_NS for weight in self._calls[place[:depth]].values())
        if depth == len(place) or rare * _SAMPLE_NS > LITTLE_SHARE * self._total(place[:depth]):
            return True
        return trains_elsewhere(place[depth + 1 :], {one for one, weight in self._functions.items() if weight > 0})

    def _total(self, place: Place) -> float:
        return sum(weight for weight in self._calls[place].values() if weight > 0) / _EARLY_WEIGHT


def find_preparation(
    samples: Sequence[tuple[int, Place]], save: Span, others: Sequence[Span], skip_ns: int = 0
) -> Span | None:
    """Find since when and until when it prepared a save; an empty span if it trained, None if unknown.

    `save`: its first and last byte; `others`: other saves. It may have trained for `skip_ns` before the first byte.
    """
    saves = merged((low_ns, high_ns + COUNTER_LAG_NS) for low_ns, high_ns in (*others, save))
    usual = _UsualPlaces(samples, saves) if samples else None
    last_save_ns = max((end_ns for _, end_ns in others if end_ns <= save[0]), default=0)
    run: Span | None = None
    later_ns, later_place = save[0], next((place for at_ns, place in samples if at_ns >= save[0]), ())
    for at_ns, place in reversed([one for one in samples if last_save_ns < one[0] < save[0]]):
        is_covered = later_ns - at_ns <= CONCURRENT_NS or place == later_place
        is_usual = usual.is_usual(place) if usual is not None and is_covered else None
        if is_usual is None or (is_usual and is_parked(place[::-1])):
            return None  # or another thread trains
        between_ns = (at_ns + later_ns) // 2
        if not is_usual:
            run = at_ns, run[1] if run is not None else save[0] if later_ns == save[0] else between_ns
        elif run is not None:
            return between_ns, run[1]
        elif save[0] - at_ns > skip_ns:
            return save[0], save[0]
        later_ns, later_place = at_ns, place
    return None
