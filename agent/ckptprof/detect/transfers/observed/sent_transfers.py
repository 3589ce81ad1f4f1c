"""What goes over TCP to where an object store may be, or comes from there: each stretch without a pause is a transfer.

That is a port of object stores on whatever host, and on this host any port that no process that trains serves, and no
database, broker or collector of logs is known by: who else may have another host's port, nobody knows.

Nothing is concluded here: signals say what speaks for a save or a restore, and what against it. A stretch is over when
nothing more of it was seen for as long as files are waited for; what the ranks of one job send at a time belongs
together, and so does what they receive.
What goes out to ask for much, and what comes back to say that much has come, is no part of either; but who sends
waits for the last answer, and has sent all of it then only.
Where the trace counts calls it tells of the same as the looks at the sockets, and exactly: its stretch is taken then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from ckptprof.detect.tolerances import HEADER_BYTES, LITTLE_SHARE, MAX_EACH, MAX_POINTS, MOST_SHARE, TELLING_BYTES
from ckptprof.detect.transfers.model.movement import Movement, merged
from ckptprof.detect.transfers.model.phase import Phase
from ckptprof.detect.transfers.model.sending import FURTHER, SENT, Sending
from ckptprof.detect.transfers.model.sent import SentTransfer
from ckptprof.detect.world.bounded import MAX_THINGS, Bounded
from ckptprof.detect.world.counter_history import MOST_BYTES, CounterHistories, CounterHistory
from ckptprof.detect.world.frame_samples import FrameSamples
from ckptprof.detect.world.keys import ProcessKey
from ckptprof.detect.world.world import World
from ckptprof.frameworks.places import OBJECT_STORE_PORTS, PORTS_OF_OTHERS
from ckptprof_collectors.samples import SocketTraffic, TcpSample

_LONGEST_NS = 1_800_000_000_000  # what goes on for longer without a pause is no save, and is forgotten
_MOST_COUNTED = 2048  # twice what the trace keeps: what is forgotten here would seem to begin anew at once
_Endpoint = tuple[ProcessKey, str, int, str]  # owner, remote address and port, local address
_Place = tuple[ProcessKey, int, bool]  # owner, remote port (0: any where no store is), whether it sends
_LETTERS = str.maketrans("0123456789", "abcdefghij")  # a series has one shape: numbers in it are all the same
_NO_FILE = (0, 0)
MOST_RANKS = 32  # on this host: of more processes the sampler does not see who has which socket


class _Key(NamedTuple):
    """What tells one stretch from another that goes on at the same time."""

    process: ProcessKey
    port: int
    sends: bool  # or receives
    is_counted: bool  # by the trace, call by call


@dataclass(slots=True)
class _Stretch:
    """What one process sends to one port, or receives from it; it goes on."""

    before_ns: int  # the look before the first one that saw something of it; where calls are counted the first of them
    first_ns: int  # that look
    last_ns: int  # the last one
    endpoints: dict[tuple[str, int], int] = field(default_factory=dict)  # bytes by address and port
    sockets: dict[_Endpoint, int] = field(default_factory=dict)  # at most open at once
    early: list[Movement] = field(default_factory=list)  # what the first look found
    later: list[Movement] = field(default_factory=list)
    parts: int = 0
    parts_bytes: int = 0
    returned_bytes: int = 0
    answered_ns: int = 0  # when something came back last that is as little as answers to what is sent are

    def add(self, endpoint: _Endpoint, moved: Movement, sockets: int, at_ns: int) -> None:
        """Add what a look found to have moved since the look before."""
        if self.is_endless:
            self.last_ns = at_ns
            self.early, self.later = [], []  # nobody asks for them any more
            return
        place = endpoint[1], endpoint[2]
        if place not in self.endpoints and len(self.endpoints) >= MAX_EACH:
            place = FURTHER, endpoint[2]
        if endpoint not in self.sockets and len(self.sockets) >= MAX_EACH:
            endpoint = endpoint[0], FURTHER, endpoint[2], ""
        self.endpoints[place] = self.endpoints.get(place, 0) + moved.bytes
        self.sockets[endpoint] = max(self.sockets.get(endpoint, 0), sockets)
        (self.early if at_ns == self.first_ns else self.later).append(moved)
        if len(self.later) >= 2 * MAX_POINTS:
            self._halve()
        self.last_ns = at_ns

    def answer(self, came_bytes: int, at_ns: int) -> None:
        """Take note of what came back until then."""
        if 0 < came_bytes <= HEADER_BYTES:
            self.answered_ns = max(self.answered_ns, at_ns)

    def cut(self, points: int) -> None:
        """Keep so many points of what followed the first look, or a few less: with all bytes, in longer pieces."""
        while len(self.later) > max(1, points):
            self._halve()

    def _halve(self) -> None:
        odd = self.later[len(self.later) // 2 * 2 :]
        self.later = [*(merged(*pair) for pair in zip(self.later[::2], self.later[1::2], strict=False)), *odd]

    @property
    def bytes(self) -> int:
        """All that moved."""
        return sum(self.endpoints.values())

    @property
    def is_endless(self) -> bool:
        """Whether it goes on for longer than any save."""
        return self.last_ns - self.before_ns > _LONGEST_NS

    def begun_ns(self, end_ns: int) -> int:
        """Return when it began: what the first look found took as long as the same of what came after, or was busy."""
        start_ns = min(one.start_ns for one in self.early)
        after = sum(one.bytes for one in self.later)
        if after and end_ns > self.first_ns:
            took_ns = sum(one.bytes for one in self.early) * (end_ns - self.first_ns) // after
            start_ns = min(start_ns, self.first_ns - took_ns)
        return max(self.before_ns, start_ns)


@dataclass(slots=True)
class _Counted:
    """What one frame tells that one process sent or received."""

    began_ns: int  # after the last silence of it
    bytes: int = 0

    def add(self, moved: int, began_ns: int | None) -> None:
        """Add what went over one of its connections."""
        if moved:
            self.bytes += moved
            self.began_ns = min(self.began_ns, began_ns or self.began_ns)


# of one job in one direction: by process and port, looked at and counted
_Moved = dict[tuple[ProcessKey, int], dict[_Key, _Stretch]]


class _Look(NamedTuple):
    """What the sockets of an endpoint had counted."""

    acked_bytes: int
    received_bytes: int
    busy_us: int


class SentTransfers:
    """Knows what processes that train are sending and receiving, and since when."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._looked: Bounded[_Endpoint, _Look] = Bounded(MAX_THINGS)
        self._counted: Bounded[_Endpoint, SocketTraffic] = Bounded(_MOST_COUNTED)
        self.moved: CounterHistories[_Place] = CounterHistories(lambda: CounterHistory(1, most_bytes=MOST_BYTES >> 4))
        self._open: Bounded[_Key, _Stretch] = Bounded(MAX_THINGS)
        self._served: Bounded[int, None] = Bounded(MAX_THINGS)  # ports at which processes that train are called
        self._called: Bounded[tuple[ProcessKey, str, int], None] = Bounded(MAX_THINGS)  # at other ports of this host

    @property
    def counted(self) -> int:
        """Of how many connections it is known what was counted last."""
        return len(self._counted)

    @property
    def points(self) -> int:
        """How many movements are kept of what goes on."""
        return sum(len(one.early) + len(one.later) for one in self._open.values())

    def cut(self, share: float) -> None:
        """Keep a share of the points that there may be of each stretch."""
        for one in self._open.values():
            one.cut(int(2 * share * MAX_POINTS))

    def take(self, samples: FrameSamples) -> None:
        """Take what a frame tells of connections."""
        before_ns, looks = samples.unchanged_ns("tcp"), samples.of(TcpSample)
        for look in looks:
            if look.accepted and look.pid is not None:
                self._served[look.port] = None
        for look in looks:
            if look.pid is None or look.start_ticks is None or look.accepted:
                continue
            process = look.pid, look.start_ticks
            if look.port in OBJECT_STORE_PORTS or self._may_be_store_here(process, look):
                self._note(process, look, before_ns, samples.at_ns)
        counted: dict[_Place, _Counted] = {}
        for traffic in samples.of(SocketTraffic):
            process = traffic.pid, traffic.start_ticks
            called = process, traffic.remote, traffic.port
            endpoint = process, traffic.remote, traffic.port, ""
            known = self._known(endpoint, traffic)
            self._counted[endpoint] = traffic
            is_store = traffic.port in OBJECT_STORE_PORTS or (
                called in self._called and traffic.port not in self._served
            )
            came = counted.setdefault((process, traffic.port if is_store else 0, False), _Counted(samples.at_ns))
            came.add(traffic.received_bytes - known.received_bytes, traffic.received_began_ns)
            if is_store:
                went = counted.setdefault((process, traffic.port, True), _Counted(samples.at_ns))
                went.add(traffic.sent_bytes - known.sent_bytes, traffic.began_ns)
                self._count(process, traffic, known, samples.at_ns)
        for place, moved in counted.items():
            self._note_counted(place, moved, samples.at_ns)

    def _may_be_store_here(self, process: ProcessKey, look: TcpSample) -> bool:
        """Return whether an object store may be at a port of this host: nobody who trains is."""
        if look.port in self._served or look.port in PORTS_OF_OTHERS:
            return False
        if look.remote not in {look.local, "::1"} and not look.remote.startswith("127."):
            return False
        if len(self._world.jobs.living_ranks(process)) > MOST_RANKS:
            return False
        self._called[process, look.remote, look.port] = None  # who opened a connection only looks tell
        return True

    def _note(self, process: ProcessKey, look: TcpSample, before_ns: int, at_ns: int) -> None:
        endpoint = process, look.remote, look.port, look.local
        known = _Look(0, 0, 0) if look.is_new and before_ns else self._looked.get(endpoint)
        now = self._looked[endpoint] = _Look(look.bytes_acked, look.bytes_received, look.busy_us or 0)
        if known is None:
            return
        sent, came = now.acked_bytes - known.acked_bytes, now.received_bytes - known.received_bytes
        if sent > max(0, LITTLE_SHARE * came):
            until_ns = min(at_ns, max(before_ns, look.sent_ns or at_ns))
            # several connections are busy at a time: each for as long as it took, if they share the work evenly
            busy_ns = max(0, now.busy_us - known.busy_us) * 1000 // max(1, look.sockets)
            moved = Movement(max(before_ns, until_ns - max(busy_ns, 1)), until_ns, sent)
            stretch = self._stretch(_Key(process, look.port, sends=True, is_counted=False), before_ns, at_ns)
            stretch.add(endpoint, moved, look.sockets, at_ns)
        sending = self._open.get(_Key(process, look.port, sends=True, is_counted=False))
        if sending is not None and look.received_ns is not None:
            sending.answer(came, min(at_ns, look.received_ns))
        if came > max(0, LITTLE_SHARE * sent):
            until_ns = min(at_ns, max(before_ns, look.received_ns or at_ns))
            moved = Movement(until_ns - 1, until_ns, came)  # for how long it was busy nobody says
            stretch = self._stretch(_Key(process, look.port, sends=False, is_counted=False), before_ns, at_ns)
            stretch.add(endpoint, moved, look.sockets, at_ns)

    def _known(self, endpoint: _Endpoint, traffic: SocketTraffic) -> SocketTraffic:
        """Return what was counted before; of one that is new, or gave way and begins anew, nothing."""
        known = self._counted.get(endpoint)
        if known is None or traffic.sent_bytes < known.sent_bytes or traffic.received_bytes < known.received_bytes:
            return msgspec.structs.replace(
                traffic, sent_bytes=0, received_bytes=0, parts=0, parts_bytes=0, answers=0, answers_bytes=0,
                sent_ns=None, received_ns=None,
            )  # fmt: skip
        return known

    def _note_counted(self, place: _Place, moved: _Counted, at_ns: int) -> None:
        past = self.moved.update_of(place)
        began_ns = min(moved.began_ns, at_ns - 1)
        if not past:
            past.add(began_ns, (0,))
        past.add(at_ns, (past.last[0] + moved.bytes,), began_ns)

    def counted_bytes(
        self, process: ProcessKey, start_ns: int, end_ns: int, ports: Collection[int] | None = None, *, sends: bool
    ) -> float:
        """Return what a process sent to stores, or received, between two times as its calls were counted.

        From all ports, or some.
        """
        pasts = (
            past
            for (owner, port, is_sent), past in self.moved.items()
            if owner == process and is_sent is sends and (ports is None or port in ports)
        )
        return sum(one[2][0] for past in pasts if (one := past.measured(start_ns, end_ns)) is not None)

    def _count(self, process: ProcessKey, traffic: SocketTraffic, known: SocketTraffic, at_ns: int) -> None:
        sent = (
            traffic.sent_bytes - known.sent_bytes,
            traffic.parts - known.parts,
            traffic.parts_bytes - known.parts_bytes,
        )
        came = (
            traffic.received_bytes - known.received_bytes,
            traffic.answers - known.answers,
            traffic.answers_bytes - known.answers_bytes,
        )
        sent_span = traffic.began_ns, known.sent_ns, traffic.sent_ns
        received_span = traffic.received_began_ns, known.received_ns, traffic.received_ns
        for sends, own, other, span in ((True, sent, came, sent_span), (False, came, sent, received_span)):
            key, (began_ns, known_ns, last_ns) = _Key(process, traffic.port, sends=sends, is_counted=True), span
            if own[0] > LITTLE_SHARE * other[0] and began_ns is not None and last_ns is not None:
                until_ns = min(at_ns, last_ns)
                since_ns = min(max(began_ns, known_ns or 0), until_ns - 1)
                stretch = self._stretch(key, since_ns, at_ns)
                moved = Movement(since_ns, until_ns, own[0], tid=traffic.tid)
                stretch.add((process, traffic.remote, traffic.port, ""), moved, traffic.sockets, at_ns)
                stretch.before_ns = min(stretch.before_ns, since_ns)
            if key in self._open:  # the last part is one once it was answered, the last answer once more is asked for
                stretch = self._open[key]
                stretch.parts += max(0, own[1])
                stretch.parts_bytes += max(0, own[2])
                stretch.returned_bytes += max(0, other[0])
                if sends and traffic.received_ns is not None:
                    stretch.answer(other[0], min(at_ns, traffic.received_ns))

    def _stretch(self, key: _Key, before_ns: int, at_ns: int) -> _Stretch:
        stretch = self._open.get(key)
        if stretch is None:
            stretch = self._open[key] = _Stretch(before_ns, at_ns, at_ns)
        return stretch

    def over(self, now_ns: int, quiet_ns: int) -> list[tuple[str, list[SentTransfer]]]:
        """Return what each job sent or received at a time, with the job, once no more of it was seen for so long."""
        for key in [key for key in self._open if key.port not in OBJECT_STORE_PORTS and key.port in self._served]:
            del self._open[key]  # ranks met there, and were seen to only later
        by_job: dict[tuple[str, bool], _Moved] = {}
        for key, stretch in self._open.items():
            moved = by_job.setdefault((self._world.jobs.job_of(key.process), key.sends), {})
            moved.setdefault((key.process, key.port), {})[key] = stretch
        found = []
        for (job, _), moved in by_job.items():
            keys = [key for place in _ready(moved, now_ns, quiet_ns) for key in moved[place]]
            if keys:
                found.append((job, _transfers({key: self._open.pop(key) for key in keys})))
        return [(job, parts) for job, parts in found if parts]

    def sends_since(self, since_ns: int) -> bool:
        """Return whether something goes on being sent that began then, or later, and is more than what many send."""
        later = (one for key, one in self._open.items() if key.sends and one.before_ns >= since_ns)
        return any(one.bytes >= TELLING_BYTES and not one.is_endless for one in later)

    def oldest_ns(self, now_ns: int) -> int:
        """Return from when on something is still asked for by what goes on."""
        going_on = (one.before_ns for key, one in self._open.items() if key.sends and not one.is_endless)
        return min(going_on, default=now_ns)  # a data set may come for as long as it is trained on


