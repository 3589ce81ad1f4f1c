"""Counters of the Lustre client for each file system: calls (llite), and requests to each target (osc, mdc).

Their place is /proc/fs/lustre up to 2.10; since 2.12 the counters are in /sys/kernel/debug/lustre, which only root may
enter, and the settings in /sys/fs/lustre (lustre/obdclass/lprocfs_status.c). Entries of one mount end in the same
hexadecimal number, as `scratch-ffff88105db50000` and `scratch-OST0000-osc-ffff88105db50000`. Only an ioctl on the mount
would show which mount that is, and it may hang: for a file system mounted twice the sum is reported.

No file stays open: there may be hundreds of targets.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ckptprof_collectors.kernelfs import (
    DEBUGFS_LIMITATION,
    KernelFs,
    parse_counter,
    read_limited,
    read_text,
    valid_counter,
)
from ckptprof_collectors.samples import ClientOperation, ClientSample, ClientTarget, MountInfo

REVIEW_SECONDS = 10.0  # file systems are mounted and unmounted
MAX_TARGETS = 256  # reported for one file system, of those in use;
MAX_READ_TARGETS = 4096  # read, for the sums
TARGETS_PER_READ = 4  # targets whose connection and settings are read in each round
_CLIENT = re.compile(r"(.+)-([0-9a-f]{8,16})")
_TARGET = re.compile(r"(.+)-((?:OST|MDT)[0-9a-f]{4})-(?:osc|mdc)-([0-9a-f]{8,16})")
_VERSION = re.compile(r"\d{1,9}\.\d{1,9}\.\d{1,9}\S*")
_CALLS = ("read", "write", "open", "close", "create", "mkdir", "rename", "unlink", "fsync", "truncate", "page_fault")
_CALLS_OF = {"reads": "read_bytes", "writes": "write_bytes"}  # number of calls with these bytes
_DATA = ("ost_read", "ost_write", "read_bytes", "write_bytes")
_SETTLED = (None, "FULL", "IDLE")  # states of a connection; None: not observed
_REQUESTS = ("ost_read", "ost_write", "ost_sync", "ost_punch")
_METADATA_REQUESTS = ("req_waittime",)  # all requests together
_BYTES = ("hybrid_read_bytes", "hybrid_write_bytes", "cached_read_bytes", "pcc_hit_bytes", "pcc_attach_bytes")
_OCCURRENCES = ("hybrid_noswitch", "hybrid_writesize_switch", "hybrid_readsize_switch", "pcc_attach", "pcc_auto_attach",
          "pcc_detach")  # fmt: skip
_SETTINGS = ("hybrid_io", "hybrid_io_write_threshold_bytes", "hybrid_io_read_threshold_bytes")
_GAUGES = {  # of a target: file and unit
    "grant_bytes": ("cur_grant_bytes", 1),
    "dirty_bytes": ("cur_dirty_bytes", 1),
    "max_dirty_bytes": ("max_dirty_mb", 1 << 20),
}

# stats (obdclass/lprocfs_status.c): name, number, unit and, for some, minimum, maximum and sum
#     req_waittime              18215581 samples [usec] 69 1348857 110282569237 8342874290406023
# A counter at zero has no line. Any write to the file resets all of them.
_UNITS = {b"[bytes]": "bytes", b"[usec]": "usec", b"[usecs]": "usec"}
_IMPORT = re.compile(rb'^ *(state|current_connection|timeouts): +"?([^"\s]+)', re.MULTILINE)
_TRANSPORTS = {
    "o2ib": "rdma",
    "kfi": "rdma",
    "gni": "rdma",
    "tcp": "tcp",
    "lo": "local",
}  # by the name of an LNet network


class StatsCounter(NamedTuple):
    """One counter."""

    times: int
    total: int | None  # in its unit; None: it has no sum, or an impossible one
    unit: str | None = None  # bytes | usec; None: another

    def total_in(self, unit: str) -> int | None:
        """Sum in this unit; None if it has another one."""
        return self.total if self.unit == unit else None


class TargetImport(NamedTuple):
    """The client's connection with one target."""

    state: str | None = None  # FULL: it works
    address: str | None = None  # of the target's current server
    transport: str | None = None
    timeouts: int | None = None


