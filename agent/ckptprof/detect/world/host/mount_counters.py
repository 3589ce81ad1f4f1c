"""The mount that a checkpoint is on: whether a server is behind it, and how much of the time that was awaited."""

from __future__ import annotations

from ckptprof.detect.world.bounded import MAX_THINGS, Bounded
from ckptprof.detect.world.counter_history import CounterHistory
from ckptprof.detect.world.spans import overlap_ns
from ckptprof.frameworks.places import NETWORKED, NETWORKED_DAEMONS, SOURCE_ELSEWHERE
from ckptprof.measures import MountMeasure
from ckptprof_collectors.mounts.remotefs import is_remote
from ckptprof_collectors.samples import FuseSample, MountInfo


def is_elsewhere(mount: MountInfo) -> bool:
    """Return whether a server is behind a mount; of a FUSE its daemon or its source has to say so."""
    if mount.server is not None or is_remote(mount.fs_type) or mount.fs_type in NETWORKED:
        return True
    if mount.device is not None or not mount.fs_type.startswith("fuse"):
        return False
    daemon, source = mount.fs_type.partition(".")[2].lower(), mount.source
    known = any(daemon.startswith(name) or source.lower().startswith(name) for name in NETWORKED_DAEMONS)
    return known or bool(SOURCE_ELSEWHERE.match(source))


class FuseMounts:
    """How many requests of FUSE connections had no answer yet."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._waiting: Bounded[tuple[int, int], CounterHistory] = Bounded(MAX_THINGS)

    def observe(self, at_ns: int, sample: FuseSample) -> None:
        """Take one look."""
        if sample.waiting is not None:
            past = self._waiting.update_of((sample.major, sample.minor), lambda: CounterHistory(1))
            past.add(at_ns, (sample.waiting,))

    def measure(self, mount: MountInfo, start_ns: int, end_ns: int) -> MountMeasure:
        """Return the mount, and how many requests waited from one time to another; each look holds until the next."""
        past = self._waiting.get((mount.major, mount.minor))
        looks = past.looks(start_ns, end_ns) if past is not None else []
        spans = [
            (overlap_ns((at_ns, until_ns), [(start_ns, end_ns)]), values[0])
            for (at_ns, values), until_ns in zip(looks, [*(one[0] for one in looks[1:]), end_ns], strict=False)
        ]
        seen_ns = sum(span_ns for span_ns, _ in spans)
        awaited_ns = sum(span_ns for span_ns, waiting in spans if waiting)
        requests = sum(span_ns * waiting for span_ns, waiting in spans)
        return MountMeasure(
            mount_point=mount.mount_point,
            fs_type=mount.fs_type,
            source=mount.source,
            remote=is_elsewhere(mount),
            server=mount.server,
            waiting_share=awaited_ns / seen_ns if seen_ns else None,
            waiting_mean=requests / seen_ns if seen_ns else None,
        )