def _ready(moved: _Moved, now_ns: int, quiet_ns: int) -> list[tuple[ProcessKey, int]]:
    """Return which of what a job moved is over, with all of the job that began with it, or while it went on.

    What began earlier and goes on is something else, as the requests of a worker that loads data.
    """
    spans = {place: _span(stretches.values()) for place, stretches in moved.items()}
    quiet = [place for place, (_, _, last_ns) in spans.items() if now_ns - last_ns >= quiet_ns]
    busy = [
        spans[place][1]
        for place, stretches in moved.items()
        if place not in quiet and not any(one.is_endless for one in stretches.values())
    ]
    frames = {place: (before_ns - quiet_ns, last_ns) for place, (before_ns, _, last_ns) in spans.items()}
    return [place for place in quiet if not any(frames[place][0] <= begun_ns <= frames[place][1] for begun_ns in busy)]


def _span(stretches: Iterable[_Stretch]) -> tuple[int, int, int]:
    every = list(stretches)
    return min(one.before_ns for one in every), min(one.first_ns for one in every), max(one.last_ns for one in every)


def _transfers(stretches: dict[_Key, _Stretch]) -> list[SentTransfer]:
    """Return stretches that are over; of one that looks and the trace tell of, as the trace tells."""
    made = []
    for key, stretch in stretches.items():
        other = stretches.get(key._replace(is_counted=not key.is_counted))
        counted, looked = (stretch, other) if key.is_counted else (other, stretch)
        is_whole = counted is not None and (looked is None or counted.bytes >= MOST_SHARE * looked.bytes)
        if stretch.is_endless or (is_whole is not key.is_counted and other is not None):
            continue
        made.append(_transfer(key, stretch, looked))
    return made


