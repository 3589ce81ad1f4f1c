"""Which times were recorded: pure, from the lives of the recorders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from ckptprof.model import Gap, Session, Watched

_SILENT_NS = 30_000_000_000  # a recorder stores every ten seconds that it runs


def running_session(sessions: Sequence[Session], now_ns: int) -> Session | None:
    """Return the session of the recorder that runs at a time; None: none does. `sessions`: the oldest first."""
    newest = sessions[-1] if sessions else None
    return None if newest is None or newest.clean or now_ns - newest.end_ns > _SILENT_NS else newest


def summarize_recorded(sessions: Sequence[Session], since_ns: int | None, until_ns: int | None) -> Watched:
    """Compute the recorded time within the bounds, and its gaps."""
    low = since_ns if since_ns is not None else min((session.start_ns for session in sessions), default=0)
    high = until_ns if until_ns is not None else max((session.end_ns for session in sessions), default=0)
    inside = [session for session in sessions if session.end_ns >= low and session.start_ns <= high]
    if not inside:
        return Watched(start_ns=None, end_ns=None)
    inside.sort(key=lambda session: session.start_ns)
    gaps = [*_gaps_between(inside), *_gaps_of_drops(inside)]
    clipped = (replace(gap, start_ns=max(gap.start_ns, low), end_ns=min(gap.end_ns, high)) for gap in gaps)
    return Watched(
        start_ns=max(low, inside[0].start_ns),
        end_ns=min(high, max(session.end_ns for session in inside)),
        gaps=tuple(sorted((gap for gap in clipped if gap.start_ns < gap.end_ns), key=lambda gap: gap.start_ns)),
    )


def _gaps_between(sessions: Sequence[Session]) -> list[Gap]:
    gaps = []
    newest = sessions[0]
    for session in sessions[1:]:
        if session.start_ns > newest.end_ns:
            gaps.append(Gap(newest.end_ns, session.start_ns, _stop_reason(newest, session)))
        if session.end_ns >= newest.end_ns:
            newest = session
    return gaps


def _stop_reason(before: Session, after: Session) -> str:
    if before.clean:
        return "ckptprof was not running"
    if before.boot_id != after.boot_id:
        return "the host went down, or ckptprof was killed before a restart of the host"
    return "ckptprof was killed and not running until its next start"


def _gaps_of_drops(sessions: Sequence[Session]) -> Iterator[Gap]:
    for session in sessions:
        if session.dropped_frames > 0:
            samples = "1 sample was" if session.dropped_frames == 1 else f"{session.dropped_frames} samples were"
            reason = f"{samples} lost somewhere in this time"
            yield Gap(session.start_ns, session.end_ns, reason, session.dropped_frames)
