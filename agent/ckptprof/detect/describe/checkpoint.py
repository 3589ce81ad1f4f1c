"""From a recognised candidate to the checkpoint that is stored and shown."""

from __future__ import annotations

import uuid

import msgspec

from ckptprof.detect.describe.blind import blind_of, unfound, unsettled
from ckptprof.detect.describe.completeness import ending_of
from ckptprof.detect.describe.connections import hidden, sent_of
from ckptprof.detect.describe.cuts import cuts_of, unseen_of
from ckptprof.detect.describe.draft import Draft
from ckptprof.detect.describe.durability import durability, durable_evidence, ends_of, frailties_of, writeback_measures
from ckptprof.detect.describe.layout import class_of, engine_of, hidden_of, pattern_of
from ckptprof.detect.describe.measures import measures_of
from ckptprof.detect.describe.overheads import amplification_of, copies_of
from ckptprof.detect.describe.progress import progress_of
from ckptprof.detect.describe.risks import risks_of
from ckptprof.detect.describe.sources import source_of, told_by_client
from ckptprof.detect.describe.stall import Stall, intervals, stall_of
from ckptprof.detect.describe.writers import ranks_of, run_of, writers_of
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.event import framework_of
from ckptprof.detect.events.gathering import MANY_PARTS
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.tolerances import MAX_POINTS, STAMP_NS
from ckptprof.detect.transfers.model.group import level_of, points_of
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.clock import Clock
from ckptprof.detect.world.host.folders import folder_of
from ckptprof.detect.world.world import World
from ckptprof.frameworks.placekeys import place_of
from ckptprof.model import (
    Checkpoint,
    Evidence,
    Kind,
    Metadata,
    Moments,
    Pattern,
    Place,
    Point,
    Progress,
    Status,
    Stream,
)

_KINDS = ("created", "renamed", "unlinked", "synced")


def assemble(
    candidate: Candidate, evidence: list[Evidence], confidence: float, known: Knowledge, *, is_copy: bool = False
) -> tuple[Checkpoint, tuple[str, ...], Stall]:
    """Build (checkpoint, the limitations that remain once its durability is known, its stall)."""
    world, clock = known.world, known.world.clock
    ending, cuts = ending_of(candidate, known, is_copy=is_copy), cuts_of(candidate, known)
    status = Status.INCOMPLETE if cuts else ending.status
    path = _path(candidate, complete=status is Status.COMPLETE)
    start_ns, end_ns = clock.wall(candidate.start_ns), clock.wall(candidate.end_ns)
    kind = Kind.SAVE if candidate.writes else Kind.RESTORE
    sent = sent_of(candidate.parts)
    engine = engine_of(candidate, world)
    pattern = Pattern(class_=None) if sent is not None else pattern_of(candidate, world.histories, engine)
    durable = durability(ends_of(candidate.parts if candidate.writes else (), clock), known.transfers.writeback)
    files = 0 if sent is not None else len({part.path for part in candidate.parts})
    stall = stall_of(candidate, known)
    spent = amplification_of(candidate, known)
    source = source_of(candidate, world.histories, world.devices.mount_of(path))
    blind = tuple(blind_of(candidate, pattern, files, world.health, world.starvation))
    unseen = (*unfound(candidate, world.histories, spent.written_bytes), *stall.blind, *unseen_of(cuts))
    writers = writers_of(candidate, world, stall.roles)
    draft = Draft(candidate, known, path, writers, stall, durable.at_ns, engine)
    measures = measures_of(draft)
    if candidate.writes:
        span = candidate.start_ns, candidate.end_ns
        told = writeback_measures(durable, path, span, world.devices, clock.wall)
        measures = msgspec.structs.replace(measures, **told)
    source = told_by_client(source, candidate, measures.mount)
    settled = durable.at_ns is not None if candidate.writes else source.cache is not None
    unseen += (
        hidden_of(engine, world)
        + hidden(world, measures, writers)
        + world.devices.clients.unseen_of(world.devices.mount_of(path))
    )
    stall_ns, spans = (None, ()) if cuts else stall.with_before(measures.before, candidate)
    blocked = [(clock.wall(begin_ns), clock.wall(until_ns)) for begin_ns, until_ns in spans]
    progress, left_out = progress_of(candidate.parts[:MANY_PARTS], clock)
    identity = (world.header.uid, kind.value, candidate.job, candidate.step, start_ns, path)
    checkpoint = Checkpoint(
        uid=str(uuid.uuid5(uuid.NAMESPACE_URL, "|".join(map(str, identity)))),
        kind=kind,
        job=candidate.job,
        owner=next(map(world.jobs.owner, writers), None),
        framework=framework_of(candidate, known),
        step=candidate.step,
        ranks=ranks_of(candidate, world.jobs),
        start_ns=start_ns,
        end_ns=end_ns,
        durable_ns=None if durable.at_ns is None else clock.wall(durable.at_ns),
        bytes=candidate.bytes,
        files=files,
        path=None if sent is not None else path,
        sent=sent,
        run=run_of(candidate, world.jobs),
        clock=clock.state,
        place=None if sent is not None else _place(candidate, path, world),
        writers=tuple(writers.values()),
        mode=stall.mode,
        stall_ns=stall_ns,
        blocked=intervals(blocked, stall_ns),
        status=status,
        moments=_moments_of(candidate, clock, committed=status is Status.COMPLETE),
        metadata=_metadata_of(candidate, world),
        written_bytes=spent.written_bytes,
        unique_bytes=spent.unique_bytes if candidate.writes else source.unique_bytes,
        overheads=spent.overheads,
        storage_bytes=source.storage_bytes,
        cache=source.cache,
        pattern=pattern,
        measures=measures,
        level=level_of(candidate.parts),
        blind=(*blind, *(() if settled else (unsettled(candidate),)), *unseen),
        evidence=(
            *evidence,
            *stall.evidence,
            *ending.evidence,
            *cuts,
            *risks_of(candidate, known),
            *(frailties_of(candidate, known) if status is Status.COMPLETE and not is_copy else ()),
            *durable_evidence(durable),
        ),
        confidence=confidence,
        streams=tuple(
            _stream(part, known, clock, progress.get(place, ()))
            for place, part in enumerate(candidate.parts[:MANY_PARTS])
        ),
        progress_left_out=left_out,
        timeline=_timeline(candidate, known, clock),
        devices=world.devices.shares(path, candidate.start_ns, candidate.end_ns, writes=candidate.writes),
    )
    return checkpoint, (*blind, *unseen), stall


