"""Which lines differ, which entities came and went."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ckptprof_collectors.linetable import LineTable


def first_word(line: bytes) -> bytes | None:
    """Name a line by its first word."""
    return line.split(b" ", 1)[0] or None


def test_first_update_gives_every_line() -> None:
    """At the first update every entity has arrived and every named line is new."""
    table = LineTable(first_word)

    changed = table.update(b"a 1\nb 2\n")

    assert changed == [b"a 1", b"b 2"]
    assert {b"a", b"b"} == table.arrived
    assert not table.departed


def test_same_bytes_give_nothing() -> None:
    """An unchanged file yields no line, and arrivals are told once."""
    table = LineTable(first_word)
    table.update(b"a 1\nb 2\n")

    assert table.update(b"a 1\nb 2\n") == []
    assert not table.arrived


def test_only_the_line_that_differs() -> None:
    """A line that changed in place is given, its neighbours are not."""
    table = LineTable(first_word)
    table.update(b"a 1\nb 2\nc 3\n")

    assert table.update(b"a 1\nb 9\nc 3\n") == [b"b 9"]


def test_swap_in_place_is_a_departure_and_an_arrival() -> None:
    """One entity replaced by another at the same position is noticed although the number of lines is the same."""
    table = LineTable(first_word)
    table.update(b"a 1\nb 2\n")

    changed = table.update(b"a 1\nc 2\n")

    assert ([b"c 2"], {b"c"}, {b"b"}) == (changed, set(table.arrived), set(table.departed))


def test_line_that_only_moved_has_not_changed() -> None:
    """A device inserted in front moves the others down and does not make them change."""
    table = LineTable(first_word)
    table.update(b"a 1\nb 2\n")

    assert table.update(b"x 0\na 1\nb 2\n") == [b"x 0"]


@given(st.lists(st.dictionaries(st.sampled_from([b"a", b"b", b"c", b"d"]), st.integers(0, 3)), max_size=6))
def test_replaying_changes_rebuilds_the_file(states: list[dict[bytes, int]]) -> None:
    """Applying arrivals, departures and changed lines in turn always ends in the file's true state."""
    table = LineTable(first_word)
    rebuilt: dict[bytes, int] = {}
    for state in states:
        changed = table.update(b"".join(b"%s %d\n" % item for item in state.items()))
        for name in table.departed:
            del rebuilt[name]
        rebuilt.update((line.split()[0], int(line.split()[1])) for line in changed)

        assert state == rebuilt
