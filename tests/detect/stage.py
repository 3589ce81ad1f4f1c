"""A machine made by hand: what processes do to files is declared, the frames a sampler would have seen are computed.

Times are seconds since the stage began; every quantity is a function of time, so that the truth is exact.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from tests.detect.tracer import traced

from ckptprof.detect.describe.revisions import latest_revisions
from ckptprof.detect.pipeline import Detector
from ckptprof.model import Checkpoint
from ckptprof.recording import Header
from ckptprof_collectors.samples import (
    FileFact,
    FileScan,
    Frame,
    MappedFile,
    OpenFile,
    ProcessExit,
    ProcessInfo,
    ProcessIo,
    ProcessStat,
    Sample,
)

SECOND_NS = 1_000_000_000
MIB = 1 << 20
MONOTONIC_NS = 5_000 * SECOND_NS  # of the stage's beginning
WALL_NS = 1_750_000_000 * SECOND_NS
TICKS_PER_SECOND = 100
Magic = bytes | None
TORCH_ZIP = b"PK\x03\x04" + bytes(12)
SAFETENSORS = (4096).to_bytes(8, "little") + b'{"a":{"d'
NUMPY = b"\x93NUMPY\x01\x00v\x00{'des"
_FACTS_AFTER_S = (0.4, 1.6)  # the sampler's two looks after a burst


def changed(frames: list[Frame], change: Callable[[Sample], Sample | None]) -> list[Frame]:
    """Return the frames with each sample as the function returns it, and without those for which that is None."""
    return [
        msgspec.structs.replace(
            frame, samples=tuple(new for sample in frame.samples if (new := change(sample)) is not None)
        )
        for frame in frames
    ]


@dataclass(eq=False)
class Actor:
    """A process."""

    pid: int
    info: ProcessInfo
    busy: float = 1.0  # share of a core
    exit_s: float | None = None
    born_s: float = 0.0


@dataclass(eq=False)
class Move:
    """One process moves bytes of one file in one direction, at an even rate."""

    actor: Actor
    path: str
    inode: int
    writes: bool
    start_s: float
    end_s: float
    bytes: int
    call_bytes: int
    flags: int
    layout: str
    pauses: tuple[tuple[float, float], ...]
    closed_s: float
    size_before: int
    birth_s: float
    magic: Magic
    final_path: str | None  # renamed to this at closed_s
    seen_open: bool
    from_disk: bool
    kept: float = 0.0  # memory of its process grows by this share of what it reads

    def moved(self, at_s: float) -> int:
        """Return the bytes moved by then."""
        if at_s >= self.end_s:
            return self.bytes
        if at_s <= self.start_s:
            return 0
        working = self.end_s - self.start_s - sum(high - low for low, high in self.pauses)
        done = at_s - self.start_s - sum(min(at_s, high) - low for low, high in self.pauses if low < at_s)
        return int(self.bytes * done / working)

    def position(self, at_s: float) -> int:
        """Return where the descriptor stands."""
        moved = self.moved(at_s)
        if self.layout == "pwrite":
            return 0
        if self.layout == "strided":
            return moved * 4
        if self.layout == "random" and 0 < moved < self.bytes:
            return random.Random(moved).randrange(self.bytes)  # noqa: S311 - a layout, not a secret
        if self.flags & os.O_APPEND:
            return self.size_before + moved
        return moved

    def size(self, at_s: float) -> int:
        """Return the size of the file."""
        if not self.writes:
            return self.bytes if self.layout != "part" else self.size_before
        if self.flags & os.O_APPEND:
            return self.size_before + self.moved(at_s)
        if self.layout in ("random", "strided"):
            return self.bytes * (4 if self.layout == "strided" else 1)
        return self.moved(at_s)


@dataclass(eq=False)
class Mapping:
    """A file is mapped and its pages are touched, at an even rate."""

    actor: Actor
    path: str
    inode: int
    start_s: float
    end_s: float
    bytes: int
    touched: float
    unmapped_s: float
    from_disk: bool = False

    def resident(self, at_s: float) -> int:
        """Return the bytes of its pages that are mapped."""
        if at_s >= self.unmapped_s or at_s <= self.start_s:
            return 0
        share = min(1.0, (at_s - self.start_s) / (self.end_s - self.start_s))
        return int(self.bytes * self.touched * share)

    def fetched(self, at_s: float) -> int:
        """Return the bytes of its pages that were brought in by then."""
        share = min(1.0, max(0.0, at_s - self.start_s) / (self.end_s - self.start_s))
        return int(self.bytes * self.touched * share)


@dataclass
class Stage:
    """Processes, what they do, and the frames of it."""

    hz: float = 25.0
    jitter: float = 0.0
    server_skew_s: float = 0.0  # of the clock that stamps files
    wall_jumps: tuple[tuple[float, float], ...] = ()  # (when, by how much), seconds
    births: bool = True  # whether the file system keeps the time of birth
    facts: bool = True  # whether anybody looks at the files afterwards
    trace: bool = False  # whether the trace level sees it, too
    poll: bool = True  # whether polling sees it
    described: bool = True  # whether anybody looks at the processes themselves
    faults: bool = False  # whether the trace sees page faults
    actors: list[Actor] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    mappings: list[Mapping] = field(default_factory=list)
    resets: list[tuple[float, Actor]] = field(default_factory=list)  # counters that begin anew
    extra: list[tuple[float, Sample]] = field(default_factory=list)
    looks: list[tuple[float, str]] = field(default_factory=list)  # at other collectors than that of processes
    _inode: int = 1000

    def process(self, pid: int = 100, *, busy: float = 1.0, born_s: float = 0.0, exit_s: float | None = None,
                **fields: Any) -> Actor:  # fmt: skip
        """Add a process: a trainer with PyTorch unless `fields` of its ProcessInfo say otherwise."""
        described: dict[str, Any] = {
            "pid": pid, "start_ticks": pid * 10, "parent_pid": 1, "uid": 1000, "comm": "python3",
            "program": "train.py", "runtimes": ("torch", "numpy"), "environment": {}, "cgroup": None,
        }  # fmt: skip
        actor = Actor(pid, ProcessInfo(**{**described, **fields}), busy, exit_s, born_s)
        self.actors.append(actor)
        return actor

    def write(self, actor: Actor, path: str, start_s: float, seconds: float, size: int, *, call_bytes: int = MIB,
              flags: int = os.O_WRONLY, layout: str = "sequential", pauses: Sequence[tuple[float, float]] = (),
              held_s: float = 0.0, rename_to: str | None = None, magic: bytes | None = TORCH_ZIP,
              size_before: int = 0, inode: int | None = None, seen_open: bool = True) -> Move:  # fmt: skip
        """Declare a write; `held_s` after its last byte the file is closed (and renamed)."""
        earlier = [move for move in self.moves if move.writes and (move.final_path or move.path) == path]
        if inode is None:
            inode = earlier[-1].inode if earlier and rename_to is None else self._next_inode()
        same = [move for move in earlier if move.inode == inode]
        end_s = start_s + seconds
        move = Move(
            actor=actor, path=path, inode=inode, writes=True, start_s=start_s, end_s=end_s, bytes=size,
            call_bytes=call_bytes, flags=flags, layout=layout, pauses=tuple(pauses), closed_s=end_s + held_s,
            size_before=size_before, birth_s=same[0].birth_s if same else start_s, magic=magic, final_path=rename_to,
            seen_open=seen_open, from_disk=False,
        )  # fmt: skip
        self.moves.append(move)
        return move

    def read(self, actor: Actor, path: str, start_s: float, seconds: float, size: int, *, call_bytes: int = MIB,
             layout: str = "sequential", from_disk: bool = True, inode: int | None = None,
             kept: float = 1.0) -> Move:  # fmt: skip
        """Declare a read of a whole file; as in a restore, it stays in memory unless `kept` says otherwise."""
        end_s = start_s + seconds
        move = Move(
            actor=actor, path=path, inode=inode or self._inode_of(path), writes=False, start_s=start_s, end_s=end_s,
            bytes=size, call_bytes=call_bytes, flags=os.O_RDONLY, layout=layout, pauses=(), closed_s=end_s,
            size_before=size, birth_s=-1000.0, magic=None, final_path=None, seen_open=True, from_disk=from_disk,
            kept=kept,
        )  # fmt: skip
        self.moves.append(move)
        return move

    def map(self, actor: Actor, path: str, start_s: float, seconds: float, size: int, *, touched: float = 1.0,
            unmapped_s: float | None = None, from_disk: bool = False,
            inode: int | None = None) -> Mapping:  # fmt: skip
        """Declare a restore by mmap."""
        end_s, inode = start_s + seconds, inode or self._inode_of(path)
        mapping = Mapping(actor, path, inode, start_s, end_s, size, touched, unmapped_s or end_s + 0.3, from_disk)
        self.mappings.append(mapping)
        return mapping

    def _next_inode(self) -> int:
        self._inode += 1
        return self._inode

    def _inode_of(self, path: str) -> int:
        for move in reversed(self.moves):
            if move.writes and (move.final_path or move.path) == path:
                return move.inode
        return self._next_inode()

    def header(self) -> Header:
        """Return the header of the recording."""
        return Header(
            uid="stage", host="host", boot_id="boot", kernel="6.1", ckptprof="0", level="poll", at_ns=MONOTONIC_NS,
            wall_ns=WALL_NS, ticks_per_second=TICKS_PER_SECOND, page_size=4096, monitor_pids=(1,),
        )  # fmt: skip

    def wall(self, at_s: float) -> int:
        """Return the wall clock of this host at a time of the stage."""
        return WALL_NS + int((at_s + sum(by_s for when_s, by_s in self.wall_jumps if when_s <= at_s)) * SECOND_NS)

    def stamp(self, at_s: float) -> int:
        """Return the file system's stamp for a time of the stage."""
        return self.wall(at_s) + int(self.server_skew_s * SECOND_NS)

    def frames(self, until_s: float) -> list[Frame]:
        """Return the frames from the beginning until then."""
        made: list[Frame] = []
        dice = random.Random(7)  # noqa: S311 - the same jitter in every run
        before_s, count = -1.0, 0
        last: dict[tuple[str, int, int], Sample] = {}
        while (at_s := count / self.hz) <= until_s:
            count += 1
            at_s += dice.random() * self.jitter / self.hz
            samples: list[Sample] = [sample for when_s, sample in self.extra if before_s < when_s <= at_s]
            for actor in self.actors:
                if actor.born_s <= at_s and (actor.exit_s is None or before_s < actor.exit_s):
                    samples += self._samples(actor, before_s, at_s, last)
            names = ("processes", *(name for when_s, name in self.looks if before_s < when_s <= at_s))
            made.append(Frame(MONOTONIC_NS + int(at_s * SECOND_NS), self.wall(at_s), names, tuple(samples)))
            if self.trace:
                made[-1] = msgspec.structs.replace(made[-1], samples=(*made[-1].samples, *traced(self, before_s, at_s)))
            before_s = at_s
        return made

    def _samples(
        self, actor: Actor, before_s: float, at_s: float, last: dict[tuple[str, int, int], Sample]
    ) -> list[Sample]:
        key = (actor.pid, actor.info.start_ticks)
        if actor.exit_s is not None and actor.exit_s <= at_s:
            return [ProcessExit(*key), *self._facts(actor, before_s, at_s)]
        if not self.poll:
            first = self.described and before_s < actor.born_s + 1 / self.hz <= at_s + 1 / self.hz
            return [actor.info] if first else []
        found: list[Sample] = []
        for kind, sample in (("info", actor.info), ("io", self._io(actor, at_s)), ("stat", self._stat(actor, at_s))):
            if last.get((kind, actor.pid, actor.info.start_ticks)) != sample:
                last[kind, actor.pid, actor.info.start_ticks] = sample
                found.append(sample)
        if self._scan_due(actor, at_s):
            found.append(self._scan(actor, at_s))
        return [*found, *self._facts(actor, before_s, at_s)]

    def _io(self, actor: Actor, at_s: float) -> ProcessIo:
        since_s = max((when_s for when_s, who in self.resets if who is actor and when_s <= at_s), default=None)
        counts = [0] * 6
        for move in self.moves:
            if move.actor is not actor:
                continue
            moved = move.moved(at_s) - (move.moved(since_s) if since_s is not None else 0)
            calls = -(-moved // move.call_bytes)
            at = 1 if move.writes else 0
            counts[at] += moved
            counts[2 + at] += calls
            counts[4 + at] += moved if move.writes or move.from_disk else 0
        read, written, reads, writes, from_disk, dirtied = counts
        from_disk += sum(one.fetched(at_s) for one in self.mappings if one.actor is actor and one.from_disk)
        return ProcessIo(actor.pid, actor.info.start_ticks, read, written, reads, writes, from_disk, dirtied, 0)

    def _stat(self, actor: Actor, at_s: float) -> ProcessStat:
        resident = sum(mapping.resident(at_s) for mapping in self.mappings if mapping.actor is actor)
        busy_s = at_s - sum(
            max(0.0, min(at_s, move.closed_s) - move.end_s) for move in self.moves if move.actor is actor
        )  # it waits in fsync between its last byte and the closing
        kept = sum(int(move.kept * move.moved(at_s)) for move in self.moves if move.actor is actor)
        return ProcessStat(
            pid=actor.pid, start_ticks=actor.info.start_ticks, state="R",
            user_ticks=int(busy_s * actor.busy * TICKS_PER_SECOND), system_ticks=0,
            minor_faults=0, major_faults=0, threads=1, rss_bytes=100 * MIB + resident + kept,
            rss_file_bytes=MIB + resident,
        )  # fmt: skip

    def _scan_due(self, actor: Actor, at_s: float) -> bool:
        spans = [(move.start_s, move.closed_s) for move in self.moves if move.actor is actor]
        spans += [(mapping.start_s, mapping.unmapped_s) for mapping in self.mappings if mapping.actor is actor]
        return any(start_s < at_s <= end_s + 0.4 for start_s, end_s in spans)

    def _scan(self, actor: Actor, at_s: float) -> FileScan:
        files = tuple(
            OpenFile(
                fd, 2049, move.inode, move.position(at_s), move.flags, move.size(at_s), self.stamp(at_s), move.path
            )
            for fd, move in enumerate(self.moves, 3)
            if move.actor is actor and move.start_s <= at_s < move.closed_s and move.seen_open
        )
        mapped = tuple(
            MappedFile(2049, mapping.inode, mapping.bytes, writable=False, path=mapping.path)
            for mapping in self.mappings
            if mapping.actor is actor and mapping.start_s < at_s < mapping.unmapped_s
        )
        return FileScan(actor.pid, actor.info.start_ticks, files, mapped)

    def _facts(self, actor: Actor, before_s: float, at_s: float) -> list[Sample]:
        if not self.facts or not self.poll:
            return []
        found: list[Sample] = []
        for move in self.moves:
            if move.actor is not actor or not move.writes:
                continue
            died_s = actor.exit_s if actor.exit_s is not None else 1e9
            looks = [min(move.closed_s + after_s, died_s) for after_s in _FACTS_AFTER_S]
            rewritten = any(
                other is not move and other.inode == move.inode and move.closed_s <= other.start_s <= at_s
                for other in self.moves
                if other.writes
            )
            if not rewritten and any(before_s < look_s <= at_s for look_s in looks):
                found.append(self.fact(move, min(at_s, died_s)))
        return found

    def fact(self, move: Move, at_s: float) -> FileFact:
        """Return what the file system says of a written file."""
        renamed = move.final_path is not None and at_s >= move.closed_s
        modified_s = min(move.end_s, at_s)
        return FileFact(
            pid=move.actor.pid, start_ticks=move.actor.info.start_ticks, device=2049, inode=move.inode,
            path=(move.final_path or move.path) if renamed else move.path, size=move.size(at_s), is_directory=False,
            birth_ns=self.stamp(move.birth_s) if self.births else None, modified_ns=self.stamp(modified_s),
            changed_ns=self.stamp(move.closed_s if renamed else modified_s), accessed_ns=None, magic=move.magic,
        )  # fmt: skip

    def play(self, until_s: float, **options: Any) -> list[Checkpoint]:
        """Return the checkpoints that a detector finds in the frames until then, in order of time."""
        return play(self.header(), self.frames(until_s), **options)


def play(header: Header, frames: Sequence[Frame], **options: Any) -> list[Checkpoint]:
    """Return the checkpoints of some frames, in order of time, each as it was told last."""
    detector = Detector(header, **options)
    found = [checkpoint for frame in frames for checkpoint in detector.ingest(frame)]
    found += detector.finish()
    return sorted(latest_revisions(found), key=lambda checkpoint: checkpoint.start_ns)
