"""A recording as two sessions would have made it: the sampler ends in the middle, and another one begins later."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import msgspec

from ckptprof.recording import Frame, Header
from ckptprof_collectors.samples import (
    DeviceInfo,
    EntityGone,
    FileActivity,
    MountInfo,
    NicInfo,
    ProcessExit,
    ProcessInfo,
    QdiscSample,
    RdmaInfo,
    ThrottleInfo,
)

# What a sampler tells once: a new one tells it again. What makes two of them the same:
_SAID_ONCE = {
    ProcessInfo: ("pid", "start_ticks"),
    MountInfo: ("mount_id",),
    DeviceInfo: ("device",),
    NicInfo: ("interface",),
    RdmaInfo: ("port",),
    QdiscSample: ("interface", "handle", "parent"),
    ThrottleInfo: ("device", "cgroup"),
}
_ENTITIES = {"device": DeviceInfo, "interface": NicInfo, "port": RdmaInfo, "mount": MountInfo}
_COUNTS = (
    "operations", "bytes", "consecutive_operations", "consecutive_bytes", "sequential_operations", "sequential_bytes",
    "large_bytes", "direct_bytes", "timed_operations", "faulted_bytes",
)  # fmt: skip


def restarted(
    header: Header, frames: Iterable[Frame], cut_ns: int, resumed_ns: int
) -> tuple[list[Frame], Header, list[Frame]]:
    """Return the frames until `cut_ns`, and the header and frames of a sampler that begins at `resumed_ns`."""
    before: list[Frame] = []
    after: list[Frame] = []
    said: dict[Hashable, object] = {}
    moved: dict[str, FileActivity] = {}
    begun = header
    for frame in frames:
        if frame.at_ns < resumed_ns:
            if frame.at_ns < cut_ns:
                before.append(frame)
            _note(frame, said, moved)
            continue
        samples = [_counted_anew(sample, moved, resumed_ns) for sample in frame.samples]
        told = tuple(sample for sample in samples if sample is not None)
        if not after:
            wall_ns = frame.wall_ns - (frame.at_ns - resumed_ns)
            begun = msgspec.structs.replace(header, uid=f"{header.uid}-again", at_ns=resumed_ns, wall_ns=wall_ns)
            told = (*said.values(), *told)
        after.append(msgspec.structs.replace(frame, samples=told))
    return before, begun, after


def _note(frame: Frame, said: dict[Hashable, object], moved: dict[str, FileActivity]) -> None:
    for sample in frame.samples:
        kind = type(sample)
        if kind in _SAID_ONCE:
            said[(kind, *(getattr(sample, name) for name in _SAID_ONCE[kind]))] = sample
        elif isinstance(sample, ProcessExit):
            said.pop((ProcessInfo, sample.pid, sample.start_ticks), None)
        elif isinstance(sample, EntityGone) and sample.entity in _ENTITIES:
            name = int(sample.name) if sample.entity == "mount" else sample.name
            said.pop((_ENTITIES[sample.entity], name), None)
        elif isinstance(sample, FileActivity):
            moved[sample.session] = sample


def _counted_anew(sample: object, moved: dict[str, FileActivity], resumed_ns: int) -> object | None:
    """Return a sample as it is without what was counted before; None: nothing is left of it."""
    if not isinstance(sample, FileActivity) or (base := moved.get(sample.session)) is None:
        return sample
    if sample.operations == base.operations and sample.bytes == base.bytes:
        return None
    had = {bound: (number, size) for bound, number, size in base.sizes}
    sizes = [
        (bound, number - had.get(bound, (0, 0))[0], size - had.get(bound, (0, 0))[1])
        for bound, number, size in sample.sizes
    ]
    timed = sample.call_ns is not None and base.call_ns is not None
    return msgspec.structs.replace(
        sample,
        **{name: max(0, getattr(sample, name) - getattr(base, name)) for name in _COUNTS},
        call_ns=sample.call_ns - base.call_ns if timed else None,
        first_ns=max(base.last_ns, min(resumed_ns, sample.last_ns)),
        first_offset=base.end_offset,
        low_offset=base.end_offset if sample.low_offset == base.low_offset else sample.low_offset,
        sizes=tuple(one for one in sizes if one[1] > 0),
    )
