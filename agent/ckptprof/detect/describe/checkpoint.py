"""From a recognised candidate to the checkpoint that is stored and shown."""

from __future__ import annotations

import uuid

import msgspec

from ckptprof.detect.describe.checkpoint_measures import measure_checkpoint
from ckptprof.detect.describe.completeness import classify_ending
from ckptprof.detect.describe.connection_measures import other_namespace_limitation, summarize_sendings
from ckptprof.detect.describe.draft import Draft
from ckptprof.detect.describe.durability import (
    durability_evidence,
    estimate_durability,
    find_frailties,
    list_write_ends,
    measure_writeback,
)
from ckptprof.detect.describe.layout import HIDDEN, classify_transfer, describe_pattern, identify_engine
from ckptprof.detect.describe.limitations import list_limitations, unsettled_limitation, untracked_bytes_limitation
from ckptprof.detect.describe.overheads import find_copies, measure_amplification
from ckptprof.detect.describe.risks import find_risks
from ckptprof.detect.describe.sources import find_restore_source, refine_by_client
from ckptprof.detect.describe.stall import Stall, blocked_intervals, classify_stall
from ckptprof.detect.describe.stream_progress import sample_progress
from ckptprof.detect.describe.truncations import LIMITATIONS, find_hang, find_truncations
from ckptprof.detect.describe.writers import count_ranks, find_common_run, list_writers
from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.detection_knowledge import Knowledge
from ckptprof.detect.events.event_context import framework_of
from ckptprof.detect.events.gathering import MANY_PARTS
from ckptprof.detect.tolerances import MAX_POINTS, STAMP_TOLERANCE_NS
from ckptprof.detect.transfers.model.group import level_of, points_of
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.world.file_calls import SYNCED_ALL
from ckptprof.detect.world.host.known_folders import parent_folder
from ckptprof.detect.world.recording_clock import RecordingClock
from ckptprof.detect.world.world import World
from ckptprof.frameworks.placekeys import identify_place
from ckptprof.model import (
    HUNG,
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
    ending, truncations = classify_ending(candidate, known, is_copy=is_copy), find_truncations(candidate, known)
    status = Status.INCOMPLETE if truncations else ending.status
    path = _path(candidate, complete=status is Status.COMPLETE)
    start_ns, end_ns = clock.wall(candidate.start_ns), clock.wall(candidate.end_ns)
    kind = Kind.SAVE if candidate.writes else Kind.RESTORE
    sent = summarize_sendings(candidate.parts)
    engine = identify_engine(candidate, world)
    pattern = Pattern(class_=None) if sent is not None else describe_pattern(candidate, world.histories, engine)
    durable = estimate_durability(
        list_write_ends(candidate.parts if candidate.writes else (), clock), known.transfers.writeback
    )
    files = 0 if sent is not None else len({part.path for part in candidate.parts})
    stall = classify_stall(candidate, known)
    amplification = measure_amplification(candidate, known)
    source = find_restore_source(candidate, world.histories, world.devices.mount_of(path))
    limitations = tuple(list_limitations(candidate, pattern, files, world.health, world.starvation))
    further_limitations = (
        *untracked_bytes_limitation(candidate, world.histories, amplification.written_bytes),
        *stall.limitations,
        *(LIMITATIONS[one.name] for one in truncations),
    )
    hang = find_hang(candidate, known)
    writers = list_writers(candidate, world, stall.roles)
    draft = Draft(candidate, known, path, writers, stall, durable.at_ns, engine)
    measures = measure_checkpoint(draft)
    if candidate.writes:
        span = candidate.start_ns, candidate.end_ns
        written_back = measure_writeback(durable, path, span, world.devices, clock.wall)
        measures = msgspec.structs.replace(measures, **written_back)
    source = refine_by_client(source, candidate, measures.mount)
    settled = durable.at_ns is not None if candidate.writes else source.cache is not None
    further_limitations += (
        (HIDDEN,) * (engine is not None)
        + other_namespace_limitation(world, measures, writers)
        + world.devices.clients.limitations_of_mount(world.devices.mount_of(path))
    )
    stall_ns, spans = (None, ()) if truncations else stall.including_before_save(measures.before, candidate)
    blocked = [(clock.wall(from_ns), clock.wall(to_ns)) for from_ns, to_ns in spans]
    progress, omitted = sample_progress(candidate.parts[:MANY_PARTS], clock)
    identity = (world.header.uid, kind.value, candidate.job, candidate.step, start_ns, path)
    checkpoint = Checkpoint(
        uid=str(uuid.uuid5(uuid.NAMESPACE_URL, "|".join(map(str, identity)))),
        kind=kind,
        job=candidate.job,
        owner=next(map(world.jobs.owner, writers), None),
        framework=framework_of(candidate, known),
        step=candidate.step,
        ranks=count_ranks(candidate, world.jobs),
        start_ns=start_ns,
        end_ns=end_ns,
        durable_ns=None if durable.at_ns is None else clock.wall(durable.at_ns),
        bytes=candidate.bytes,
        files=files,
        path=None if sent is not None else path,
        sent=sent,
        run=find_common_run(candidate, world.jobs),
        clock=clock.state,
        place=None if sent is not None else _place_of_folder(candidate, path, world),
        writers=tuple(writers.values()),
        mode=stall.mode,
        stall_ns=stall_ns,
        blocked=blocked_intervals(blocked, stall_ns),
        status=status,
        moments=_moments(candidate, clock, committed=status is Status.COMPLETE),
        metadata=_metadata(candidate, world),
        written_bytes=amplification.written_bytes,
        unique_bytes=amplification.unique_bytes if candidate.writes else source.unique_bytes,
        overheads=amplification.overheads,
        storage_bytes=source.storage_bytes,
        cache=source.cache,
        pattern=pattern,
        measures=measures,
        level=level_of(candidate.parts),
        limitations=(*limitations, *(() if settled else (unsettled_limitation(candidate),)), *further_limitations),
        evidence=(
            *evidence,
            *stall.evidence,
            *ending.evidence,
            *truncations,
            *((Evidence(name=HUNG, weight=0.0, text=hang),) if hang is not None else ()),
            *find_risks(candidate, known),
            *(find_frailties(candidate, known) if status is Status.COMPLETE and not is_copy else ()),
            *durability_evidence(durable),
            *world.starvation.late_evidence,
        ),
        confidence=confidence,
        streams=tuple(
            _stream(part, known, clock, progress.get(place, ()))
            for place, part in enumerate(candidate.parts[:MANY_PARTS])
        ),
        progress_left_out=omitted,
        timeline=_timeline(candidate, known, clock),
        devices=world.devices.shares(path, candidate.start_ns, candidate.end_ns, writes=candidate.writes),
    )
    return checkpoint, (*limitations, *further_limitations), stall


def _path(candidate: Candidate, *, complete: bool) -> str:
    """Find the one file, or the folder that all share; a file that is one rank's part is represented by its folder.

    A marker may be next to that folder (`latest`) and is no part of it. After a folder was renamed, some or all files
    may have been observed under its old name only: once a save is `complete`, the folder of its step is used. A copy
    under a further name (`last.ckpt`) is not the checkpoint.
    """
    if candidate.is_sent:
        return candidate.parts[0].path
    has_step = candidate.step is not None
    copies = set(map(id, find_copies(candidate.parts))) if candidate.writes else set()
    own_parts = [part for part in candidate.parts if id(part) not in copies]
    own_parts = [part for part in own_parts if not (has_step and part.name.commit and part.name.step is None)]
    own_parts = own_parts or candidate.parts
    paths = [part.path for part in own_parts]
    if len(set(paths)) == 1 and own_parts[0].name.rank is None:
        return paths[0]
    directories = [part.name.file_directory for part in own_parts]
    is_final = complete and all(part.name.is_certain and part.name.step is not None for part in own_parts)
    if not is_final and not any(
        path.startswith(f"{directory}/") for path, directory in zip(paths, directories, strict=True)
    ):
        directories = [path.rpartition("/")[0] for path in paths]
    shared = []
    for parts in zip(*(directory.split("/") for directory in dict.fromkeys(directories)), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return "/".join(shared) or "/"


def _place_of_folder(candidate: Candidate, path: str, world: World) -> Place | None:
    """Identity of its folder by its file system; None: never inspected."""
    folder = parent_folder(path) if any(part.path == path for part in candidate.parts) else path
    facts = [part.fact for part in candidate.parts if part.fact is not None and parent_folder(part.fact.path) == folder]
    keys = {(fact.device, fact.folder_inode) for fact in facts if fact.folder_inode is not None}
    key = world.folders.key(folder, candidate.processes) if not keys else keys.pop() if len(keys) == 1 else None
    if key is None:
        return None
    mounts = world.devices.mounts_of_device(key[0])
    file_system = world.devices.clients.file_system_name(mounts[0]) if mounts else None
    return identify_place(key, folder, mounts, world.header.boot_id or world.header.host, file_system)


def _stream(part: Transfer, known: Knowledge, clock: RecordingClock, progress: tuple[Progress, ...]) -> Stream:
    sent = summarize_sendings([part])
    return Stream(
        pid=part.process[0],
        comm=known.world.jobs.comm(part.process),
        path=part.path if sent is None else sent.destinations[0].place,
        bytes=part.bytes,
        size=part.fact.size if part.fact else part.size or None,
        start_ns=clock.wall(part.start_ns),
        end_ns=clock.wall(part.end_ns),
        class_=classify_transfer(part),
        observed_by=part.observed_by,
        progress=progress,
    )


def _timeline(candidate: Candidate, known: Knowledge, clock: RecordingClock) -> tuple[Point, ...]:
    """Bytes transferred in each interval, clipped to the candidate and thinned to 600 points."""
    points = sorted(points_of(candidate.parts, known.world.histories))
    if len(points) > MAX_POINTS:
        points = _thin(points, candidate)
    return tuple(Point(clock.wall(start), clock.wall(end), count) for start, end, count in points)


def _thin(points: list[tuple[int, int, int]], candidate: Candidate) -> list[tuple[int, int, int]]:
    width = max(1, (candidate.end_ns - candidate.start_ns) // MAX_POINTS + 1)
    bins: dict[int, int] = {}
    for start, _, count in points:
        index = (start - candidate.start_ns) // width
        bins[index] = bins.get(index, 0) + count
    origin = candidate.start_ns
    return [(origin + i * width, origin + (i + 1) * width, count) for i, count in sorted(bins.items())]


def _moments(candidate: Candidate, clock: RecordingClock, *, committed: bool) -> Moments:
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


def _committed_ns(candidate: Candidate, clock: RecordingClock) -> int | None:
    """When the marker was complete or the last file renamed; without either, when all traced files were closed."""
    commit_times = [part.end_ns for part in candidate.parts if part.name.commit]
    commit_times += [at_ns for part in candidate.parts if (at_ns := part.renamed_ns(clock)) is not None]
    if commit_times:
        return max(commit_times)
    closed = [part.closed_ns for part in candidate.parts if part.operations is not None]  # else a sample's time
    closed_times = [at_ns for at_ns in closed if at_ns is not None]
    return max(closed_times) if len(closed_times) == len(candidate.parts) else None


def _metadata(candidate: Candidate, world: World) -> Metadata:
    """Count calls on names; minimums if events were lost or files were only polled."""
    sums = [part.operations for part in candidate.parts if part.operations is not None]
    if not sums:
        created = _files_created(candidate, world.clock) if candidate.writes else None
        return Metadata(created=created, at_least=created is not None)
    timed = [one.call_ns for one in sums if one.call_ns is not None]
    data_call_ns = sum(timed) if timed else None
    start_ns, end_ns = candidate.start_ns, candidate.end_ns
    is_incomplete = bool(world.health.loss_limitations(start_ns, end_ns))
    if not candidate.writes:
        return Metadata(at_least=is_incomplete, data_call_ns=data_call_ns)
    calls = world.calls
    counts = {kind: calls.count_calls(candidate.processes, kind, start_ns, end_ns) for kind in _KINDS}
    return Metadata(
        **counts,
        synced_all=calls.count_calls(candidate.processes, SYNCED_ALL, start_ns, end_ns) or None,
        at_least=is_incomplete or not calls.is_complete_since(start_ns),
        data_call_ns=data_call_ns,
    )


def _files_created(candidate: Candidate, clock: RecordingClock) -> int | None:
    births = {
        part.path: clock.mono(part.fact.birth_ns)
        for part in candidate.parts
        if part.fact is not None and part.fact.birth_ns is not None
    }
    if not births:
        return None
    low_ns, high_ns = candidate.start_ns - STAMP_TOLERANCE_NS, candidate.end_ns + STAMP_TOLERANCE_NS
    return sum(1 for birth_ns in births.values() if low_ns <= birth_ns <= high_ns)
