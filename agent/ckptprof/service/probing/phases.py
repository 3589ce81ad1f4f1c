"""What a probe measures, as data: every row of its table in the order in which they are measured."""

from __future__ import annotations

from typing import NamedTuple

from ckptprof.diagnose.ceilings import MIB, Measure, Work

SMALL, MEDIUM, MANY = 4096, 65536, 4


class Phase(NamedTuple):
    """Rows that are measured in one go, and the share of all the bytes that may be written for them."""

    rows: tuple[Measure, ...]
    share: float = 0.0


def _write(  # noqa: PLR0913 # one for each property of a row
    name: str, size: int, share: float, *, direct: bool, workers: int = 1, random: bool = False
) -> Phase:
    row = Measure(id=name, work=Work.WRITE, operation_bytes=size, workers=workers, direct=direct, random=random)
    return Phase((row,), share)


def _read(name: str, *, direct: bool, workers: int = 1, mapped: bool = False) -> Phase:
    row = Measure(id=name, work=Work.READ, operation_bytes=MIB, workers=workers, direct=direct, mapped=mapped)
    return Phase((row,))


PHASES = (
    _write("write-direct", MIB, 0.25, direct=True),
    _write("write-direct-many", MIB, 0.19, direct=True, workers=MANY),
    _write("write-buffered", MIB, 0.19, direct=False),
    _write("write-buffered-many", MIB, 0.19, direct=False, workers=MANY),
    _write("write-direct-64k", MEDIUM, 0.09, direct=True),
    _write("write-direct-4k", SMALL, 0.03, direct=True),
    _write("write-buffered-4k", SMALL, 0.03, direct=False),
    _write("write-random-4k", SMALL, 0.02, direct=True, random=True),
    Phase((Measure(id="sync", work=Work.SYNC, operation_bytes=SMALL),), 0.01),
    Phase(tuple(Measure(id=work.value, work=work) for work in (Work.CREATE, Work.RENAME, Work.UNLINK))),
    _read("read-direct", direct=True),
    _read("read-direct-many", direct=True, workers=MANY),
    _read("read-buffered", direct=False),
    _read("read-mapped", direct=False, mapped=True),
)
