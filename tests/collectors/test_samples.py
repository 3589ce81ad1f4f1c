"""Samples: what they promise of names, and that they survive every way they travel."""

from __future__ import annotations

from typing import get_args

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ckptprof_collectors import samples
from ckptprof_collectors.samples import (
    CgroupMemory,
    Frame,
    FuseSample,
    MemorySample,
    ProcessExit,
    QdiscSample,
    Sample,
    ThreadSample,
    ThrottleInfo,
    text,
)


@given(st.binary())
def test_any_bytes_become_text_that_can_be_stored(raw: bytes) -> None:
    """No byte fails, and no surrogate comes out."""
    assert text(raw).encode("utf-8") is not None


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_utf8_stays_what_it_is(name: str) -> None:
    """Control characters, markup and all: escaping is the business of who shows it."""
    assert text(name.encode()) == name


def test_each_kind_of_sample_has_a_tag_of_its_own() -> None:
    """A recording tells them apart by it."""
    tags = [msgspec.inspect.type_info(kind).tag for kind in get_args(Sample)]  # type: ignore[attr-defined]

    assert len(tags) == len(set(tags)) == len(get_args(Sample))


def test_every_sample_of_the_module_may_stand_in_a_frame() -> None:
    """A kind that is not in the union could be made but never read back."""
    made = {
        kind for kind in vars(samples).values()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__struct_config__.tag is not None
    }  # fmt: skip

    assert made == set(get_args(Sample))


@given(
    st.integers(0, 2**62),
    st.integers(0, 2**62),
    st.lists(st.builds(ProcessExit, st.integers(1, 9), st.integers(0, 2**62))),
)
def test_a_frame_survives_both_ways_of_travelling(at_ns: int, wall_ns: int, exits: list[ProcessExit]) -> None:
    """Msgpack in the pipe, JSON in the file."""
    frame = Frame(at_ns, wall_ns, ("processes",), tuple(exits))

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(frame), type=Frame) == frame
    assert msgspec.json.decode(msgspec.json.encode(frame), type=Frame) == frame


def test_what_was_seen_of_threads_links_and_limits_survives_a_recording() -> None:
    """With every field set, and with those left out that came later: an old recording has them not."""
    made: tuple[Sample, ...] = (
        ThreadSample(7, 100, 8, "a\x1b", 11, 22, 6, 9, 55, None, "D", 74, None, minor_faults=44, at_ns=5),
        FuseSample(0, 52, None),
        QdiscSample("eth0", "tbf", 1, 0xFFFFFFFF, 5000, 40, 7, 9, 3000, 2, 1_250_000),
        ThrottleInfo("8:16", "/jobs", None, 1000, None, None, "sdb", 7),
        CgroupMemory(7, 100, 1 << 40, 1 << 30),
    )
    frame = Frame(1, 2, ("processes",), made)

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(frame), type=Frame) == frame
    assert msgspec.json.decode(msgspec.json.encode(frame), type=Frame) == frame
    old = msgspec.json.decode(b'["memory",' + b",".join([b"1"] * 14) + b"]", type=Sample)
    assert isinstance(old, MemorySample)
    assert (old.psi_memory_full_us, old.psi_cpu_some_us, old.oom_kills) == (1, None, None)
