"""Recorded saves cloned to many nodes, with what happens on clusters planted, and what a merge has to find of it."""

from __future__ import annotations

import functools
import random
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ckptprof.cluster.model import ClusterCheckpoint, NodeRecord
from ckptprof.figures import duration_ns
from ckptprof.model import Checkpoint, Clock, Kind, Place, Run, Watched
from ckptprof.service.commands.replaying import replay

STREAMS = Path(__file__).resolve().parents[1] / "fixtures" / "streams"
SECOND = 1_000_000_000
BEGIN_NS = 1_774_000_800 * SECOND
GOOD = Clock(synchronised=True, bound_ns=10_000_000)
NOBODY_KNOWS = Clock(synchronised=False, bound_ns=None)
EVERY = 600.0  # seconds
JITTER = 0.02  # seconds, of a start; and the share by which a duration differs
HOLD_NS = 8 * SECOND  # as long as a save takes here: recorded ones are stretched to it


@functools.cache
def recorded(name: str = "fault-device-fsync-ext4") -> Checkpoint:
    """Return the last save of a capture, with its verdict and what it cost."""
    saves = [one for one in replay(STREAMS / f"{name}.ckptrec.gz", None).report.checkpoints if one.kind is Kind.SAVE]
    return saves[-1]


@dataclass
class Job:
    """A run on several nodes; each mapping is by the number of a node."""

    nodes: int = 8
    saves: int = 12
    name: str = "train"
    key: str = "slurm:alpha/8812.0"
    job_id: str = "8812"  # as its scheduler calls it
    restart: int | None = None
    begin_s: float = 0.0
    every_s: float = EVERY
    first_step: int = 100
    has_steps: bool = True
    late_s: Mapping[int, float] = field(default_factory=dict)  # a node ends so much later
    only: Mapping[int, Collection[int]] = field(default_factory=dict)  # the saves in which it does; else in all
    ahead_s: Mapping[int, float] = field(default_factory=dict)  # its clock is before the others
    drift_s: Mapping[int, float] = field(default_factory=dict)  # and so much more with each save
    clocks: Mapping[int, Clock | None] = field(default_factory=dict)
    more: Mapping[int, float] = field(default_factory=dict)  # times the bytes, in as many times the time
    lost: Mapping[int, Sequence[int]] = field(default_factory=dict)  # saves that it has no part in
    ends: Mapping[int, int] = field(default_factory=dict)  # its record ends before this save
    writers: Sequence[int] | None = None  # nodes that write; None: all
    folder: str = "shared"  # of each save; or per-node, or one for all saves
    of: Checkpoint = field(default_factory=recorded)
    slow: Checkpoint = field(default_factory=lambda: recorded("fault-network-fuse"))
    kind: Kind = Kind.SAVE
    spread_s: float = 0.0  # the ends of the nodes lie evenly within it
    run: bool = True

    def host(self, node: int) -> str:
        """Return the name of a node."""
        return f"{self.name}-node-{node}"

    def seen(self, seed: int = 1) -> tuple[list[NodeRecord], set[frozenset[str]]]:
        """Return what the databases hold, and which events are one checkpoint."""
        dice = random.Random(seed)  # noqa: S311 # no secret
        events: dict[int, list[Checkpoint]] = {node: [] for node in range(self.nodes)}
        truth = set()
        for number in range(self.saves):
            group = []
            for node in range(self.nodes) if self.writers is None else self.writers:
                if number in self.lost.get(node, ()) or number >= self.ends.get(node, self.saves):
                    continue
                group.append(self._event(node, number, dice))
                events[node].append(group[-1])
            truth.add(frozenset(one.uid for one in group))
        return [self._record(node, mine) for node, mine in events.items()], truth - {frozenset()}

    def _event(self, node: int, number: int, dice: random.Random) -> Checkpoint:
        is_late = number in self.only.get(node, range(self.saves))
        late, more = self.late_s.get(node, 0.0) if is_late else 0.0, self.more.get(node, 1.0)
        ahead_ns = round((self.ahead_s.get(node, 0.0) + number * self.drift_s.get(node, 0.0)) * SECOND)
        start_ns = (
            BEGIN_NS + round((self.begin_s + number * self.every_s + dice.uniform(0, JITTER)) * SECOND) + ahead_ns
        )
        spent_ns = round(
            HOLD_NS * more * dice.uniform(1 - JITTER, 1) + (late + self.spread_s * node / self.nodes) * SECOND
        )
        step = self.first_step + number * 100
        base = self.slow if late else self.of
        name = f"{self.name} {self.key} {self.restart} {node} {number} {self.kind}"
        inode = {"shared": step, "per-node": step * 1000 + node, "one": 7}[self.folder]
        return msgspec.structs.replace(
            base, id=number + 1, kind=self.kind, job=self.name, step=step if self.has_steps else None,
            uid=str(uuid.uuid5(uuid.NAMESPACE_OID, name)),
            start_ns=start_ns, end_ns=start_ns + spent_ns, durable_ns=None, stall_ns=spent_ns, blocked=(),
            bytes=round(self.of.bytes * more), path=f"/ckpt/{self.name}/step_{step}", ranks=8 * self.nodes,
            writers=tuple(
                msgspec.structs.replace(
                    self.of.writers[0], pid=100 + rank, rank=8 * node + rank,
                    start_ns=start_ns, end_ns=start_ns + spent_ns,
                )
                for rank in range(8)
            ),
            cost=None if base.cost is None else msgspec.structs.replace(
                base.cost, gpus=8, gpus_from="nvml", stall_seconds=spent_ns / SECOND, gpu_seconds=spent_ns * 8 / SECOND
            ),
            run=Run(key=self.key, scheduler="slurm", job=self.job_id, restart=self.restart, nodes=self.nodes, node=node)
            if self.run else None,
            place=Place(key=f"nfs:filer:/ckpt:{inode}", shared=self.folder != "per-node"),
            clock=self.clocks.get(node, GOOD),
        )  # fmt: skip

    def _record(self, node: int, events: list[Checkpoint]) -> NodeRecord:
        ahead_ns = round(self.ahead_s.get(node, 0.0) * SECOND)
        start_ns = BEGIN_NS + round((self.begin_s - 60) * SECOND) + ahead_ns
        until = self.ends.get(node, self.saves)
        end_ns = BEGIN_NS + round((self.begin_s + until * self.every_s - 60) * SECOND) + ahead_ns
        watched = Watched(start_ns=start_ns, end_ns=end_ns)
        host = self.host(node)
        return NodeRecord(database=f"{host}.db", host=host, watched=watched, checkpoints=tuple(events))


def groups(merged: Sequence[ClusterCheckpoint]) -> set[frozenset[str]]:
    """Return which events were told as one."""
    return {frozenset(part.uid for part in one.nodes) for one in merged}


def seconds(one: ClusterCheckpoint) -> float:
    """Return how long it took."""
    return duration_ns(one.whole) / SECOND
