"""From the counters of block requests to samples.

A program that interrupts itself on its processor is left out by the kernel (`recursion_misses` in its fdinfo): a
completion in an interrupt that meets another device's, once in about 100,000. So what is in flight is not the
difference of two counters, which would never come back to 0; the kernel itself tells it.
"""

from __future__ import annotations

import os

from ckptprof_collectors.ebpf.layouts import LATENCY_BUCKETS, SIZE_BUCKETS, Block, BlockKey
from ckptprof_collectors.ebpf.libbpf import Map
from ckptprof_collectors.kernelfs import KernelFs, read_text
from ckptprof_collectors.samples import BlockActivity, text

_DIRECTIONS = 2


class BlockReader:
    """Reads the map of the block programs; one sample for each disk and direction that did something."""

    def __init__(self, fs: KernelFs, blocks: Map) -> None:
        """`blocks` is the map of the loaded object."""
        self._fs = fs
        self._blocks = blocks
        self._names: dict[tuple[int, int], str] = {}
        self._seen: dict[tuple[int, int], bytes] = {}

    def read(self) -> list[BlockActivity]:
        """Return the disks whose counters changed; raises BpfError."""
        count, keys, values = self._blocks.lookup_batch()
        stride = self._blocks.stride_bytes
        found = []
        for at in range(count):
            key = BlockKey.from_buffer_copy(keys[at * self._blocks.key_size :])
            value = bytes(values[at * stride : (at + 1) * stride])
            if self._seen.get((key.device, key.writes)) == value:
                continue
            self._seen[key.device, key.writes] = value
            found.append(self._sample(key, value))
        return found

    def _sample(self, key: BlockKey, value: bytes) -> BlockActivity:
        step = -(-self._blocks.value_size // 8) * 8
        every = [Block.from_buffer_copy(value, start) for start in range(0, len(value), step)]
        major, minor = key.device >> 20, key.device & 0xFFFFF
        requests, issued = sum(own.requests for own in every), sum(own.issued for own in every)
        sizes = [sum(own.sizes[n] for own in every) for n in range(SIZE_BUCKETS)]
        latencies = [sum(own.latencies[n] for own in every) for n in range(LATENCY_BUCKETS)]
        return BlockActivity(
            device=self._name(major, minor),
            major=major,
            minor=minor,
            writes=bool(key.writes),
            requests=requests,
            bytes=sum(own.bytes for own in every),
            issued_bytes=sum(own.issued_bytes for own in every),
            sequential_bytes=sum(own.sequential_bytes for own in every),
            in_flight=self._in_flight(major, minor, writes=bool(key.writes), otherwise=max(0, issued - requests)),
            sizes=tuple((1 << n, number) for n, number in enumerate(sizes) if number),
            latencies=tuple((1 << n, number) for n, number in enumerate(latencies) if number),
        )

    def _in_flight(self, major: int, minor: int, *, writes: bool, otherwise: int) -> int:
        """Return how many requests a disk has now, of its `inflight`: reads, writes (Documentation/block/stat.rst)."""
        told = (read_text(self._fs.sys / f"dev/block/{major}:{minor}/inflight") or "").split()
        return int(told[writes]) if len(told) == _DIRECTIONS and told[writes].isdecimal() else otherwise

    def _name(self, major: int, minor: int) -> str:
        known = self._names.get((major, minor))
        if known is None:
            try:
                known = text(os.path.basename(os.readlink(os.fsencode(self._fs.sys / f"dev/block/{major}:{minor}"))))
            except OSError:
                return f"{major}:{minor}"
            self._names[major, minor] = known
        return known