def _path(candidate: Candidate, *, complete: bool) -> str:
    """Find the one file, or the folder that all share; a file that is one rank's part is represented by its folder.

    A marker may lie beside that folder (`latest`) and is no part of it. After a folder was renamed, some or all files
    may have been observed under its old name only: once a save is `complete`, the folder of its step is used. A copy
    under a further name (`last.ckpt`) is not the checkpoint.
    """
    if candidate.is_sent:
        return candidate.parts[0].path
    beside = candidate.step is not None
    copies = set(map(id, copies_of(candidate.parts))) if candidate.writes else set()
    kept = [part for part in candidate.parts if id(part) not in copies]
    kept = [part for part in kept if not (beside and part.name.commit and part.name.step is None)]
    kept = kept or candidate.parts
    paths = [part.path for part in kept]
    if len(set(paths)) == 1 and kept[0].name.rank is None:
        return paths[0]
    directories = [part.name.file_directory for part in kept]
    named = complete and all(part.name.certain and part.name.step is not None for part in kept)
    if not named and not any(
        path.startswith(f"{directory}/") for path, directory in zip(paths, directories, strict=True)
    ):
        directories = [path.rpartition("/")[0] for path in paths]
    shared = []
    for parts in zip(*(directory.split("/") for directory in dict.fromkeys(directories)), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return "/".join(shared) or "/"


def _place(candidate: Candidate, path: str, world: World) -> Place | None:
    """Where its folder lies, as its file system identifies it; None: never inspected."""
    folder = folder_of(path) if any(part.path == path for part in candidate.parts) else path
    facts = [part.fact for part in candidate.parts if part.fact is not None and folder_of(part.fact.path) == folder]
    told = {(fact.device, fact.folder_inode) for fact in facts if fact.folder_inode is not None}
    key = world.folders.key(folder, candidate.processes) if not told else told.pop() if len(told) == 1 else None
    if key is None:
        return None
    mounts = world.devices.mounts_with(key[0])
    called = world.devices.clients.file_system(mounts[0]) if mounts else None
    return place_of(key, folder, mounts, world.header.boot_id or world.header.host, called)


def _stream(part: Transfer, known: Knowledge, clock: Clock, progress: tuple[Progress, ...]) -> Stream:
    sent = sent_of([part])
    return Stream(
        pid=part.process[0],
        comm=known.world.jobs.comm(part.process),
        path=part.path if sent is None else sent.destinations[0].place,
        bytes=part.bytes,
        size=part.fact.size if part.fact else part.size or None,
        start_ns=clock.wall(part.start_ns),
        end_ns=clock.wall(part.end_ns),
        class_=class_of(part),
        seen_by=part.seen_by,
        progress=progress,
    )


def _timeline(candidate: Candidate, known: Knowledge, clock: Clock) -> tuple[Point, ...]:
    """Bytes transferred in each interval, clipped to the candidate and thinned to 600 points."""
    points = sorted(points_of(candidate.parts, known.world.histories))
    if len(points) > MAX_POINTS:
        points = _thinned(points, candidate)
    return tuple(Point(clock.wall(start), clock.wall(end), count) for start, end, count in points)


def _thinned(points: list[tuple[int, int, int]], candidate: Candidate) -> list[tuple[int, int, int]]:
    width = max(1, (candidate.end_ns - candidate.start_ns) // MAX_POINTS + 1)
    bins: dict[int, int] = {}
    for start, _, count in points:
        index = (start - candidate.start_ns) // width
        bins[index] = bins.get(index, 0) + count
    origin = candidate.start_ns
    return [(origin + i * width, origin + (i + 1) * width, count) for i, count in sorted(bins.items())]


def _moments_of(candidate: Candidate, clock: Clock, *, committed: bool) -> Moments:
    """Moments of a save that were observed, without `cleaned_ns`, which becomes known later."""
    if not candidate.writes:
        return Moments()
    first_ns = min(part.first_data_ns for part in candidate.parts)
    last_ns = max(part.last_data_ns(clock) for part in candidate.parts)
    synced_ns = max((at_ns for part in candidate.parts if (at_ns := part.synced_ns) is not None), default=None)
    committed_ns = _committed_ns(candidate, clock) if committed else None
    return Moments(
        first_data_ns=clock.wall(first_ns),
        last_data_ns=clock.wall(max(first_ns, last_ns)),
        synced_ns=None if synced_ns is None else clock.wall(synced_ns),
        committed_ns=None if committed_ns is None else clock.wall(committed_ns),
    )


def _committed_ns(candidate: Candidate, clock: Clock) -> int | None:
    """When the marker was complete or the last file renamed; without either, when all traced files were closed."""
    signs = [part.end_ns for part in candidate.parts if part.name.commit]
    signs += [at_ns for part in candidate.parts if (at_ns := part.renamed_ns(clock)) is not None]
    if signs:
        return max(signs)
    closed = [part.closed_ns for part in candidate.parts if part.operations is not None]  # else a sample's time
    known = [at_ns for at_ns in closed if at_ns is not None]
    return max(known) if len(known) == len(candidate.parts) else None


def _metadata_of(candidate: Candidate, world: World) -> Metadata:
    """Count calls on names: at least that many if events were lost or only polling saw the files."""
    sums = [part.operations for part in candidate.parts if part.operations is not None]
    if not sums:
        born = _born(candidate, world.clock) if candidate.writes else None
        return Metadata(created=born, at_least=born is not None)
    timed = [one.call_ns for one in sums if one.call_ns is not None]
    data_call_ns = sum(timed) if timed else None
    start_ns, end_ns = candidate.start_ns, candidate.end_ns
    lost = bool(world.health.lost(start_ns, end_ns))
    if not candidate.writes:
        return Metadata(at_least=lost, data_call_ns=data_call_ns)
    calls = world.calls
    told = {kind: calls.count(candidate.processes, kind, start_ns, end_ns) for kind in _KINDS}
    return Metadata(**told, at_least=lost or not calls.is_whole(start_ns), data_call_ns=data_call_ns)


def _born(candidate: Candidate, clock: Clock) -> int | None:
    births = {
        part.path: clock.mono(part.fact.birth_ns)
        for part in candidate.parts
        if part.fact is not None and part.fact.birth_ns is not None
    }
    if not births:
        return None
    low_ns, high_ns = candidate.start_ns - STAMP_NS, candidate.end_ns + STAMP_NS
    return sum(1 for born_ns in births.values() if low_ns <= born_ns <= high_ns)
