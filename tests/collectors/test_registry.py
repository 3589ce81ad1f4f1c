"""The list of collectors of the whole host."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.registry import COLLECTORS, make_collectors
from ckptprof_collectors.samples import Frame


def test_every_collector_is_made_or_its_lack_is_named() -> None:
    """On the live machine each collector is either there or unavailable with a reason."""
    collectors, unavailable = make_collectors(KernelFs())
    for collector in collectors:
        collector.close()
    made, lacking = {collector.name for collector in collectors}, {missing.collector for missing in unavailable}

    assert made | lacking == {name for name, _ in COLLECTORS}
    assert not made & lacking
    assert all(missing.reason for missing in unavailable)


def test_nothing_there_means_everything_unavailable(tmp_path: Path) -> None:
    """On an empty tree no collector is made and none fails in another way."""
    collectors, unavailable = make_collectors(KernelFs(proc=tmp_path, sys=tmp_path, dev=tmp_path))

    assert collectors == []
    assert [missing.collector for missing in unavailable] == [name for name, _ in COLLECTORS]


def test_live_samples_survive_the_pipe() -> None:
    """Everything that this machine reports can be encoded and comes back equal."""
    collectors, _ = make_collectors(KernelFs())
    samples = tuple(sample for collector in collectors for sample in collector.read() or ())
    for collector in collectors:
        collector.close()
    frame = Frame(at_ns=1, wall_ns=2, read=("disks",), samples=samples)

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(frame), type=Frame) == frame
    assert len(samples) > len(collectors)
