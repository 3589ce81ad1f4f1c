"""What the clients of remote mounts did during a checkpoint: bytes, operations and their times, by server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from msgspec.structs import replace

from ckptprof.detect.tolerances import FEW, LITTLE_SHARE, NEARBY_NS, WHOLE_SHARE
from ckptprof.detect.world.bounded import MAX_ENTRIES, Bounded
from ckptprof.detect.world.counter_history import (
    MAX_HISTORY_BYTES,
    SECOND_NS,
    UNOBSERVED,
    CounterHistories,
    CounterHistory,
    rounded,
    stored,
)
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.measures import MountMeasure, OperationMeasure, ServerMeasure
from ckptprof_collectors.samples import ClientOperation, ClientSample, MountInfo

_Total = IntEnum(
    "_Total", "READ WRITTEN DIRECT_READ DIRECT_WRITTEN WIRE_READ WIRE_WRITTEN DELAYS SENDS BACKLOG IN_USE", start=0
)
_Operation = IntEnum("_Operation", "COUNT TOTAL QUEUE SERVER SENT RECEIVED TRANSMISSIONS TIMEOUTS ERRORS", start=0)
_Target = IntEnum("_Target", "READ WRITTEN TIMEOUTS IN_FLIGHT", start=0)  # the last one is a gauge
_MAX_ROWS = 8 * MAX_ENTRIES
_HISTORY_BYTES = MAX_HISTORY_BYTES >> 4  # there may be hundreds, and a history of hours is not needed
_PAUSE_NS = 10 * SECOND_NS  # even slow samples are closer; without training they are not
_US = 1e6

Device = tuple[int, int]  # of a mount: major, minor
_Added = Sequence[float | None]  # growth of each counter; None: not observed


class _CounterKey(NamedTuple):
    """Key of what is counted by itself: operations of one kind, a target, another counter."""

    device: Device
    target: str = ""  # "": of the whole mount
    kind: str = ""  # "": of all kinds


class RemoteClientCounters:
    """Recent history of each client."""

    def __init__(self) -> None:
        self._last: Bounded[Device, ClientSample] = Bounded(MAX_ENTRIES)
        self._totals: CounterHistories[Device] = CounterHistories(
            lambda: CounterHistory(len(_Total), rising=len(_Total))
        )
        self._operations: CounterHistories[_CounterKey] = CounterHistories(_history(len(_Operation)), _MAX_ROWS)
        self._targets: CounterHistories[_CounterKey] = CounterHistories(
            _history(len(_Target), _Target.IN_FLIGHT), _MAX_ROWS
        )
        self._further: CounterHistories[_CounterKey] = CounterHistories(_history(1), _MAX_ROWS)

    @property
    def retained_bytes(self) -> int:
        """Memory used, approximately."""
        return self._totals.retained_bytes + sum(rows.retained_bytes for rows in self._rows)

    def shrink(self, share: float) -> None:
        """Thin each history to this share of its limit."""
        self._totals.shrink(share)
        for rows in self._rows:
            rows.shrink(share)

    @property
    def _rows(self) -> tuple[CounterHistories[_CounterKey], ...]:
        return self._operations, self._targets, self._further

    def ingest(self, samples: FrameSamples) -> None:
        """Ingest the samples of a frame."""
        for one in samples.by_kind(ClientSample):
            device = one.major, one.minor
            before_ns = max(samples.unchanged_ns("clients"), self._totals[device].last_ns)
            context = _SampleContext(samples.at_ns, before_ns, self._last.get(device))
            self._last[device] = one
            totals = (
                one.read_bytes, one.written_bytes, one.direct_read_bytes, one.direct_written_bytes, one.wire_read_bytes,
                one.wire_written_bytes, one.delays, one.sends, one.backlog, one.in_use,
            )  # fmt: skip
            self._totals.touch(device).add(context.at_ns, totals, context.before_ns)
            for target, operation in _operations(one):
                context.add(self._operations, _CounterKey(device, target, operation.kind), _counts(operation))
            for place in one.targets:
                counters = place.read_bytes, place.written_bytes, place.timeouts, place.in_flight
                context.add(self._targets, _CounterKey(device, place.name), counters)
            for name, value in one.counters.items():
                context.add(self._further, _CounterKey(device, kind=name), (value,))

    def forget(self, device: Device) -> None:
        """Drop a mount that was removed."""
        if self._last.pop(device, None) is None:
            return
        self._totals.pop(device, None)
        for rows in self._rows:
            for row in [row for row in rows if row.device == device]:
                del rows[row]

    def limitations_of_mount(self, mount: MountInfo | None) -> tuple[str, ...]:
        """Limitations of the client of a mount, each one clause."""
        last = self._last.get((mount.major, mount.minor)) if mount is not None else None
        return last.limitations if last is not None else ()

    def file_system_name(self, mount: MountInfo) -> str | None:
        """Name of a mount's file system that all of its clients use; None: unknown."""
        last = self._last.get((mount.major, mount.minor))
        return last.file_system if last is not None else None

    def enrich(self, measure: MountMeasure, mount: MountInfo, start_ns: int, end_ns: int) -> MountMeasure:
        """Add to a mount what its client did in a time, if that was observed."""
        device = mount.major, mount.minor
        last, totals = self._last.get(device), self._totals[device].growth(start_ns, end_ns)
        if last is None or totals is None or not _is_known_at(self._totals[device], start_ns, end_ns):
            return measure
        kinds = self._by_kind(last, start_ns, end_ns)
        operations = sorted((_operation(*one) for one in kinds.items()), key=_importance, reverse=True)
        servers = sorted(self._by_server(last, start_ns, end_ns), key=_server_importance, reverse=True)
        requested_seconds, late_share = self._request_timing(device, start_ns, end_ns) or (None, None)
        return replace(
            measure,
            client=last.client,
            transport=last.transport,
            read_bytes=rounded(totals[_Total.READ]),
            written_bytes=rounded(totals[_Total.WRITTEN]),
            direct_read_bytes=rounded(totals[_Total.DIRECT_READ]),
            direct_written_bytes=rounded(totals[_Total.DIRECT_WRITTEN]),
            wire_read_bytes=rounded(totals[_Total.WIRE_READ]),
            wire_written_bytes=rounded(totals[_Total.WIRE_WRITTEN]),
            requested_seconds=requested_seconds,
            late_share=late_share,
            operations=tuple(operations[:FEW]),
            delays=rounded(totals[_Total.DELAYS]),
            connections=last.connections,
            slots=last.slots,
            backlog_mean=_mean(totals[_Total.BACKLOG], totals[_Total.SENDS]),
            in_use_mean=_mean(totals[_Total.IN_USE], totals[_Total.SENDS]),
            servers=len(servers) or None,
            per_server=tuple(servers[:FEW]),
            settings=dict(last.settings) or None,
            counters=self._counters(last, start_ns, end_ns) or None,
        )

    def _by_kind(self, last: ClientSample, start_ns: int, end_ns: int) -> dict[str, _Added]:
        found: dict[str, _Added] = {}
        for target, operation in _operations(last):
            row = _CounterKey((last.major, last.minor), target, operation.kind)
            counts = self._operations[row].growth(start_ns, end_ns)
            if counts is not None and counts[_Operation.COUNT]:
                found[row.kind] = _sum_added(found[row.kind], counts) if row.kind in found else counts
        return found

    def _by_server(self, last: ClientSample, start_ns: int, end_ns: int) -> Iterable[ServerMeasure]:
        for place in last.targets:
            row = _CounterKey((last.major, last.minor), place.name)
            history, sums = self._targets[row], _ZERO_ADDED
            added = history.growth(start_ns, end_ns)
            if added is None:
                continue
            for operation in place.operations:
                counts = self._operations[row._replace(kind=operation.kind)].growth(start_ns, end_ns)
                sums = sums if counts is None else _sum_added(sums, counts)
            duration_us = sums[_Operation.SERVER] if sums[_Operation.SERVER] is not None else sums[_Operation.TOTAL]
            yield ServerMeasure(
                name=place.name,
                address=place.address,
                state=place.state,
                read_bytes=rounded(added[_Target.READ]),
                written_bytes=rounded(added[_Target.WRITTEN]),
                operations=rounded(sums[_Operation.COUNT]) if place.operations else None,
                seconds=_mean(duration_us, sums[_Operation.COUNT], _US),
                timeouts=rounded(added[_Target.TIMEOUTS]),
                in_flight=None if place.in_flight is None else history.largest(_Target.IN_FLIGHT, start_ns, end_ns),
                slots=place.slots,
                gauges=dict(place.gauges) or None,
            )

    def _counters(self, last: ClientSample, start_ns: int, end_ns: int) -> dict[str, int]:
        found = {}
        for name in last.counters:
            added = self._further[_CounterKey((last.major, last.minor), kind=name)].growth(start_ns, end_ns)
            if added is not None and added[0] is not None:
                found[name] = round(added[0])
        return found

    def _request_timing(self, device: Device, start_ns: int, end_ns: int) -> tuple[float, float] | None:
        """Seconds until what was written had been requested, and the share of the data sent later."""
        history = self._totals[device]
        samples = [(max(start_ns, min(end_ns, at_ns)), values) for at_ns, values in history.samples(start_ns, end_ns)]
        columns = _Total.WRITTEN, _Total.DIRECT_WRITTEN, _Total.WIRE_WRITTEN
        if len(samples) < 2 or any(history.last_values[column] >= UNOBSERVED for column in columns):
            return None
        first, final = samples[0][1], samples[-1][1]
        requested, sent = _written(final) - _written(first), final[_Total.WIRE_WRITTEN] - first[_Total.WIRE_WRITTEN]
        if requested <= 0 or sent <= 0:
            return None
        at_ns, then = next(
            sample for sample in samples if _written(sample[1]) - _written(first) >= WHOLE_SHARE * requested
        )
        return (at_ns - start_ns) / SECOND_NS, (final[_Total.WIRE_WRITTEN] - then[_Total.WIRE_WRITTEN]) / sent


