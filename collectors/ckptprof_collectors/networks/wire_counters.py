"""Wire counters of network interfaces: ETHTOOL_GSTATS (include/uapi/linux/ethtool.h), which needs no privilege.

/proc/net/dev lacks traffic that bypasses the kernel: RoCE, DPDK, virtual functions. Each driver has its own names, and
about a hundred counters for each queue: only hardware interfaces whose driver has one of these names are read, while
something trains, with at most a hundredth of a core.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import socket
import struct
import time
from collections.abc import Callable, Sequence

from ckptprof_collectors.kernelfs import KernelFs, UnavailableError, list_names
from ckptprof_collectors.samples import Sample, WireSample, text

MAX_INTERFACES = 64
MIN_INTERVAL_SECONDS = 1.0  # between two reads: the driver queries the device
MAX_CPU_SHARE = 0.01  # of a core
REVIEW_SECONDS = 30.0  # between searches for interfaces, whose counters may change
_SIOCETHTOOL = 0x8946
_GSSET_INFO, _GSTRINGS, _GSTATS, _SS_STATS = 0x37, 0x1B, 0x1D, 1
_NAME_BYTES = 32
# The kernel writes all current counters, whatever length was passed: the buffer has space for all
_MAX_NUMBERS = 1 << 16
_MAX_COUNTER = 1 << 63  # above it: negative, or invalid
_NAMES: tuple[tuple[str, re.Pattern[str]], ...] = (  # mlx5, ice, i40e, bnxt_en
    ("rx_bytes", re.compile(r"rx_bytes_phy|rx_bytes\.nic|port\.rx_bytes")),
    ("tx_bytes", re.compile(r"tx_bytes_phy|tx_bytes\.nic|port\.tx_bytes")),
    (
        "rx_pauses",
        re.compile(r"rx_prio\d_pause|rx_global_pause|(?:port\.)?rx_priority_\d_xoff(?:\.nic)?|rx_pause_frames"),
    ),
    (
        "tx_pauses",
        re.compile(r"tx_prio\d_pause|tx_global_pause|(?:port\.)?tx_priority_\d_xoff(?:\.nic)?|tx_pause_frames"),
    ),
    ("rx_discards", re.compile(r"rx_discards_phy")),
    ("tx_discards", re.compile(r"tx_discards_phy")),
)
EthtoolCall = Callable[[str, mmap.mmap], None]


class _WireInterface:
    def __init__(self, name: str, count: int, places: dict[str, list[int]]) -> None:
        self.name, self.count, self.places = name, count, places
        self.previous: WireSample | None = None

    def sample(self, numbers: Sequence[int]) -> WireSample:
        sums = {field: sum(numbers[at] for at in places) for field, places in self.places.items()}
        found = {field: value for field, value in sums.items() if value < _MAX_COUNTER}
        return WireSample(self.name, *(found.get(field) for field, _ in _NAMES))


class WireReader:
    """Reports each interface whose counters changed."""

    name = "wires"

    def __init__(
        self, fs: KernelFs, *, call_ethtool: EthtoolCall | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Find the interfaces; raises UnavailableError if none has wire counters."""
        if not fs.is_live and call_ethtool is None:
            raise UnavailableError("the numbers of the wire are read by ioctl, not from files")
        self._net = fs.sys / "class" / "net"
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._call_ethtool = call_ethtool or self._ioctl
        self._buffer = mmap.mmap(-1, 64 + _MAX_NUMBERS * _NAME_BYTES)  # pages that are not touched take no memory
        self._clock = clock
        self.is_enabled = True  # False: nothing trains
        self._interfaces = self._list()
        self._next = 0.0
        self._review_at = clock() + REVIEW_SECONDS
        if not self._interfaces:
            self.close()
            raise UnavailableError("no interface whose driver counts at the wire (ethtool -S: *_phy, *.nic, port.*)")

    def read(self) -> Sequence[Sample] | None:
        """Sample what changed since the last call; None: too early, or nothing trains."""
        now = self._clock()
        if not self.is_enabled or now < self._next:
            return None
        start_cpu_seconds = time.thread_time()
        if now >= self._review_at:
            self._review_at = now + REVIEW_SECONDS
            previous = {one.name: one.previous for one in self._interfaces}
            self._interfaces = self._list()
            for one in self._interfaces:
                one.previous = previous.get(one.name)
        samples: list[Sample] = []
        for one in self._interfaces:
            numbers = self._numbers(one)
            current = None if numbers is None else one.sample(numbers)
            if current is not None and current != one.previous:
                one.previous = current
                samples.append(current)
        self._next = now + max(MIN_INTERVAL_SECONDS, (time.thread_time() - start_cpu_seconds) / MAX_CPU_SHARE)
        return samples

    def _list(self) -> list[_WireInterface]:
        hardware = [name for name in list_names(self._net) if (self._net / name / "device").exists()]
        return [found for name in hardware[:MAX_INTERFACES] if (found := self._describe(name)) is not None]

    def _describe(self, name: str) -> _WireInterface | None:
        try:
            self._buffer[:20] = struct.pack("=IIQI", _GSSET_INFO, 0, 1 << _SS_STATS, 0)
            self._call_ethtool(name, self._buffer)
            count = struct.unpack_from("=I", self._buffer, 16)[0]
            if not 0 < count <= _MAX_NUMBERS:
                return None
            self._buffer[:12] = struct.pack("=III", _GSTRINGS, _SS_STATS, count)
            self._call_ethtool(name, self._buffer)
        except OSError:
            return None
        count = min(count, struct.unpack_from("=I", self._buffer, 8)[0])
        raw = self._buffer[12 : 12 + count * _NAME_BYTES]
        words = [raw[at : at + _NAME_BYTES].partition(b"\0")[0].decode("ascii", "replace") for at in
                 range(0, len(raw), _NAME_BYTES)]  # fmt: skip
        places = {field: [at for at, word in enumerate(words) if pattern.fullmatch(word)] for field, pattern in _NAMES}
        found = {field: own for field, own in places.items() if own}
        return (
            _WireInterface(text(os.fsencode(name)), count, found) if {"rx_bytes", "tx_bytes"} <= found.keys() else None
        )

    def _numbers(self, one: _WireInterface) -> Sequence[int] | None:
        """Read the numbers of an interface; None if it is gone, or its set of numbers has changed."""
        self._buffer[:8] = struct.pack("=II", _GSTATS, one.count)
        try:
            self._call_ethtool(one.name, self._buffer)
        except OSError:
            return None
        if struct.unpack_from("=I", self._buffer, 4)[0] != one.count:
            self._review_at = 0.0
            return None
        return struct.unpack_from(f"={one.count}Q", self._buffer, 8)

    def _ioctl(self, name: str, buffer: mmap.mmap) -> None:
        """Let the kernel fill the buffer; raises OSError."""
        import ctypes  # noqa: PLC0415 - only where there is such an interface

        where = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
        fcntl.ioctl(self._socket.fileno(), _SIOCETHTOOL, struct.pack("16sP16x", os.fsencode(name)[:15], where))

    def close(self) -> None:
        self._socket.close()
        self._buffer.close()
