"""From the counters of block requests to samples.

The kernel skips a program that interrupts itself on its processor (`recursion_misses` in its fdinfo): a completion in
an interrupt during another device's, once in about 100,000. So the requests in flight are not the difference of two
counters, which would never return to 0; they are read from sysfs.
"""

from __future__ import annotations

import os
import struct

from ckptprof_collectors.ebpf.layouts import LATENCY_BUCKETS, SIZE_BUCKETS, BlockKey
from ckptprof_collectors.ebpf.libbpf import BpfMap
from ckptprof_collectors.kernelfs import KernelFs, read_once
from ckptprof_collectors.samples import BlockActivity, text

_DIRECTIONS = 2
_KEY = struct.Struct("=II")
_TOTALS = 5  # of `BlockCounters`: the fields before its two histograms
assert _KEY.size == BlockKey.writes.offset + BlockKey.writes.size  # noqa: S101 - fails on import, not in the field


class BlockReader:
    """Reads the map of the block programs; one sample for each disk and direction that did something."""

    def __init__(self, fs: KernelFs, blocks: BpfMap) -> None:
        """`blocks` is the map of the loaded object."""
        self._devices = os.fsencode(fs.sys / "dev/block")
        self._blocks = blocks
        self._counters = struct.Struct(f"={-(-blocks.value_size // 8)}Q")  # of one processor
        self._names: dict[int, str] = {}
        self._previous: dict[tuple[int, int], bytes] = {}

    def read(self) -> list[BlockActivity]:
        """Sample the disks whose counters changed; raises BpfError."""
        count, keys, values = self._blocks.lookup_batch()
        key_bytes, stride = self._blocks.key_size, self._blocks.stride_bytes
        in_flight: dict[int, list[bytes]] = {}
        found = []
        for at in range(count):
            device, writes = _KEY.unpack_from(keys, at * key_bytes)
            value = bytes(values[at * stride : (at + 1) * stride])
            if self._previous.get((device, writes)) == value:
                continue
            self._previous[device, writes] = value
            if device not in in_flight:
                in_flight[device] = self._in_flight(device)
            found.append(self._sample(device, writes, value, in_flight[device]))
        return found

    def _sample(self, device: int, writes: int, value: bytes, in_flight: list[bytes]) -> BlockActivity:
        summed = list(map(sum, zip(*self._counters.iter_unpack(value), strict=True)))
        requests, transferred_bytes, issued, issued_bytes, sequential = summed[:_TOTALS]
        sizes = summed[_TOTALS : _TOTALS + SIZE_BUCKETS]
        latencies = summed[_TOTALS + SIZE_BUCKETS : _TOTALS + SIZE_BUCKETS + LATENCY_BUCKETS]
        return BlockActivity(
            device=self._name(device),
            major=device >> 20,
            minor=device & 0xFFFFF,
            writes=bool(writes),
            requests=requests,
            bytes=transferred_bytes,
            issued_bytes=issued_bytes,
            sequential_bytes=sequential,
            in_flight=int(in_flight[writes]) if in_flight else max(0, issued - requests),
            sizes=tuple((1 << n, number) for n, number in enumerate(sizes) if number),
            latencies=tuple((1 << n, number) for n, number in enumerate(latencies) if number),
        )

    def _in_flight(self, device: int) -> list[bytes]:
        """Read the requests in flight: reads, writes (Documentation/block/stat.rst); [] if they are not shown."""
        try:
            counts = read_once(self._path(device) + b"/inflight", 64).split()
        except OSError:
            return []
        return counts if len(counts) == _DIRECTIONS and all(map(bytes.isdigit, counts)) else []

    def _name(self, device: int) -> str:
        name = self._names.get(device)
        if name is None:
            try:
                name = self._names[device] = text(os.path.basename(os.readlink(self._path(device))))
            except OSError:
                return f"{device >> 20}:{device & 0xFFFFF}"
        return name

    def _path(self, device: int) -> bytes:
        return self._devices + b"/%d:%d" % (device >> 20, device & 0xFFFFF)
