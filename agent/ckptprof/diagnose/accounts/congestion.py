"""What the fabric says of congestion, however far from full a port is: notifications, marks, pauses, losses, credit.

An RDMA port sends more slowly for each congestion notification that it is sent (CNP, DCQCN), an Ethernet port not at
all while it is paused (PFC), and an InfiniBand port waits for credit. Ports are shared with collectives: what a port
moved before the checkpoint, too, is not the checkpoint's.
"""

from __future__ import annotations

from dataclasses import dataclass

from ckptprof.diagnose.sight import SLIGHT, some
from ckptprof.measures import LinkMeasure
from ckptprof.units import percent, plural, rate

_A_SECOND = 100.0  # of notifications or pauses: a few are how a healthy fabric keeps its queues short
_LOST_A_SECOND = 10.0  # each costs a round, and often much that has to be sent again
_WAITED = 0.3  # of the ticks of a port


@dataclass(frozen=True)
class Congestion:
    """What was seen of it."""

    text: str
    shared: str | None  # with what else the port was shared


def congestion(link: LinkMeasure, moved: float, waiting: float, *, writes: bool) -> Congestion | None:
    """Return what the fabric held up while a thread waited so many seconds, at `moved` bytes a second; None: not it."""
    told = []
    for count, least, noun in (
        (link.congestion_notifications, _A_SECOND, "congestion notification"),
        (link.pauses_received if writes else None, _A_SECOND, "pause of the other end"),
        (link.out_of_sequence, _LOST_A_SECOND, "error of sequence"),
        (link.ack_timeouts, _LOST_A_SECOND, "timeout of an acknowledgement"),
    ):
        if some(count) >= least * max(waiting, 1.0):
            first, of, rest = noun.partition(" of ")
            told.append(f"{plural(int(some(count)), first)}{of}{rest}")
    waited = link.wait_share if writes else None
    if waited is not None and waited >= _WAITED:
        told.append(f"no credit to send in {percent(waited)} of its ticks")
    if not told:
        return None
    marked = some(link.marked_packets)
    if marked and not writes:
        told.append(f"{plural(int(marked), 'packet')} marked on the way")
    before = some(link.before_bytes_per_second)
    shared = None
    if before >= SLIGHT * moved:
        shared = f"the port is shared: it moved {rate(before)} before this, too, as collectives do"
    return Congestion(f"{link.name} had {', '.join(told)}", shared)
