"""The tables of the page: sizes, ranks, files and checkpoints, as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo

from ckptprof import units
from ckptprof.measures import DeviceMeasure, PathMeasure
from ckptprof.model import Checkpoint, Kind, Stream
from ckptprof.report import account, course, rows
from ckptprof.report.clean import clean, recorded
from ckptprof.report.html import colours
from ckptprof.report.html.lanes import Lateness

MAX_STREAMS = 64
MAX_RANKS = 16  # of a job
KIB, MIB = 1 << 10, 1 << 20
SIZES = (
    (0, "under 4 KiB"), (4 * KIB, "4 to 64 KiB"), (64 * KIB, "64 KiB to 1 MiB"), (MIB, "1 to 16 MiB"),
    (16 * MIB, "16 MiB and more"),
)  # fmt: skip
ORDERS = (("order-next", "right behind"), ("order-on", "further on"), ("order-back", "back"), ("gap", "not seen"))
COLUMNS = (
    ("ID", True), ("Time", True), ("Kind", False), ("Step", True), ("Job", False), ("Duration", True),
    ("Limit", False), ("Mode", False), ("Blocked", True), ("Size", True), ("Rate", True), ("Pattern", False),
    ("Path", False),
)  # fmt: skip


@dataclass(frozen=True)
class SizeRow:
    """The operations of a range of sizes."""

    name: str
    bytes_percent: float
    bytes_told: str
    operations_percent: float
    operations_told: str


@dataclass(frozen=True)
class OrderRow:
    """Where operations began, seen from where the one before them ended: class, begin and width in percent, text."""

    name: str
    parts: tuple[tuple[str, float, float, str], ...]
    told: str


@dataclass(frozen=True)
class RankRow:
    """One rank of a job."""

    job: str
    rank: int
    late: str
    worst: str
    last: str
    percent: float  # of the latest one's time


@dataclass(frozen=True)
class MountRow:
    """A kind of operation of a remote mount, or a server of it; or a path to a disk behind a fabric."""

    name: str
    moved: str
    count: str
    each: str
    queued: str
    answered: str


@dataclass(frozen=True)
class FileRow:
    """One file of a checkpoint, and when a process was at it."""

    name: str
    who: str
    size: str
    took: str
    pattern: str
    x: float
    width: float


@dataclass(frozen=True)
class Cell:
    """What a table shows, and by what it is sorted."""

    text: str
    key: float | str
    style: str = ""


@dataclass(frozen=True)
class Row:
    """One checkpoint, and what is told when it is opened."""

    id: int
    cells: tuple[Cell, ...]
    sentence: str
    lists: tuple[tuple[str, tuple[str, ...]], ...]


def sizes(every: Iterable[Checkpoint]) -> list[SizeRow]:
    """Return how many operations there were of each size, and what they moved; none where that was not seen."""
    sums = [[0, 0] for _ in SIZES]
    for one in every:
        for low, pair in (one.pattern.size_histogram or {}).items():
            if low.isdecimal() and len(pair) == 2:
                place = max(place for place, (least, _) in enumerate(SIZES) if int(low) >= least)
                sums[place] = [known + more for known, more in zip(sums[place], pair, strict=True)]
    operations, moved = (sum(one[i] for one in sums) for i in (0, 1))
    if not operations:
        return []
    return [
        SizeRow(
            name,
            round(100 * size / max(1, moved), 2), units.percent(size / max(1, moved)),
            round(100 * count / operations, 2), units.count(count),
        )
        for (_, name), (count, size) in zip(SIZES, sums, strict=True)
    ]  # fmt: skip


def patterns(every: Iterable[Checkpoint]) -> str:
    """Return how many checkpoints were of each class."""
    classes = Counter(None if one.pattern.class_ is None else one.pattern.class_.value for one in every)
    told = [
        f"{units.plural(count, 'checkpoint')} {'of an order not seen' if name is None else name}"
        for name, count in classes.most_common()
    ]
    return ", ".join(told)


def orders(every: Sequence[Checkpoint]) -> list[OrderRow]:
    """Return how much was in order, by bytes and by operations; nothing where no order was seen."""
    by_bytes, by_operations = [0.0] * len(ORDERS), [0.0] * len(ORDERS)
    for one in every:
        pattern = one.pattern
        seen = 1.0 if pattern.order_seen_share_bytes is None else pattern.order_seen_share_bytes
        _add(by_bytes, one.bytes, pattern.consecutive_share_bytes, pattern.sequential_share_bytes, seen)
        operations = (pattern.consecutive_share_operations, pattern.sequential_share_operations)
        _add(by_operations, pattern.operations or 0, *operations, 1.0)
    return [
        _order(name, sums) for name, sums in (("bytes", by_bytes), ("operations", by_operations)) if sum(sums[:-1]) > 0
    ]


def _add(sums: list[float], number: float, at_once: float | None, in_order: float | None, seen: float) -> None:
    if at_once is None or in_order is None:
        sums[-1] += number
        return
    shares = (at_once * seen, max(0.0, in_order - at_once) * seen, max(0.0, 1 - in_order) * seen, 1 - seen)
    for place, share in enumerate(shares):
        sums[place] += number * share


def _order(name: str, sums: Sequence[float]) -> OrderRow:
    whole, x, parts, told = sum(sums), 0.0, [], []
    for (style, text), number in zip(ORDERS, sums, strict=True):
        width = 100 * number / whole
        if number > 0:
            told.append(f"{units.percent(number / whole)} {text}")
            parts.append((style, round(x, 3), round(width, 3), told[-1]))
        x += width
    return OrderRow(name, tuple(parts), ", ".join(told))


def ranks(jobs: Mapping[str, Sequence[Lateness]]) -> list[RankRow]:
    """Return the ranks of each job, the latest first."""
    made = []
    for job, late in jobs.items():
        most = max((rank.late_seconds for rank in late), default=0.0)
        for rank in late[:MAX_RANKS]:
            share = 0.0 if not most else round(100 * rank.late_seconds / most, 2)
            last = f"{units.count(rank.last)} of {units.count(rank.checkpoints)}"
            told = (units.seconds(rank.late_seconds), units.seconds(rank.worst_seconds), last)
            made.append(RankRow(clean(job), rank.rank, *told, share))
    return made


def at_mount(one: Checkpoint) -> list[MountRow]:
    """Return what the client of its mount did meanwhile: servers that took a share of the data, then operations.

    Of a disk behind a fabric its paths.
    """
    mount = one.measures.mount if one.measures is not None else None
    if one.measures is not None and mount is not None and mount.paths:
        devices = {device.device: device for device in one.measures.devices}
        writes = one.kind is not Kind.RESTORE
        return [_path(path, devices.get(path.device), writes=writes) for path in mount.paths]
    if mount is None or mount.client is None:
        return []
    servers = [
        MountRow(clean(place.name), units.size((place.read_bytes or 0) + (place.written_bytes or 0)),
                 units.count(place.operations), units.latency(place.seconds), units.NOT_SEEN, units.NOT_SEEN)
        for place in mount.per_server
    ]  # fmt: skip
    operations = [
        MountRow(clean(each.kind), units.size((each.sent_bytes or 0) + (each.received_bytes or 0)),
                 units.count(each.count), units.latency(each.seconds), units.latency(each.queue_seconds),
                 units.latency(each.server_seconds))
        for each in mount.operations
    ]  # fmt: skip
    return servers + operations


def _path(path: PathMeasure, device: DeviceMeasure | None, *, writes: bool) -> MountRow:
    name = clean(", ".join(word for word in (path.device, path.target, path.state, path.ana_state) if word))
    if device is None:
        return MountRow(name, *(units.NOT_SEEN,) * 5)
    wait = device.write_wait_seconds if writes else device.read_wait_seconds
    moved, requests = device.read_bytes + device.written_bytes, device.reads + device.writes
    told = units.size(moved), units.count(requests), units.latency(wait)
    return MountRow(name, *told, units.NOT_SEEN, units.NOT_SEEN)


def files(one: Checkpoint) -> list[FileRow]:
    """Return the largest files of a checkpoint."""
    streams = sorted(one.streams, key=lambda stream: (-stream.bytes, stream.path))[:MAX_STREAMS]
    whole = max(1, one.end_ns - one.start_ns)
    common = rows.common_folder([stream.path for stream in streams])
    return [_file(stream, one.start_ns, whole, common) for stream in streams]


def _file(stream: Stream, start_ns: int, whole_ns: int, common: str | None) -> FileRow:
    begin = min(100.0, max(0.0, 100 * (stream.start_ns - start_ns) / whole_ns))
    width = min(100.0 - begin, max(0.2, 100 * (stream.end_ns - stream.start_ns) / whole_ns))
    return FileRow(
        clean(stream.path.removeprefix(common or "")),
        f"{clean(stream.comm)} {stream.pid}",
        units.size(stream.bytes),
        units.duration(stream.end_ns - stream.start_ns),
        units.NOT_SEEN if stream.class_ is None else stream.class_.value,
        round(begin, 3),
        round(width, 3),
    )


def row(one: Checkpoint, zone: tzinfo, clock: str, folder: str | None) -> Row:
    """Return the line of a checkpoint, its time written like `clock`; its path without the folder that all share."""
    spent = one.end_ns - one.start_ns
    rate = units.speed(one.bytes, spent)
    verdict = one.verdict
    pattern = "" if one.pattern.class_ is None else one.pattern.class_.value
    path = (rows.place(one) or "") if one.path is None else clean(one.path.removeprefix(folder or ""))
    cells = (
        Cell(str(one.id), one.id),
        Cell(units.stamp(one.start_ns, zone, clock), one.start_ns),
        Cell(one.kind.value + ("" if one.status.value == "complete" else ", incomplete"), one.kind.value),
        Cell(units.NOT_SEEN if one.step is None else str(one.step), -1 if one.step is None else one.step),
        Cell(clean(one.job), clean(one.job)),
        Cell(units.duration(spent), spent),
        Cell(colours.short(verdict) or units.NOT_SEEN, colours.short(verdict) or "", colours.of_verdict(verdict)),
        Cell(units.NOT_SEEN if one.mode is None else one.mode.value, "" if one.mode is None else one.mode.value),
        Cell(units.NOT_SEEN, -1) if one.stall_ns is None else Cell(units.duration(one.stall_ns), one.stall_ns),
        Cell(units.size(one.bytes), one.bytes),
        Cell(units.rate(rate) if rate is not None else units.NOT_SEEN, rate or 0.0),
        Cell(pattern or units.NOT_SEEN, pattern),
        Cell(path, path),
    )
    return Row(one.id, cells, "" if verdict is None else recorded(verdict.sentence), tuple(_told(one)))


def _told(one: Checkpoint) -> Sequence[tuple[str, tuple[str, ...]]]:
    verdict = one.verdict
    lists: list[tuple[str, Iterable[str]]] = []
    if verdict is not None:
        gain = account.gain_text(verdict)
        lists += [
            ("To do", () if verdict.remedy is None else (verdict.remedy,)),
            ("Without it", () if gain is None else (gain,)),
            ("Speaks for it", verdict.evidence),
            ("Speaks against others", verdict.excluded),
            ("Could not be seen", verdict.lacking),
        ]
    pairs = course.of_restore(one) if one.kind is Kind.RESTORE else []
    lists.append(("May restore wrongly", [risk.text for risk in one.risks]))
    lists.append(("In a crash", course.frailties(one)))
    lists.append(("Read from", [f"{name}: {text}" for name, text in pairs]))
    lists.append(("Out of sight", one.blind))
    return [(name, tuple(recorded(text) for text in texts)) for name, texts in lists if texts]