def parse_stats(data: bytes) -> dict[str, StatsCounter]:
    """Parse a `stats` file."""
    found = {}
    for line in data.split(b"\n"):
        words = line.split(None, 7)
        if len(words) < 4 or words[2] != b"samples" or (times := parse_counter(words[1])) is None:
            continue
        name = words[0].decode("ascii", "backslashreplace")
        found[name] = StatsCounter(times, parse_counter(words[6]) if len(words) > 6 else None, _UNITS.get(words[3]))
    return found


def add_counters(parts: Iterable[Mapping[str, StatsCounter]]) -> dict[str, StatsCounter]:
    """Add the counters of several clients of one file system."""
    sums: dict[str, StatsCounter] = {}
    for counts in parts:
        for name, one in counts.items():
            sums[name] = _add(sums[name], one) if name in sums else one
    return sums


def _add(one: StatsCounter, other: StatsCounter) -> StatsCounter:
    """Add two counters; without a sum if one of them has none, or is impossible."""
    times = valid_counter(one.times + other.times)
    if times is None:
        return one._replace(total=None)
    total = None if one.total is None or other.total is None else valid_counter(one.total + other.total)
    return StatsCounter(times, total, one.unit if one.unit == other.unit else None)


def parse_import(data: bytes) -> TargetImport:
    """Parse an `import` file: its NID is in quotes since 2.16, and `<none>` without a connection."""
    fields = {key.decode(): value.decode("utf-8", "backslashreplace") for key, value in _IMPORT.findall(data)}
    address, _, network = fields.get("current_connection", "").rpartition("@")
    transport = _TRANSPORTS.get(network.rstrip("0123456789"))  # o2ib1 is one of several of o2ib
    return TargetImport(
        fields.get("state"), address or None, transport, parse_counter(fields.get("timeouts", "").encode())
    )


class _LustreFile:
    """A file in one of several possible folders."""

    def __init__(self, folders: Sequence[Path], name: str) -> None:
        self._paths = [f"{folder}/{name}" for folder in folders]
        self.is_denied = False  # a folder without permission may have it

    def read(self) -> bytes | None:
        denied = False
        for path in self._paths:
            try:
                data = read_limited(path)
            except OSError as error:
                denied = denied or isinstance(error, PermissionError)
                continue
            self._paths, self.is_denied = [path], False
            return data
        self.is_denied = denied
        return None

    def read_number(self) -> int | None:
        data = self.read()
        return None if data is None else parse_counter(data.strip())


class _StatsFile(_LustreFile):
    """One `stats` file, parsed if more than its time changed."""

    def __init__(self, folders: Sequence[Path]) -> None:
        super().__init__(folders, "stats")
        self._body: bytes | None = None
        self.has_changed = False  # at the last refresh
        self.counts: dict[str, StatsCounter] | None = None  # None: not observed

    def refresh(self) -> None:
        data = self.read()
        body = None if data is None else data[data.find(b"\n") + 1 :]
        self.has_changed = body != self._body
        if self.has_changed:
            self._body, self.counts = body, None if data is None else parse_stats(data)


class _LustreTarget:
    """An OST or MDT, as one mount has it."""

    def __init__(self, name: str, folders: Sequence[Path]) -> None:
        self.name = name
        self.has_data = name.startswith("OST")
        self.stats = _StatsFile(folders)
        self.connection = TargetImport()
        self._import = _LustreFile(folders, "import")
        self._slots = _LustreFile(folders, "max_rpcs_in_flight")
        self._gauges = {name_: (_LustreFile(folders, file), unit) for name_, (file, unit) in _GAUGES.items()}
        self.refresh()
        self._timeouts = self.connection.timeouts or 0  # at the first read

    @property
    def is_used(self) -> bool:
        """It had data requests, or is an MDT: most of hundreds of OSTs have been pinged only."""
        counts = self.stats.counts
        return counts is not None and (not self.has_data or not counts.keys().isdisjoint(_DATA))

    @property
    def timeouts(self) -> int | None:
        """Requests without an answer in time since the first read."""
        now = self.connection.timeouts
        return None if now is None else max(0, now - self._timeouts)

    @property
    def is_active(self) -> bool:
        """Its connection is read each time: it had requests, or is not connected."""
        return self.stats.has_changed or self.connection.state not in _SETTLED

    def read_import(self) -> None:
        data = self._import.read()
        if data is not None:
            self.connection = parse_import(data)

    def refresh(self) -> None:
        self.read_import()
        self.slots = self._slots.read_number()
        values = {name: (file.read_number(), unit) for name, (file, unit) in self._gauges.items()}
        scaled = {name: valid_counter(value * unit) for name, (value, unit) in values.items() if value is not None}
        self.gauges = {name: value for name, value in scaled.items() if value is not None}


