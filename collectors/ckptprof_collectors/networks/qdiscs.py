"""Queueing disciplines of the network interfaces: the data of `tc -s qdisc`, by rtnetlink.

Own parsing of one message (RTM_GETQDISC; include/uapi/linux/{rtnetlink,pkt_sched,gen_stats}.h). The root of a
multiqueue interface sums up its queues, so only roots are reported, and shaping or delaying disciplines at any place.
`noqueue` has neither a queue nor counters.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Sequence

from ckptprof_collectors.kernelfs import KernelFs, UnavailableError
from ckptprof_collectors.networks.netlink import ROUTE, Netlink, parse_attributes
from ckptprof_collectors.samples import EntityGone, QdiscSample, Sample, text

_RTM_GETQDISC, _RTM_NEWQDISC = 38, 36
_MESSAGE = struct.Struct("=BxxxiIII")  # tcmsg: family, interface, handle, parent, info
_KIND, _OPTIONS, _STATS2 = 1, 2, 7  # TCA_*
_BASIC, _QUEUE, _PACKETS64 = 1, 3, 8  # TCA_STATS_*
_BASIC_STATS = struct.Struct("=QI")  # gnet_stats_basic
_QUEUE_STATS = struct.Struct("=IIIII")  # gnet_stats_queue: length, backlog, drops, requeues, overlimits
_TBF_PARMS, _TBF_RATE64, _RATE_AT = 1, 4, 8  # the rate in bytes per second in tc_ratespec
_NETEM_BYTES, _NETEM_RATE, _NETEM_RATE64 = 24, 6, 8
_ROOTS = frozenset((0xFFFFFFFF, 0xFFFFFFF1))  # TC_H_ROOT, TC_H_INGRESS
SHAPERS = frozenset(("tbf", "htb", "hfsc", "cbq", "netem", "cake", "ets", "drr"))
PAUSE_SECONDS_EACH = 0.002  # per discipline: hundreds of interfaces, as of containers, are read less often


class QdiscReader:
    """Reports each relevant discipline when it changed, and its end."""

    name = "qdiscs"

    def __init__(self, fs: KernelFs, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Open a socket in the agent's own network namespace; raises UnavailableError."""
        if not fs.is_live:
            raise UnavailableError("queueing disciplines are read by netlink, not from files")
        self._netlink = Netlink(ROUTE, "rtnetlink")
        self._clock = clock
        self._next = 0.0
        self._previous: dict[tuple[int, int, int], QdiscSample] = {}
        self._names: dict[int, str] = {}

    def read(self) -> Sequence[Sample] | None:
        """Sample what changed since the last call; None: too early. Raises OSError."""
        now = self._clock()
        if now < self._next:
            return None
        found: dict[tuple[int, int, int], QdiscSample] = {}
        count = 0
        question = _MESSAGE.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
        for kind, body in self._netlink.dump(_RTM_GETQDISC, question):
            if kind != _RTM_NEWQDISC:
                continue
            count += 1
            parsed = parse(body, self._name)
            if parsed is not None:
                found[parsed[0], parsed[1].handle, parsed[1].parent] = parsed[1]
        self._next = now + count * PAUSE_SECONDS_EACH
        before, self._previous = self._previous, found
        present = {current.interface for current in found.values()}
        departed = {current.interface for key, current in before.items() if key not in found}
        self._names = {key[0]: current.interface for key, current in found.items()}
        samples: list[Sample] = [EntityGone("qdisc", interface) for interface in sorted(departed - present)]
        samples += [current for key, current in found.items() if current != before.get(key)]
        return samples

    def _name(self, index: int) -> str | None:
        """Name of an interface; a cached name may be outdated only after the interface was down."""
        name = self._names.get(index)
        if name is None:
            try:
                name = self._names[index] = text(socket.if_indextoname(index).encode("utf-8", "surrogateescape"))
            except OSError:
                return None  # removed in between
        return name

    def close(self) -> None:
        self._netlink.close()


def parse(body: bytes, name_of: Callable[[int], str | None]) -> tuple[int, QdiscSample] | None:
    """Parse a message: index of the interface and sample; None if it does not count, or is malformed."""
    if len(body) < _MESSAGE.size:
        return None
    _, index, handle, parent, _ = _MESSAGE.unpack_from(body)
    found = parse_attributes(body[_MESSAGE.size :])
    kind = text(found.get(_KIND, b"").rstrip(b"\0"))
    if not kind or kind == "noqueue" or (parent not in _ROOTS and kind not in SHAPERS):
        return None
    interface = name_of(index)
    if interface is None:
        return None
    stats = parse_attributes(found.get(_STATS2, b""))
    basic, queue, packets = stats.get(_BASIC, b""), stats.get(_QUEUE, b""), stats.get(_PACKETS64, b"")
    sent = _BASIC_STATS.unpack_from(basic) if len(basic) >= _BASIC_STATS.size else (None, None)
    queued = _QUEUE_STATS.unpack_from(queue) if len(queue) >= _QUEUE_STATS.size else (None,) * 5
    return index, QdiscSample(
        interface=interface,
        kind=kind,
        handle=handle,
        parent=parent,
        bytes=sent[0],
        packets=_number(packets, 0, 8) or sent[1],
        drops=queued[2],
        overlimits=queued[4],
        backlog_bytes=queued[1],
        queued_packets=queued[0],
        rate_bytes_per_second=_rate(kind, found.get(_OPTIONS, b"")),
    )


def _rate(kind: str, options: bytes) -> int | None:
    if kind == "tbf":
        nested = parse_attributes(options)
        return _number(nested.get(_TBF_RATE64, b""), 0, 8) or _number(nested.get(_TBF_PARMS, b""), _RATE_AT, 4)
    if kind == "netem":
        nested = parse_attributes(options[_NETEM_BYTES:])
        return _number(nested.get(_NETEM_RATE64, b""), 0, 8) or _number(nested.get(_NETEM_RATE, b""), 0, 4)
    return None


def _number(data: bytes, at: int, size: int) -> int | None:
    """Read the number at an offset; None if it is missing or 0."""
    return int.from_bytes(data[at : at + size], "little") or None if len(data) >= at + size else None
