"""Declarations of counters: which fields of a sample the timeline stores, and how `/metrics` shows them.

The timeline stores each declared field in the kernel's unit; `/metrics` shows those with a metric, in base units.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

SECTOR_BYTES = 512  # always, whatever the device says (Documentation/block/stat.rst)


class Unit(Enum):
    """Unit of a field. The metrics page converts to seconds and bytes."""

    ONE = 1  # shown as it is: bytes, operations, ticks
    SECTOR = SECTOR_BYTES
    MILLISECOND = 1e3
    MICROSECOND = 1e6

    def to_base(self, value: int) -> int | float:
        """Convert a value to base units."""
        return value * self.value if isinstance(self.value, int) else value / self.value


@dataclass(frozen=True)
class CounterField:
    """One field of a sample. Without a metric it is stored, but not shown."""

    field: str
    metric: str | None = None  # its name without `ckptprof_`; as node_exporter calls it after `node_`, if it does
    text: str = ""  # one sentence, for the page and docs/metrics.md
    unit: Unit = Unit.ONE
    gauge: bool = False  # else it only grows


@dataclass(frozen=True)
class CounterGroup:
    """The counters of one kind of entity."""

    entity: str  # in the timeline: disk:vda, memory
    columns: tuple[CounterField, ...]  # in the order of the metrics page; the timeline takes that of the sample
    name: tuple[str, ...] = ()  # the fields that name the entity; none: the host has one
    collector: str | None = (
        None  # reads all entities at each read, so that no sample means unchanged; None: of processes
    )
    gone_entity: str | None = None  # its `EntityGone.entity`
    labels: tuple[str, ...] = ()  # of its series: the parts of its name between slashes
    excluded: tuple[str, ...] = ()  # fields that are not stored


class TransferFields(NamedTuple):
    """The fields with the bytes that an entity transferred."""

    inbound: str  # the host
    outbound: str
    unit_bytes: int
    busy_ms: str | None  # in which it was busy


# By `CounterGroup.entity`: the entities that transfer bytes into and out of the host
TRANSFER_FIELDS = {
    "disk": TransferFields("read_sectors", "write_sectors", SECTOR_BYTES, "io_ms"),
    "nic": TransferFields("rx_bytes", "tx_bytes", 1, None),
    "rdma": TransferFields("rx_bytes", "tx_bytes", 1, None),
}
LOOPBACK = "nic:lo"  # what it sends it receives