class _SampleContext(NamedTuple):
    """One sample of a client, and the previous one."""

    at_ns: int
    before_ns: int  # when the collector was read before
    previous: ClientSample | None

    def add(self, rows: CounterHistories[_CounterKey], row: _CounterKey, counters: Sequence[int | None]) -> None:
        """Add values to the history of a row; a row missing in the previous sample was zero then."""
        values, existing = stored(counters), rows.get(row)
        if (
            existing is not None and existing.last_values == values
        ):  # most of hundreds are idle: the last sample remains valid
            rows.move_to_end(row)
            return
        is_new = existing is None and self.previous is not None and not _has_row(self.previous, row)
        history = rows.touch(row)
        if is_new and self.before_ns < self.at_ns:
            history.add(self.before_ns, [None if value is None else 0 for value in counters])
        history.add(self.at_ns, values, self.before_ns)


def _history(width: int, rising: int | None = None) -> Callable[[], CounterHistory]:
    return lambda: CounterHistory(width, rising=width if rising is None else rising, max_bytes=_HISTORY_BYTES)


def _operations(one: ClientSample) -> Iterable[tuple[str, ClientOperation]]:
    yield from (("", operation) for operation in one.operations)
    yield from ((place.name, operation) for place in one.targets for operation in place.operations)


