"""Samples: what they promise of names, and that they survive every way they travel."""

from __future__ import annotations

from typing import get_args

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ckptprof_collectors import samples
from ckptprof_collectors.samples import Frame, ProcessExit, Sample, text


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