def _transfer(key: _Key, stretch: _Stretch, looked: _Stretch | None) -> SentTransfer:
    """Return a stretch that is over; how many connections are open at once only looks at them tell."""
    moved_ns = max(one.end_ns for one in (*stretch.early, *stretch.later))
    is_known = key.is_counted or not (key.sends or stretch.later)
    start_ns = stretch.before_ns if is_known else min(stretch.begun_ns(moved_ns), moved_ns)
    early = [one._replace(start_ns=min(start_ns, one.start_ns)) for one in stretch.early]
    return SentTransfer(
        process=key.process,
        file=_NO_FILE,
        writes=key.sends,
        path=f"{SENT}{str(key.port).translate(_LETTERS)}/{start_ns}",
        first_ns=stretch.first_ns,
        last_ns=stretch.last_ns,
        before_ns=stretch.before_ns,
        closed_ns=stretch.last_ns,
        phase=Phase.OVER,
        seen_by="trace" if key.is_counted else "connections",
        start_ns=start_ns,
        end_ns=max(moved_ns, stretch.answered_ns),
        moved_ns=moved_ns,
        bytes=stretch.bytes,
        sending=Sending(
            stretch.endpoints,
            None if looked is None else sum(looked.sockets.values()) or None,
            key.is_counted,
            stretch.parts,
            stretch.parts_bytes,
            stretch.returned_bytes,
        ),
        points=(*early, *stretch.later),
    )
