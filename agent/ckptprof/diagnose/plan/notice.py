"""Whether a save is complete before a job is killed, and whether it was at the recorded ends."""

from __future__ import annotations

import msgspec

from ckptprof import figures
from ckptprof.diagnose.plan.basis import Basis, MeasuredFigures, is_measured

_IN_TIME_SHARE = 0.99  # of the recorded saves: what has to fit


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a save is complete before a job is killed, if it starts when the signal arrives."""

    notice_seconds: float
    needed_seconds: float  # of 99 of 100 recorded saves at most, of less than 100 all; with the step under way
    step_seconds: float  # of it, until the step under way ends; 0: not given
    saves: int  # recorded; 0: needed_seconds is of a given duration
    in_time: int  # of these
    restarts: int  # recorded, where the end of the processes is known
    saved_in_notice: int  # of these, those that went on from a save that started in the notice before the end


def compare_notice(notice: float, basis: Basis, measured: MeasuredFigures) -> Notice | None:
    """Compare a notice of so many seconds with the recorded saves and ends; None: no save has a known duration."""
    step = 0.0 if basis.step is None else basis.step.value
    saves = measured.whole_seconds if is_measured(basis.duration) else ()
    if basis.duration is None:
        return None
    longest = figures.quantile(saves, _IN_TIME_SHARE) if saves else basis.duration.value
    return Notice(
        notice_seconds=notice,
        needed_seconds=longest + step,
        step_seconds=step,
        saves=len(saves),
        in_time=sum(one + step <= notice for one in saves),
        restarts=len(measured.unsaved_seconds),
        saved_in_notice=sum(one <= notice for one in measured.unsaved_seconds),
    )