class _LustreClient:
    def __init__(self, folders: Sequence[Path]) -> None:
        self.stats = _StatsFile(folders)
        self.settings: dict[str, int] = {}
        self.targets: Sequence[_LustreTarget] = ()
        self._settings = {name: _LustreFile(folders, name) for name in _SETTINGS}

    def refresh(self, targets: Mapping[str, Sequence[Path]]) -> None:
        """Set its targets, and read its settings, which differ by version."""
        values = {name: file.read_number() for name, file in self._settings.items()}
        self.settings = {name: value for name, value in values.items() if value is not None}
        previous_targets = {target.name: target for target in self.targets}
        self.targets = [
            previous_targets.get(name) or _LustreTarget(name, targets[name])
            for name in sorted(targets)[:MAX_READ_TARGETS]
        ]


class LustreClients:
    """Reads all Lustre mounts of this host."""

    def __init__(self, fs: KernelFs, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._roots = (fs.sys / "kernel/debug/lustre", fs.sys / "fs/lustre", fs.proc / "fs/lustre")
        self._clock = clock
        self._clients: dict[tuple[str, str], _LustreClient] = {}  # by file system name and number
        self._devices: dict[tuple[int, int], str] = {}  # st_dev of a mount -> file system name
        self._version = ""
        self._turn = 0
        self._review_at = 0.0

    def read(self, mounts: Sequence[MountInfo]) -> Sequence[ClientSample]:
        devices = {(mount.major, mount.minor): _file_system_name(mount.source) for mount in mounts}
        now = self._clock()
        if now >= self._review_at or devices != self._devices:
            self._review_at, self._devices = now + REVIEW_SECONDS, devices
            self._review()
        targets = [target for client in self._clients.values() for target in client.targets]
        for stats in (*(client.stats for client in self._clients.values()), *(target.stats for target in targets)):
            stats.refresh()
        turn = targets[self._turn : self._turn + TARGETS_PER_READ]
        for target in turn:
            target.refresh()
        for target in targets:
            if target.is_active and target not in turn:
                target.read_import()
        self._turn = self._turn + TARGETS_PER_READ if self._turn + TARGETS_PER_READ < len(targets) else 0
        clients_by_name: dict[str, list[_LustreClient]] = {}
        for (name, _), client in self._clients.items():
            clients_by_name.setdefault(name, []).append(client)
        return [
            self._sample(device, clients_by_name[name]) for device, name in devices.items() if name in clients_by_name
        ]

    def _review(self) -> None:
        names = set(self._devices.values())
        clients = {(one[1], one[2]): folders for one, folders in self._list("llite", _CLIENT) if one[1] in names}
        targets: dict[tuple[str, str], dict[str, Sequence[Path]]] = {key: {} for key in clients}
        for one, folders in (*self._list("osc", _TARGET), *self._list("mdc", _TARGET)):
            if (one[1], one[3]) in targets:
                targets[one[1], one[3]][one[2]] = folders
        self._clients = {key: self._clients.get(key) or _LustreClient(clients[key]) for key in targets}
        for key, client in self._clients.items():
            client.refresh(targets[key])
        versions = (_VERSION.search(read_text(root / "version") or "") for root in self._roots)
        self._version = next((one[0] for one in versions if one), "")

    def _list(self, kind: str, pattern: re.Pattern[str]) -> list[tuple[re.Match[str], list[Path]]]:
        """List the entries of a kind: name, and possible folders."""
        names: set[str] = set()
        for root in self._roots:
            with suppress(OSError):
                names.update(os.listdir(root / kind))
        found = [one for name in sorted(names) if (one := pattern.fullmatch(name))]
        return [(one, [root / kind / one[0] for root in self._roots]) for one in found]

    def _sample(self, device: tuple[int, int], clients: Sequence[_LustreClient]) -> ClientSample:
        counts = _sum_counters(clients)
        every = [target for client in clients for target in client.targets]
        data, wire = (
            _sum_counters([target for target in every if target.has_data]),
            _sum_counters(every),
        )  # MDTs hold small files
        targets_by_name: dict[str, list[_LustreTarget]] = {}
        for target in every:
            if target.is_used:
                targets_by_name.setdefault(target.name, []).append(target)
        reported = sorted(targets_by_name, reverse=True)[:MAX_TARGETS]  # the OSTs before the MDTs
        stats = [*(client.stats for client in clients), *(target.stats for target in every)]
        limitations = [DEBUGFS_LIMITATION] if any(one.is_denied for one in stats) else []
        if omitted := len(targets_by_name) - len(reported):
            limitations.append(f"each of {omitted} of its {len(every)} targets")
        active = (data or {}).get("req_active", StatsCounter(0, 0))
        return ClientSample(
            *device,
            client=f"lustre {self._version}".strip(),
            transport=next((one.connection.transport for one in every if one.connection.transport), None),
            read_bytes=_bytes(counts, "read_bytes"),
            written_bytes=_bytes(counts, "write_bytes"),
            wire_read_bytes=_bytes(wire, "read_bytes"),
            wire_written_bytes=_bytes(wire, "write_bytes"),
            operations=tuple(
                ClientOperation(name, counts[name].times, total_us=counts[name].total_in("usec"))
                for name in _CALLS
                if counts is not None and name in counts
            ),
            targets=tuple(_target_sample(name, targets_by_name[name]) for name in sorted(reported)),
            sends=None if data is None else active.times,
            in_use=None if data is None else active.total,
            slots=max((one.slots for one in every if one.has_data and one.slots is not None), default=None),
            settings={**clients[0].settings, "osts": len({one.name for one in every if one.has_data})},
            counters=_counters(counts or {}),
            limitations=tuple(limitations),
        )

    def close(self) -> None:
        """Nothing is open."""


def _file_system_name(source: str) -> str:
    """Name of a file system: `10.0.0.1@o2ib:10.0.0.2@o2ib:/scratch/folder`."""
    return source.rpartition(":/")[2].partition("/")[0]


def _counters(counts: Mapping[str, StatsCounter]) -> dict[str, int]:
    totals = {name: counts[name].total_in("bytes") for name in _BYTES if name in counts}
    times = {name: counts[name].times for name in _OCCURRENCES if name in counts}
    calls = {name: counts[counter].times for name, counter in _CALLS_OF.items() if counter in counts}
    return {**{name: total for name, total in totals.items() if total is not None}, **times, **calls}


def _target_sample(name: str, parts: Sequence[_LustreTarget]) -> ClientTarget:
    counts, first = _sum_counters(parts), parts[0]
    requests = _REQUESTS if first.has_data else _METADATA_REQUESTS
    timeouts = [one.timeouts for one in parts if one.timeouts is not None]
    return ClientTarget(
        name,
        address=first.connection.address,
        state=first.connection.state,
        read_bytes=_bytes(counts, "read_bytes") if first.has_data else None,
        written_bytes=_bytes(counts, "write_bytes") if first.has_data else None,
        operations=tuple(
            ClientOperation(name, counts[name].times, server_us=counts[name].total_in("usec"))
            for name in requests
            if counts is not None and name in counts
        ),
        timeouts=valid_counter(sum(timeouts)) if timeouts else None,
        slots=first.slots,
        gauges=first.gauges,
    )


def _sum_counters(parts: Sequence[_LustreClient | _LustreTarget]) -> dict[str, StatsCounter] | None:
    """Sum of these counters; None: one of them was not readable, or there are none."""
    observed = [counts for counts in (one.stats.counts for one in parts) if counts is not None]
    return add_counters(observed) if observed and len(observed) == len(parts) else None


def _bytes(counts: Mapping[str, StatsCounter] | None, name: str) -> int | None:
    """Sum of bytes; a counter without a line is 0."""
    if counts is None:
        return None
    return counts[name].total_in("bytes") if name in counts else 0
