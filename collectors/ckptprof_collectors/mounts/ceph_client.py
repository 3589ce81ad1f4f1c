"""Counters of the kernel's CephFS client: /sys/kernel/debug/ceph/FSID.clientID/metrics (fs/ceph/debugfs.c, 5.16).

    item          total       avg_lat(us)     min_lat(us)     max_lat(us)     stdev(us)
    write         7           12040           9120            18003           2833

`osdc` has a line for each request without an answer, with the OSD that it waits for. Only root may enter debugfs.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from ckptprof_collectors.kernelfs import DEBUGFS_LIMITATION, KernelFs, parse_counter, read_limited, valid_counter
from ckptprof_collectors.samples import ClientOperation, ClientSample, ClientTarget, MountInfo

MAX_TARGETS = 256
_KINDS = (b"read", b"write", b"metadata", b"copyfrom")
_WAITING = re.compile(rb"^\d+\tosd(\d{1,9})\t", re.MULTILINE)
_FSID = re.compile(r"@([0-9a-f-]{36})\.")  # of a source since 5.16: user@fsid.name=/path
_LIMITATIONS = ("bytes of each OSD: the client only counts their sum",)


class CephClients:
    """Reads the CephFS mounts whose client is known."""

    def __init__(self, fs: KernelFs) -> None:
        """Open nothing."""
        self._root = fs.sys / "kernel/debug/ceph"
        self._total_us: dict[
            tuple[int, int], dict[bytes, tuple[int, int]]
        ] = {}  # kind -> (number of requests, microseconds)

    def read(self, mounts: Sequence[MountInfo]) -> Sequence[ClientSample]:
        """Sample the counters of these mounts."""
        sources = {(mount.major, mount.minor): mount.source for mount in mounts}
        try:
            names = [name for name in sorted(os.listdir(self._root)) if self._is_mount(name)]
        except PermissionError:
            return [ClientSample(*device, client="ceph", limitations=(DEBUGFS_LIMITATION,)) for device in sources]
        except OSError:
            return []
        self._total_us = {device: spent for device, spent in self._total_us.items() if device in sources}
        found = []
        for device, source in sources.items():
            fsid = _FSID.search(source)
            client_names = names if fsid is None else [name for name in names if name.startswith(f"{fsid[1]}.client")]
            if len(client_names) == 1 and (fsid is not None or len(sources) == 1):
                found.append(self._sample(device, self._root / client_names[0]))
        return found

    def _is_mount(self, name: str) -> bool:
        """Test whether a client mounts CephFS: rbd clients exist as well, without an MDS session."""
        return ".client" in name and (self._root / name / "mdsc").exists()

    def _sample(self, device: tuple[int, int], folder: Path) -> ClientSample:
        try:
            latency, sizes = _table(folder / "metrics/latency"), _table(folder / "metrics/size")
            waiting = Counter(_WAITING.findall(_text(folder / "osdc")))
        except PermissionError:  # a folder may be listed whose files are closed, by a lockdown
            return ClientSample(*device, client="ceph", limitations=(DEBUGFS_LIMITATION,))
        busiest = sorted(waiting.items(), key=lambda pair: -pair[1])[:MAX_TARGETS]
        return ClientSample(
            *device,
            client="ceph",
            transport="tcp",
            wire_read_bytes=_column(sizes.get(b"read"), 4),
            wire_written_bytes=_column(sizes.get(b"write"), 4),
            operations=tuple(one for kind in _KINDS if (one := self._operation(device, kind, latency)) is not None),
            targets=tuple(ClientTarget(f"osd{int(osd)}", in_flight=count) for osd, count in sorted(busiest)),
            limitations=_LIMITATIONS,
        )

    def _operation(
        self, device: tuple[int, int], kind: bytes, latency: Mapping[bytes, Sequence[bytes]]
    ) -> ClientOperation | None:
        """Sum up requests of a kind. The kernel rounds the mean time to microseconds: the sum must not decrease."""
        count, mean_us = (_column(latency.get(kind), column) for column in (0, 1))
        total_us = None if not count or mean_us is None else valid_counter(count * mean_us)
        if not count or total_us is None:
            return None
        totals = self._total_us.setdefault(device, {})
        before, spent = totals.get(kind, (0, 0))
        spent = total_us if count < before else max(spent, total_us)
        totals[kind] = count, spent
        return ClientOperation(kind.decode(), count, server_us=spent)

    def close(self) -> None:
        """Nothing is open."""


def _text(path: Path) -> bytes:
    try:
        return read_limited(path)
    except PermissionError:
        raise
    except OSError:
        return b""


def _table(path: Path) -> dict[bytes, Sequence[bytes]]:
    """Parse rows into columns; raises PermissionError."""
    rows = (line.split() for line in _text(path).split(b"\n"))
    return {row[0]: row[1:] for row in rows if len(row) > 2}


def _column(row: Sequence[bytes] | None, at: int) -> int | None:
    return None if row is None or len(row) <= at else parse_counter(row[at])
