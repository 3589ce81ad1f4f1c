"""The tables of the page: sizes, ranks, files and checkpoints, as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import tzinfo

from ckptprof import units
from ckptprof.model import Checkpoint, Kind, Stream
from ckptprof.report import account, certainty, course, rows
from ckptprof.report.clean import clean, recorded
from ckptprof.report.html import colours
from ckptprof.report.html.lanes import latenesses
from ckptprof.verdicts import Limit

MAX_STREAMS = 64
MAX_RANKS = 16  # of a job
KIB, MIB = 1 << 10, 1 << 20
SIZES = (
    (0, "under 4 KiB"), (4 * KIB, "4 to 64 KiB"), (64 * KIB, "64 KiB to 1 MiB"), (MIB, "1 to 16 MiB"),
    (16 * MIB, "16 MiB and more"),
)  # fmt: skip
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
class RankRow:
    """One rank of a job."""

    job: str
    rank: int
    late: str
    worst: str
    last: str
    percent: float  # of the latest one's time


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


def ranks(every: Iterable[Checkpoint]) -> list[RankRow]:
    """Return the ranks of each job, the latest first."""
    jobs: dict[str, list[Checkpoint]] = {}
    for one in every:
        jobs.setdefault(one.job, []).append(one)
    made = []
    for job, mine in jobs.items():
        late = latenesses(mine)
        most = max((rank.late_seconds for rank in late), default=0.0)
        for rank in late[:MAX_RANKS]:
            share = 0.0 if not most else round(100 * rank.late_seconds / most, 2)
            last = f"{units.count(rank.last)} of {units.count(rank.checkpoints)}"
            told = (units.seconds(rank.late_seconds), units.seconds(rank.worst_seconds), last)
            made.append(RankRow(clean(job), rank.rank, *told, share))
    return made


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


def row(one: Checkpoint, zone: tzinfo, folder: str | None) -> Row:
    """Return the line of a checkpoint; its path without the folder that all share."""
    spent = one.end_ns - one.start_ns
    rate = units.speed(one.bytes, spent)
    verdict = one.verdict
    limit = None if verdict is None else verdict.limit if certainty.is_told(verdict) else Limit.UNCLEAR
    pattern = "" if one.pattern.class_ is None else one.pattern.class_.value
    path = clean((one.path or "").removeprefix(folder or ""))
    cells = (
        Cell(str(one.id), one.id),
        Cell(units.stamp(one.start_ns, zone, "%m-%d %H:%M:%S"), one.start_ns),
        Cell(one.kind.value + ("" if one.status.value == "complete" else ", incomplete"), one.kind.value),
        Cell(units.NOT_SEEN if one.step is None else str(one.step), -1 if one.step is None else one.step),
        Cell(clean(one.job), clean(one.job)),
        Cell(units.duration(spent), spent),
        Cell(certainty.short(verdict) or units.NOT_SEEN, certainty.short(verdict) or "", colours.css_class(limit)),
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
    lists.append(("Read from", [f"{name}: {text}" for name, text in pairs]))
    lists.append(("Out of sight", one.blind))
    return [(name, tuple(recorded(text) for text in texts)) for name, texts in lists if texts]
