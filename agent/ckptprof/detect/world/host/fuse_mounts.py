"""The daemons of FUSE mounts, their CPU time, and requests without an answer during a checkpoint."""

from __future__ import annotations

from ckptprof.detect.world.bounded import MAX_ENTRIES, Bounded
from ckptprof.detect.world.counter_history import CounterHistories, CounterHistory
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.host.devices import is_network_mount
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.spans import overlap_ns
from ckptprof.measures import MountMeasure
from ckptprof_collectors.mounts.remote_servers import fuse_program
from ckptprof_collectors.samples import FuseDaemon, FuseSample, MountInfo


class FuseMounts:
    """The daemons of FUSE mounts, their CPU time, and the requests that wait for them."""

    def __init__(self, ticks_per_second: int) -> None:
        self._ticks_per_second = ticks_per_second
        self._cpu_ticks: CounterHistories[tuple[int, int]] = CounterHistories(lambda: CounterHistory(1, rising=1))
        self._daemons: Bounded[tuple[int, int], FuseDaemon] = Bounded(MAX_ENTRIES)
        self._waiting: CounterHistories[tuple[int, int]] = CounterHistories(lambda: CounterHistory(1))

    def observe(self, at_ns: int, sample: FuseSample) -> None:
        """Ingest one sample."""
        if sample.waiting is not None:
            self._waiting.touch((sample.major, sample.minor)).add(at_ns, (sample.waiting,))

    def ingest_daemons(self, samples: FrameSamples) -> None:
        """Ingest the daemons of mounts and their CPU time."""
        for daemon in samples.by_kind(FuseDaemon):
            key = daemon.major, daemon.minor
            if key not in self._daemons or self._daemons[key].processes != daemon.processes:
                self._cpu_ticks.pop(key, None)
            self._daemons[key] = daemon
            if daemon.cpu_ticks is not None:
                self._cpu_ticks.touch(key).add(samples.at_ns, (daemon.cpu_ticks,), samples.unchanged_ns("tcp"))

    def daemon_of(self, mount: MountInfo) -> tuple[ProcessKey, ...]:
        """Find the processes that serve a mount; empty: no FUSE mount, or not found."""
        daemon = self._daemons.get((mount.major, mount.minor))
        return daemon.processes if daemon is not None else ()

    def measure(self, mount: MountInfo, start_ns: int, end_ns: int) -> MountMeasure:
        """Describe the mount, and how many requests waited in a time; each sample is valid until the next."""
        samples = self._waiting[mount.major, mount.minor].samples(start_ns, end_ns)
        spans = [
            (overlap_ns((at_ns, until_ns), [(start_ns, end_ns)]), values[0])
            for (at_ns, values), until_ns in zip(samples, [*(one[0] for one in samples[1:]), end_ns], strict=False)
        ]
        observed_ns = sum(span_ns for span_ns, _ in spans)
        awaited_ns = sum(span_ns for span_ns, waiting in spans if waiting)
        requests = sum(span_ns * waiting for span_ns, waiting in spans)
        seconds = (end_ns - start_ns) / 1e9
        used = self._cpu_ticks[mount.major, mount.minor].difference(start_ns, end_ns)
        daemon, is_remote = self._daemons.get((mount.major, mount.minor)), is_network_mount(mount)
        return MountMeasure(
            mount_point=mount.mount_point,
            fs_type=mount.fs_type,
            source=mount.source,
            remote=is_remote,
            server=mount.server,
            client=fuse_program(mount.fs_type, mount.source)
            if is_remote and mount.fs_type.startswith("fuse")
            else None,
            daemon=daemon.name if daemon is not None else None,
            daemon_pid=daemon.processes[0][0] if daemon is not None else None,
            waiting_share=awaited_ns / observed_ns if observed_ns else None,
            waiting_mean=requests / observed_ns if observed_ns else None,
            daemon_busy=used[0] / self._ticks_per_second / seconds if used is not None and seconds > 0 else None,
        )
