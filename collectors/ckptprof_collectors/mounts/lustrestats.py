"""The texts of the Lustre client: `stats` (obdclass/lprocfs_status.c, lprocfs_stats_seq_show) and `import`.

    snapshot_time             1510950459.787092770 secs.nsecs
    req_waittime              18215581 samples [usec] 69 1348857 110282569237 8342874290406023
    open                      136 samples [regs]

A line is a counter: its name, how often, its unit, and, of those that keep it, the least, the most and the sum. What
has not been counted yet has no line. Any write to the file begins all of them anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ckptprof_collectors.kernelfs import possible, whole

_UNITS = {b"[bytes]": "bytes", b"[usec]": "usec", b"[usecs]": "usec"}
_IMPORT = re.compile(rb'^ *(state|current_connection|timeouts): +"?([^"\s]+)', re.MULTILINE)
_MEANS = {"o2ib": "rdma", "kfi": "rdma", "gni": "rdma", "tcp": "tcp", "lo": "local"}  # by the name of an LNet network


class Count(NamedTuple):
    """One counter."""

    times: int
    total: int | None  # in its unit; None: it keeps no sum, or none that can be
    unit: str | None = None  # bytes | usec; None: another

    def of(self, unit: str) -> int | None:
        """Return the sum in this unit."""
        return self.total if self.unit == unit else None


class Import(NamedTuple):
    """The client's connection with one target."""

    state: str | None = None  # FULL: it works
    address: str | None = None  # of the server that the target is on now
    transport: str | None = None
    timeouts: int | None = None


def counts_of(data: bytes) -> dict[str, Count]:
    """Return the counters of a `stats`."""
    found = {}
    for line in data.split(b"\n"):
        words = line.split(None, 7)
        if len(words) < 4 or words[2] != b"samples" or (times := whole(words[1])) is None:
            continue
        name = words[0].decode("ascii", "backslashreplace")
        found[name] = Count(times, whole(words[6]) if len(words) > 6 else None, _UNITS.get(words[3]))
    return found


def added(parts: Iterable[Mapping[str, Count]]) -> dict[str, Count]:
    """Return what several clients of one file system counted together."""
    sums: dict[str, Count] = {}
    for counts in parts:
        for name, one in counts.items():
            sums[name] = _plus(sums[name], one) if name in sums else one
    return sums


def _plus(one: Count, other: Count) -> Count:
    """Return both together; without a sum where one of them has none, or lies."""
    times = possible(one.times + other.times)
    if times is None:
        return one._replace(total=None)
    total = None if one.total is None or other.total is None else possible(one.total + other.total)
    return Count(times, total, one.unit if one.unit == other.unit else None)


def import_of(data: bytes) -> Import:
    """Return what an `import` says: its NID is in quotes since 2.16, and `<none>` without a connection."""
    told = {key.decode(): value.decode("utf-8", "backslashreplace") for key, value in _IMPORT.findall(data)}
    address, _, network = told.get("current_connection", "").rpartition("@")
    means = _MEANS.get(network.rstrip("0123456789"))  # o2ib1 is one of several of o2ib
    return Import(told.get("state"), address or None, means, whole(told.get("timeouts", "").encode()))
