"""What TCP tells of who held a save up: the receiver by its window, the path to it, or neither of the two.

The kernel counts for how long data of a connection was on its way and not acknowledged, and for how long of that the
window of the receiver let no more out (tcp_info: busy_time, rwnd_limited). Of reads the sender knows it, and not we.
"""

from __future__ import annotations

from dataclasses import dataclass

from ckptprof.diagnose.sight import MOST, MS, SLIGHT, Sight, some
from ckptprof.measures import ConnectionMeasure
from ckptprof.units import percent, seconds, size
from ckptprof.verdicts import Limit

_LEAST_SECONDS = 0.5  # data on its way: the window of a fast connection is full for milliseconds, which tells nothing
_HELD = 0.3  # of that time, by the window of the receiver
_ON_ITS_WAY = 0.7  # of the waiting
_SENDS = 0.05  # of what the one that sent most did: with eight connections of one mount each counts
_QUEUED = 2.0  # times the shortest round


@dataclass(frozen=True)
class Transport:
    """What held a save up on its way to the server."""

    limit: Limit | None  # network | server; None: neither, data was seldom on its way
    text: str  # who, and the numbers
    excluded: str
    sure: bool  # the connections are known to be those of the mount
    queued: bool = False  # it waited in queues, or was lost: not only for the length of the way


def transport(sight: Sight, waiting: float) -> Transport | None:
    """Return what TCP tells of `waiting` seconds; None: nothing was seen, or it does not decide."""
    theirs = _senders(of_storage(sight))
    busy = sum(some(one.busy_seconds) for one in theirs)
    if not sight.writes or not theirs or any(one.busy_seconds is None for one in theirs) or waiting <= 0:
        return None
    sent = sum(one.sent_bytes for one in theirs)
    if sent < MOST * sight.moved:
        return None
    sure = all(one.relation != "bytes" for one in theirs)
    main = max(theirs, key=lambda one: one.sent_bytes)
    on_its_way = min(1.0, busy / waiting)
    if on_its_way < MOST:
        idle = f"data was on its way to {_name(main)} for {seconds(busy)} of it"
        free = f"not the network: nothing was on its way for {percent(1 - on_its_way)} of the waiting"
        return Transport(None, idle, free, sure) if waiting >= _LEAST_SECONDS else None
    if busy < _LEAST_SECONDS:
        return None
    held = sum(some(one.rwnd_share) * some(one.busy_seconds) for one in theirs)
    if held >= _HELD * busy:
        window = (
            f"the receiver's window of {_name(main)} let no more out for {percent(held / busy)} of the {seconds(busy)}"
        )
        text = f"{window} in which data was on its way"
        return Transport(Limit.SERVER, text, f"not the network: {text}", sure)
    if held < SLIGHT * busy and on_its_way >= _ON_ITS_WAY and not _stays_here(theirs):
        way = f"data was on its way to {_name(main)} for {percent(on_its_way)} of it{_rounds(main)}{_again(theirs)}"
        free = f"not the server: its window held the sender up for {percent(held / busy)} of that time"
        return Transport(Limit.NETWORK, way, free, sure, queued=bool(_rounds(main) or _again(theirs)))
    return None


def of_storage(sight: Sight) -> list[ConnectionMeasure]:
    """Return the connections with the storage behind the mount, those that are known to be it before those that may."""
    told = [one for one in sight.measures.connections if one.relation in ("server", "daemon") and not one.accepted]
    return told or [one for one in sight.measures.connections if one.relation == "bytes"]


def _senders(theirs: list[ConnectionMeasure]) -> list[ConnectionMeasure]:
    """Return those over which the data went: not those to another port of the server, nor one that is stuck."""
    most = max((one.sent_bytes for one in theirs), default=0.0)
    return [one for one in theirs if one.sent_bytes >= _SENDS * most]


def _stays_here(theirs: list[ConnectionMeasure]) -> bool:
    """Return whether nothing of it leaves the host: then there is no path to be slow."""
    return all(one.links == ("lo",) for one in theirs)


def _name(one: ConnectionMeasure) -> str:
    return f"[{one.remote}]:{one.port}" if ":" in one.remote else f"{one.remote}:{one.port}"


def _rounds(one: ConnectionMeasure) -> str:
    """Return how long a round took, where queues made it longer."""
    usual, least = one.rtt_seconds, one.min_rtt_seconds
    if not usual or not least or usual < _QUEUED * least:
        return ""
    return f", where a round took {usual * MS:.1f} ms, at best {least * MS:.2f} ms: it waits in queues"


def _again(theirs: list[ConnectionMeasure]) -> str:
    lost = sum(some(one.retransmitted_bytes) for one in theirs)
    return f", and {size(lost)} were sent again" if lost else ""
