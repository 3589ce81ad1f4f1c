"""Counters of block requests as the programs leave them, and what becomes of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from ckptprof_collectors.ebpf.block_requests import BlockReader
from ckptprof_collectors.ebpf.layouts import BlockCounters, BlockKey
from ckptprof_collectors.ebpf.libbpf import BpfMap
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.samples import BlockActivity


@dataclass
class _Counters:
    """A map of one entry, of two processors."""

    key: BlockKey
    own: tuple[BlockCounters, BlockCounters]
    key_size: int = 8
    value_size: int = len(bytes(BlockCounters()))
    stride_bytes: int = 2 * len(bytes(BlockCounters()))

    def lookup_batch(self) -> tuple[int, bytes, bytes]:
        """Return (entries, keys, values)."""
        return 1, bytes(self.key), b"".join(map(bytes, self.own))


def _read(root: Path, counters: _Counters) -> list[BlockActivity]:
    return BlockReader(KernelFs(sys=root), cast("BpfMap", counters)).read()


@pytest.mark.parametrize(("told", "expected"), [("7 0", 0), ("0 3", 3), ("", 1), ("x y", 1), (None, 1)])
def test_the_kernel_tells_what_is_in_flight(tmp_path: Path, told: str | None, expected: int) -> None:
    """A completion that the kernel did not tell is not in flight for ever; without `inflight` it counts as it does."""
    disk = tmp_path / "dev/block/7:7"
    disk.mkdir(parents=True)
    if told is not None:
        (disk / "inflight").write_text(f"    {told}\n")
    first, second = BlockCounters(requests=2, issued=4, bytes=8192), BlockCounters(requests=1, bytes=4096)

    (seen,) = _read(tmp_path, _Counters(BlockKey(device=7 << 20 | 7, writes=1), (first, second)))

    assert (seen.requests, seen.bytes, seen.writes, seen.in_flight) == (3, 12288, True, expected)