def _has_row(one: ClientSample, row: _CounterKey) -> bool:
    if row.target:
        place = next((place for place in one.targets if place.name == row.target), None)
        return place is not None and (not row.kind or any(each.kind == row.kind for each in place.operations))
    return row.kind in one.counters or any(each.kind == row.kind for each in one.operations)


def _counts(one: ClientOperation) -> tuple[int | None, ...]:
    return (
        one.count, one.total_us, one.queue_us, one.server_us, one.sent_bytes, one.received_bytes, one.transmissions,
        one.timeouts, one.errors,
    )  # fmt: skip


def _is_known_at(history: CounterHistory, start_ns: int, end_ns: int) -> bool:
    """Whether the counters at the first time are known: not after a pause of sampling in which they rose."""
    (before_ns, before), (after_ns, after) = (around := history.samples(start_ns, start_ns))[0], around[-1]
    pause_ns = max(_PAUSE_NS, LITTLE_SHARE * (end_ns - start_ns))
    return before_ns <= start_ns + NEARBY_NS and (after_ns - before_ns <= pause_ns or before == after)


_ZERO_ADDED: _Added = (0.0,) * len(_Operation)


def _sum_added(one: _Added, other: _Added) -> _Added:
    """Sum; None where one of them is None."""
    return [None if a is None or b is None else a + b for a, b in zip(one, other, strict=True)]


def _operation(kind: str, counts: _Added) -> OperationMeasure:
    count, retransmissions = counts[_Operation.COUNT], counts[_Operation.TRANSMISSIONS]
    if retransmissions is not None and count is not None:
        retransmissions = max(0.0, retransmissions - count)
    return OperationMeasure(
        kind=kind,
        count=rounded(count) or 0,
        seconds=_mean(counts[_Operation.TOTAL], count, _US),
        queue_seconds=_mean(counts[_Operation.QUEUE], count, _US),
        server_seconds=_mean(counts[_Operation.SERVER], count, _US),
        sent_bytes=rounded(counts[_Operation.SENT]),
        received_bytes=rounded(counts[_Operation.RECEIVED]),
        retransmissions=rounded(retransmissions),
        timeouts=rounded(counts[_Operation.TIMEOUTS]),
        errors=rounded(counts[_Operation.ERRORS]),
    )


def _importance(one: OperationMeasure) -> tuple[float, int]:
    return (one.seconds or one.server_seconds or 0.0) * one.count, one.count


def _server_importance(one: ServerMeasure) -> tuple[bool, float, int]:
    """Rank servers: first those that do not answer, which complete nothing, then by total time, then by bytes."""
    is_lost = bool(one.timeouts) or not one.is_reached
    transferred = (one.read_bytes or 0) + (one.written_bytes or 0)
    return is_lost, (one.seconds or 0.0) * (one.operations or 0), transferred


def _written(values: Sequence[int]) -> int:
    return values[_Total.WRITTEN] + values[_Total.DIRECT_WRITTEN]


def _mean(total: float | None, count: float | None, unit: float = 1.0) -> float | None:
    return None if total is None or not count else total / count / unit
