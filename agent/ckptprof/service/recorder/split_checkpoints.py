"""Joins the two parts of a save into one event where recording was interrupted during the save."""

from __future__ import annotations

import itertools
import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from ckptprof.detect.describe.stream_progress import MAX_POINTS
from ckptprof.detect.describe.truncations import LIMITATIONS
from ckptprof.detect.tolerances import MAX_PER_ITEM, PATIENCE_NS
from ckptprof.detect.transfers.model.thinning import thin_points
from ckptprof.model import (
    CUT_AT_END,
    CUT_AT_START,
    CUT_BETWEEN,
    HUNG,
    Checkpoint,
    Evidence,
    Level,
    Metadata,
    Status,
    Stream,
    Writer,
)

_DURABILITY_PREFIX = "when it became durable"


class SplitCheckpoints:
    """Saves truncated by the end of a session; their continuations are reported as revisions of them."""

    def __init__(self, cut: Iterable[Checkpoint] = ()) -> None:
        """`cut`: those of the previous session, complete with streams."""
        self._truncated = {one.uid: one for one in cut}
        self._joined: dict[str, Checkpoint] = {}  # the uid of a second part -> the first

    def join_parts(self, checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
        """Return these, continuations joined with their first part."""
        return [self._joined_with_first(checkpoint) for checkpoint in checkpoints]

    def _joined_with_first(self, checkpoint: Checkpoint) -> Checkpoint:
        first = self._joined.get(checkpoint.uid) or self._find_first(checkpoint)
        if first is not None:
            self._joined[checkpoint.uid] = first
            self._truncated.pop(first.uid, None)
            checkpoint = join_checkpoints(first, checkpoint)
        if CUT_AT_END in checkpoint.cuts:
            self._truncated[checkpoint.uid] = checkpoint
        for bounded in (self._truncated, self._joined):
            if len(bounded) > MAX_PER_ITEM:
                del bounded[next(iter(bounded))]
        return checkpoint

    def _find_first(self, checkpoint: Checkpoint) -> Checkpoint | None:
        return next((one for one in self._truncated.values() if _is_continuation(one, checkpoint)), None)


def _is_continuation(first: Checkpoint, second: Checkpoint) -> bool:
    """Whether the second can be the rest of the first: the same files, or others of the same step."""
    if first.uid == second.uid or (first.kind, _job_root(first)) != (second.kind, _job_root(second)):
        return False
    same_step = first.step is not None and first.step == second.step
    if not same_step and None not in (first.step, second.step):
        return False
    if not first.start_ns < second.end_ns or second.start_ns - first.end_ns > PATIENCE_NS:
        return False
    files, others = ({stream.path for stream in one.streams} for one in (first, second))
    folders = {_largest_file_folder(one) for one in (first, second)}
    return not files.isdisjoint(others) or ((same_step or CUT_AT_START in second.cuts) and len(folders) == 1)


def _job_root(checkpoint: Checkpoint) -> str:
    """Root of its job name; a session may not know the rendezvous of the ranks."""
    return checkpoint.job.partition(":")[0]


def _largest_file_folder(checkpoint: Checkpoint) -> str:
    largest = max(checkpoint.streams, key=lambda stream: stream.bytes, default=None)
    return posixpath.dirname(largest.path if largest is not None else checkpoint.path or "")


def join_checkpoints(first: Checkpoint, second: Checkpoint) -> Checkpoint:
    """Return both as one; bytes transferred between the sessions are missing, so its bytes are a minimum."""
    gap_seconds = max(0, second.start_ns - first.end_ns) / 1e9
    streams = _joined_streams(first, second)
    transferred = Counter[str]()
    for stream in streams:
        transferred[stream.path] += stream.bytes
    moments = msgspec.structs.replace(second.moments, first_data_ns=first.moments.first_data_ns)
    text = f"observed in two parts, {gap_seconds:.1f} s apart: ckptprof or its sampler was restarted in between"
    limitation = f"its writes during {gap_seconds:.1f} s: ckptprof or its sampler was restarted"
    larger = max(first, second, key=lambda one: one.bytes)
    own = [one for one in first.evidence if one.name not in (CUT_AT_END, CUT_BETWEEN, HUNG, "incomplete", "mode")]
    names = {one.name for one in own}
    more = [one for one in second.evidence if one.name != CUT_AT_START and one.name not in names]
    return msgspec.structs.replace(
        second,
        id=0,
        uid=first.uid,
        job=first.job,
        step=second.step if first.step is None else first.step,
        revision=first.revision + second.revision + 1,
        framework=first.framework or second.framework,
        ranks=max(filter(None, (first.ranks, second.ranks)), default=None),
        start_ns=min(first.start_ns, second.start_ns),
        end_ns=max(first.end_ns, second.end_ns),
        bytes=max(sum(transferred.values()), first.bytes, second.bytes),
        files=max(len(transferred), first.files, second.files),
        path=_common_path(first.path, second.path),
        writers=_joined_writers(first, second),
        mode=first.mode if first.mode is second.mode else None,
        stall_ns=None,
        blocked=(),
        status=Status.INCOMPLETE,
        moments=moments,
        metadata=Metadata(),
        written_bytes=None,
        unique_bytes=None,
        overheads=(),
        pattern=larger.pattern,
        measures=None,
        verdict=None,
        cost=None,
        level=first.level if first.level is second.level else Level.POLL,
        limitations=(*_limitations(first, second), limitation),
        evidence=(*own, *more, Evidence(name=CUT_BETWEEN, weight=0.0, text=text)),
        confidence=max(first.confidence, second.confidence),
        streams=streams,
        progress_left_out=max(first.progress_left_out, second.progress_left_out),
        timeline=tuple(sorted((*first.timeline, *second.timeline), key=lambda point: point.start_ns)),
        devices=(),
    )


def _limitations(first: Checkpoint, second: Checkpoint) -> Iterator[str]:
    for sentence in first.limitations:
        is_of_end = sentence in LIMITATIONS.values() or sentence.startswith(_DURABILITY_PREFIX)
        if not is_of_end and sentence not in second.limitations:
            yield sentence
    yield from (sentence for sentence in second.limitations if sentence != LIMITATIONS[CUT_AT_START])


def _common_path(one: str | None, other: str | None) -> str | None:
    if one is None or other is None or one == other:
        return one or other
    return posixpath.commonpath([one, other])


def _joined_streams(first: Checkpoint, second: Checkpoint) -> tuple[Stream, ...]:
    found: dict[tuple[int, str], Stream] = {}
    for stream in (*first.streams, *second.streams):
        earlier = found.get((stream.pid, stream.path))
        if earlier is not None:
            sizes = [size for size in (earlier.size, stream.size) if size is not None]
            size = max(sizes, default=None)
            transferred = earlier.bytes + stream.bytes
            max_bytes = max(earlier.bytes, stream.bytes, size or transferred)  # polling also counts earlier bytes
            stream = msgspec.structs.replace(  # noqa: PLW2901 - both as one
                stream,
                bytes=min(transferred, max_bytes),
                size=size,
                start_ns=earlier.start_ns,
                progress=tuple(thin_points((*earlier.progress, *stream.progress), MAX_POINTS)),
            )
        found[stream.pid, stream.path] = stream
    return tuple(found.values())


def _joined_writers(first: Checkpoint, second: Checkpoint) -> tuple[Writer, ...]:
    found: dict[int, Writer] = {}
    for writer in itertools.chain(first.writers, second.writers):
        earlier = found.get(writer.pid)
        found[writer.pid] = writer if earlier is None else msgspec.structs.replace(
            writer, bytes=earlier.bytes + writer.bytes, start_ns=earlier.start_ns
        )  # fmt: skip
    return tuple(sorted(found.values(), key=lambda writer: -writer.bytes))
