"""The times that were recorded, and those that were not."""

from __future__ import annotations

from collections.abc import Callable

from ckptprof.model import Gap, Session, Watched
from ckptprof.store.recorded_time import summarize_recorded

_Make = Callable[..., Session]


def test_nothing_recorded_has_no_times(session: _Make) -> None:
    """Not zero: None."""
    assert summarize_recorded([], None, None) == Watched(start_ns=None, end_ns=None)
    assert summarize_recorded([session(start_ns=1, end_ns=2)], 5, 9) == Watched(start_ns=None, end_ns=None)


def test_gaps_say_why(session: _Make) -> None:
    """A clean stop, a kill and a crash of the host are told apart, and lost samples are said."""
    lives = [
        session(start_ns=10, end_ns=20, clean=True),
        session(start_ns=30, end_ns=40, clean=False),
        session(start_ns=50, end_ns=60, clean=False),
        session(start_ns=70, end_ns=80, clean=False, boot_id="next", dropped_frames=3),
    ]

    assert summarize_recorded(lives, None, None) == Watched(
        start_ns=10,
        end_ns=80,
        gaps=(
            Gap(20, 30, "ckptprof was not running"),
            Gap(40, 50, "ckptprof was killed and not running until its next start"),
            Gap(60, 70, "the host went down, or ckptprof was killed before a restart of the host"),
            Gap(70, 80, "3 samples were lost somewhere in this time", 3),
        ),
    )


def test_bounds_cut_and_overlaps_hide_gaps(session: _Make) -> None:
    """Only what lies within the bounds counts; a life within another makes no gap."""
    lives = [
        session(start_ns=10, end_ns=50, clean=True),
        session(start_ns=20, end_ns=30, clean=True),
        session(start_ns=60, end_ns=90, clean=True),
    ]

    assert summarize_recorded(lives, 15, 55) == Watched(start_ns=15, end_ns=50)
    assert summarize_recorded(lives, 55, 70) == Watched(start_ns=60, end_ns=70)
    assert summarize_recorded(lives, 45, 70).gaps == (Gap(50, 60, "ckptprof was not running"),)
