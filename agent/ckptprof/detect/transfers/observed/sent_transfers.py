"""What processes send over TCP to ports of object stores, with pauses between: each such stretch is a transfer.

Nothing is concluded here: signals say what speaks for a save, and what against it. A stretch is over when nothing more
of it was seen for as long as files are waited for; what the ranks of one job send at a time belongs together.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ckptprof.detect.tolerances import MAX_POINTS
from ckptprof.detect.transfers.model.movement import Movement, merged
from ckptprof.detect.transfers.model.phase import Phase
from ckptprof.detect.transfers.model.sent import SentTransfer
from ckptprof.detect.world.bounded import MAX_THINGS, Bounded
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.world import World
from ckptprof.frameworks.places import OBJECT_STORE_PORTS
from ckptprof_collectors.samples import TcpSample

_LONGEST_NS = 1_800_000_000_000  # what goes on for longer without a pause is no save, and is forgotten
_Endpoint = tuple[ProcessKey, str, int, str]  # owner, remote address and port, local address
_NO_FILE = (0, 0)


@dataclass(slots=True)
class _Stretch:
    """What one process sends to one port; it goes on."""

    before_ns: int  # the look before the first one that saw something of it
    first_ns: int  # that look
    last_ns: int  # the last one
    endpoints: dict[tuple[str, int], int] = field(default_factory=dict)  # bytes by address and port
    sockets: dict[_Endpoint, int] = field(default_factory=dict)  # at most open at once
    early: list[Movement] = field(default_factory=list)  # what the first look found
    later: list[Movement] = field(default_factory=list)

    def add(self, endpoint: _Endpoint, moved: Movement, sockets: int, at_ns: int) -> None:
        """Add what a look found to have been sent since the look before."""
        place = endpoint[1], endpoint[2]
        self.endpoints[place] = self.endpoints.get(place, 0) + moved.bytes
        self.sockets[endpoint] = max(self.sockets.get(endpoint, 0), sockets)
        (self.early if at_ns == self.first_ns else self.later).append(moved)
        if len(self.later) >= 2 * MAX_POINTS:
            self.later = [merged(*pair) for pair in zip(self.later[::2], self.later[1::2], strict=True)]
        self.last_ns = at_ns

    def begun_ns(self, end_ns: int) -> int:
        """Return when it began: what the first look found took as long as the same of what came after, or was busy."""
        start_ns = min(one.start_ns for one in self.early)
        after = sum(one.bytes for one in self.later)
        if after and end_ns > self.first_ns:
            took_ns = sum(one.bytes for one in self.early) * (end_ns - self.first_ns) // after
            start_ns = min(start_ns, self.first_ns - took_ns)
        return max(self.before_ns, start_ns)


class SentTransfers:
    """Knows what processes that train are sending, and since when."""

    def __init__(self, world: World) -> None:
        """Start with nothing."""
        self._world = world
        self._sums: Bounded[_Endpoint, tuple[int, int]] = Bounded(MAX_THINGS)  # acknowledged bytes, busy microseconds
        self._open: Bounded[tuple[ProcessKey, int], _Stretch] = Bounded(MAX_THINGS)  # by owner and port

    def take(self, samples: FrameSamples) -> None:
        """Take what a frame tells of connections."""
        before_ns = samples.unchanged_ns("tcp")
        for sample in samples.of(TcpSample):
            if sample.pid is None or sample.start_ticks is None or sample.accepted:
                continue
            if sample.port in OBJECT_STORE_PORTS:
                self._note((sample.pid, sample.start_ticks), sample, before_ns, samples.at_ns)

    def _note(self, process: ProcessKey, sample: TcpSample, before_ns: int, at_ns: int) -> None:
        endpoint = process, sample.remote, sample.port, sample.local
        known = (0, 0) if sample.is_new and before_ns else self._sums.get(endpoint)
        now = self._sums[endpoint] = sample.bytes_acked, sample.busy_us or 0
        if known is None or now[0] <= known[0]:
            return
        until_ns = min(at_ns, max(before_ns, sample.sent_ns or at_ns))
        # several connections are busy at a time: each for as long as it took, if they share the work evenly
        busy_ns = max(0, now[1] - known[1]) * 1000 // max(1, sample.sockets)
        moved = Movement(max(before_ns, until_ns - max(busy_ns, 1)), until_ns, now[0] - known[0])
        key = process, sample.port
        stretch = self._open.get(key)
        if stretch is None:
            stretch = self._open[key] = _Stretch(before_ns, at_ns, at_ns)
        stretch.add(endpoint, moved, sample.sockets, at_ns)

    def over(self, now_ns: int, quiet_ns: int) -> list[tuple[str, list[SentTransfer]]]:
        """Return what each job has sent, with the job, once nothing more of it was seen for so long."""
        by_job: dict[str, list[tuple[ProcessKey, int]]] = {}
        for process, port in self._open:
            by_job.setdefault(self._world.jobs.job_of(process), []).append((process, port))
        found = []
        for job, keys in by_job.items():
            if now_ns - max(self._open[key].last_ns for key in keys) >= quiet_ns:
                stretches = [(*key, self._open.pop(key)) for key in keys]
                found.append((job, [_transfer(*one) for one in stretches if not _is_endless(one[-1])]))
        return [(job, parts) for job, parts in found if parts]

    def oldest_ns(self, now_ns: int) -> int:
        """Return from when on something is still asked for by what goes on."""
        return min((one.before_ns for one in self._open.values() if not _is_endless(one)), default=now_ns)


def _is_endless(stretch: _Stretch) -> bool:
    return stretch.last_ns - stretch.before_ns > _LONGEST_NS


def _transfer(process: ProcessKey, port: int, stretch: _Stretch) -> SentTransfer:
    """Return a stretch that is over."""
    end_ns = max(one.end_ns for one in (*stretch.early, *stretch.later))
    start_ns = min(stretch.begun_ns(end_ns), end_ns)
    early = [one._replace(start_ns=min(start_ns, one.start_ns)) for one in stretch.early]
    return SentTransfer(
        process=process,
        file=_NO_FILE,
        writes=True,
        path=f"tcp:{port}/{start_ns}",
        first_ns=stretch.first_ns,
        last_ns=stretch.last_ns,
        before_ns=stretch.before_ns,
        closed_ns=stretch.last_ns,
        phase=Phase.OVER,
        seen_by="connections",
        start_ns=start_ns,
        end_ns=end_ns,
        bytes=sum(stretch.endpoints.values()),
        endpoints=stretch.endpoints,
        connections=sum(stretch.sockets.values()),
        points=(*early, *stretch.later),
    )
