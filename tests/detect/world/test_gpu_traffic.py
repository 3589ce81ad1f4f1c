"""What GPUs sent over PCIe is told of a time by the looks around it."""

from __future__ import annotations

from tests.detect.observed import frame

from ckptprof.detect.world.host.gpu_traffic import GpuTraffic
from ckptprof_collectors.samples import GpuUse

SECOND = 1_000_000_000
MIB = 1 << 20
RANK, OTHER = (100, 1000), (101, 1010)


def use(pid: int, gpu: int, sent: int | None) -> GpuUse:
    """Return a look at a GPU on which a process computes."""
    return GpuUse(pid, pid * 10, gpu, (), 0, sent, None if sent is None else 1)


def looked(*looks: tuple[int, GpuUse]) -> GpuTraffic:
    """Return what was seen in looks at some seconds."""
    made = GpuTraffic()
    for second, look in looks:
        made.ingest(frame(second * SECOND, 0, look))
    return made


def test_it_is_told_from_the_look_before_to_the_look_after() -> None:
    """Of the GPUs of these processes alone; two of them on one GPU are told of it once."""
    made = looked(
        *((second, use(100, gpu, second * MIB)) for second in (10, 20, 22, 30) for gpu in (0, 1)),
        *((second, use(101, 1, second * MIB)) for second in (10, 20)),
        (30, use(102, 2, 5000 * MIB)),
    )

    assert made.sent_bytes([RANK], 15 * SECOND, 21 * SECOND) == 2 * 12 * MIB
    assert made.sent_bytes([RANK, OTHER], 15 * SECOND, 21 * SECOND) == 2 * 12 * MIB
    assert made.sent_bytes([OTHER], 15 * SECOND, 40 * SECOND) == 20 * MIB


def test_without_a_look_before_and_since_nothing_is_known() -> None:
    """Nor of a driver that does not tell, of nobody, or since a counter began anew."""
    made = looked((10, use(100, 0, 10 * MIB)), (20, use(100, 0, 20 * MIB)))

    assert made.sent_bytes([RANK], 9 * SECOND, 15 * SECOND) is None
    assert made.sent_bytes([RANK], 20 * SECOND, 25 * SECOND) is None
    assert made.sent_bytes([OTHER], 15 * SECOND, 18 * SECOND) is None
    assert made.sent_bytes([], 15 * SECOND, 18 * SECOND) is None
    assert looked((10, use(100, 0, None)), (20, use(100, 0, None))).sent_bytes([RANK], 15 * SECOND, 18 * SECOND) is None
    anew = looked((10, use(100, 0, 10 * MIB)), (20, use(100, 0, 3 * MIB)), (30, use(100, 0, 4 * MIB)))
    assert anew.sent_bytes([RANK], 15 * SECOND, 25 * SECOND) is None
    assert anew.sent_bytes([RANK], 21 * SECOND, 25 * SECOND) == MIB


def test_the_looks_of_days_are_bounded() -> None:
    """Of each GPU a few hundred are kept, the older the farther apart."""
    made, most = GpuTraffic(), 0
    for number in range(10_000):
        made.ingest(frame(2 * number * SECOND, 0, use(100, 0, number * MIB)))
        most = max(most, len(made._sent[0]))

    assert 256 < most <= 512
    assert made.sent_bytes([RANK], 19_990 * SECOND, 19_994 * SECOND) == 3 * MIB
