"""A mapping that forgets what was updated longest ago."""

from __future__ import annotations

from ckptprof.detect.world.bounded import Bounded, Latest


def test_what_was_updated_longest_ago_goes_first() -> None:
    """An update saves an entry, a look at it does not."""
    gone: list[tuple[str, int]] = []
    held: Bounded[str, int] = Bounded(2, on_drop=lambda key, value: gone.append((key, value)))
    held["a"], held["b"] = 1, 2
    held["a"] = 3
    assert held.get("b") == 2
    held["c"] = 4

    assert dict(held) == {"a": 3, "c": 4}
    assert gone == [("b", 2)]


def test_an_entry_is_made_where_there_is_none() -> None:
    """Asked for to be updated, it is the latest."""
    held: Bounded[str, list[int]] = Bounded(2, list)
    for number, key in enumerate(("a", "b", "a", "c")):
        held.touch(key).append(number)

    assert held["b"] == [], "it went; to ask for it does not bring it back"
    assert dict(held) == {"a": [0, 2], "c": [3]}


def test_what_is_old_is_forgotten_up_to_a_time() -> None:
    """That is no want of room."""
    held: Bounded[str, int] = Bounded(5, last_ns=lambda at_ns: at_ns)
    for key, at_ns in (("a", 10), ("b", 20), ("c", 30)):
        held[key] = at_ns
    held.forget_before(20)

    assert dict(held) == {"b": 20, "c": 30}


def test_the_latest_are_found_by_what_they_are_of() -> None:
    """The oldest goes for want of room or by its age, and with it what was known by its key."""
    held: Latest[str, tuple[str, int]] = Latest(3, lambda thing: thing[0], lambda thing: thing[1])
    for thing in (("a", 1), ("a", 2), ("b", 3), ("a", 4)):
        held.add(thing)

    assert list(held.by_key("a")) == [("a", 2), ("a", 4)]

    held.forget_before(4)

    assert list(held) == [("a", 4)]
    assert list(held.by_key("b")) == []
