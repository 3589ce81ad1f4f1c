"""Network interfaces: counters from /proc/net/dev, links from psutil, the rest from /sys/class/net.

Which interface counts (`countable`), so that a sum counts no byte twice: one with hardware behind it (PCI, virtio, Xen,
USB: sysfs has `device`) and nothing below it (`lower_*`), as the bytes of a bond, vlan, bridge, team or failover pair
pass through one. Representors of SR-IOV functions do not count: the function does. Where no interface has hardware, as
in a container, those count whose other end is outside this network namespace (veth, macvlan, ipvlan).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from ckptprof_collectors.kernelfs import KernelFile, KernelFs, UnavailableError, list_names, read_int, read_text
from ckptprof_collectors.linetable import LineTable
from ckptprof_collectors.samples import EntityGone, NicInfo, NicSample, Sample, text

REVIEW_SECONDS = 10.0  # between reads of speed and carrier, which query the driver
_FIELDS = 16  # eight received, eight sent
_REPRESENTOR = re.compile(r"(?:c\d+)?pf\d+[vs]f\d+")  # phys_port_name, drivers of switchdev


_Link = tuple[int | None, int | None]  # speed in Mbit/s (0 or less: not known), carrier


def parse_name(line: bytes) -> bytes | None:
    """Raw name in a line of /proc/net/dev; None for its header or its end."""
    name, colon, _ = line.rpartition(b":")  # numbers have no colon; names should have none
    return name.lstrip(b" ") or None if colon else None


def parse_line(line: bytes) -> NicSample | None:
    """Parse a line of /proc/net/dev; None if it is malformed."""
    name, _, rest = line.rpartition(b":")
    fields = rest.split()
    if not name or len(fields) < _FIELDS:
        return None
    try:
        return NicSample(text(name.lstrip(b" ")), *map(int, fields[:4]), *map(int, fields[8:12]))
    except ValueError:
        return None


class NicReader:
    """Reports the line of each interface that changed, and each interface when first seen, changed or gone."""

    name = "nics"

    def __init__(self, fs: KernelFs, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Open /proc/net/dev of the agent's own network namespace; raises UnavailableError."""
        self._net = fs.sys / "class" / "net"
        self._is_live = fs.is_live
        self._clock = clock
        try:
            self._file = KernelFile(fs.proc / "self" / "net" / "dev")  # /proc/net is a link to self/net
        except OSError as error:
            raise UnavailableError(f"/proc/net/dev: {error.strerror}") from error
        self._table = LineTable(parse_name)
        self._infos: dict[bytes, NicInfo] = {}
        self._review_at = clock() + REVIEW_SECONDS

    def read(self) -> Sequence[Sample]:
        table = self._table
        samples = table.samples(self._file.read(), parse_line)
        now = self._clock()
        if table.arrived or table.departed:
            return [*self._relist(), *samples]
        if now >= self._review_at:
            self._review_at = now + REVIEW_SECONDS
            return [*self._describe({name for name, info in self._infos.items() if info.is_countable}), *samples]
        return samples

    def _relist(self) -> list[Sample]:
        samples: list[Sample] = [
            EntityGone("interface", info.interface)
            for name in self._table.departed
            if (info := self._infos.pop(name, None)) is not None
        ]
        return samples + self._describe(set(self._table.lines_by_name))

    def _describe(self, names: set[bytes]) -> list[Sample]:
        countable, links = self._countable(), self._links()
        samples: list[Sample] = []
        for name in sorted(names):
            info = self._info(name, links.get(os.fsdecode(name)), countable=name in countable)
            if info != self._infos.get(name):
                self._infos[name] = info
                samples.append(info)
        return samples

    def _countable(self) -> set[bytes]:
        names = self._table.lines_by_name.keys()
        bottom = {name for name in names if not any(one.startswith("lower_") for one in list_names(self._folder(name)))}
        hardware = {name for name in names if (self._folder(name) / "device").exists()}
        if hardware:
            return {
                name
                for name in bottom & hardware
                if not _REPRESENTOR.fullmatch(read_text(self._folder(name) / "phys_port_name") or "")
            }
        here = {read_int(self._folder(name) / "ifindex") for name in names}
        links = {name: read_int(self._folder(name) / "iflink") for name in bottom}
        return {name for name, link in links.items() if link and link not in here}  # 0: a tunnel without an end

    def _info(self, name: bytes, link: _Link | None, *, countable: bool) -> NicInfo:
        folder = self._folder(name)
        try:
            driver = text(os.fsencode(os.readlink(folder / "device" / "driver").rpartition("/")[2]))
        except OSError:
            driver = None
        if link is None:
            link = read_int(folder / "speed"), read_int(folder / "carrier")  # EINVAL: not known, or the link is down
        megabits, carrier = link
        return NicInfo(
            interface=text(name),
            speed_bits_per_second=megabits * 1_000_000 if megabits is not None and megabits > 0 else None,
            carrier=None if carrier is None else bool(carrier),
            driver=driver,
            is_countable=countable,
        )

    def _links(self) -> dict[str, _Link]:
        """Link state of all interfaces by psutil; none in a test tree, or if a name is no UTF-8."""
        try:
            links = psutil.net_if_stats() if self._is_live else {}
        except (OSError, UnicodeError):
            return {}
        return {
            name: (link.speed, link.isup if "up" in link.flags.split(",") else None) for name, link in links.items()
        }

    def _folder(self, name: bytes) -> Path:
        return self._net / os.fsdecode(name)

    def close(self) -> None:
        self._file.close()
