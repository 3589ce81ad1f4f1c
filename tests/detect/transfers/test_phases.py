"""The life of a transfer is one table: what is judged changes no more, and only the rooms that own a change make it."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

import pytest

from ckptprof import detect
from ckptprof.detect.transfers.model.phase import TRANSITIONS, Change, Phase, after
from ckptprof.detect.transfers.model.traced import TracedTransfer
from ckptprof.detect.transfers.model.transfer import Transfer

_DETECT = Path(str(detect.__file__)).parent
_FIELDS = {field.name for field in dataclasses.fields(TracedTransfer)}
_OWNERS = ("transfers/model/", "transfers/observed/")  # the first by what it offers, the second as it sees
_OF_OTHERS = ("main", "act")  # measures, which have times and bytes of their own


def transfer(phase: Phase) -> Transfer:
    """Return one in a phase."""
    return Transfer((100, 1), (8, 7), writes=True, path="/run/a.pt", first_ns=2, last_ns=3, before_ns=1, phase=phase)


def test_every_phase_is_reached_and_every_change_is_one_of_some_phase() -> None:
    """From the first phase on; none is left over."""
    reached, seen = {Phase.OPEN}, set()
    while reached - seen:
        phase = (reached - seen).pop()
        seen.add(phase)
        reached |= set(TRANSITIONS[phase].values())

    assert reached == set(Phase) == set(TRANSITIONS)
    assert {change for changes in TRANSITIONS.values() for change in changes} == set(Change)


def test_what_was_judged_changes_no_more_but_by_what_stores_it() -> None:
    """Nor is anything judged while it goes on."""
    assert set(TRANSITIONS[Phase.JUDGED]) == {Change.STORED}
    with pytest.raises(KeyError):
        after(Phase.OPEN, Change.JUDGED)


def test_a_room_that_comes_too_late_is_refused() -> None:
    """What users were told of it would no longer be what it says."""
    judged, other = transfer(Phase.JUDGED), transfer(Phase.OVER)

    for change in (
        lambda: judged.rename("/run/b.pt"),
        lambda: judged.take_size(7, said=True),
        lambda: judged.begin_with(other),
        lambda: judged.begin_round(is_open=False),
        lambda: judged.begin_after(other),
        lambda: judged.take_away(1),
        lambda: judged.join_stage(other, other),
        judged.judged,
    ):
        with pytest.raises(KeyError):
            change()
    assert (judged.path, judged.size, judged.first_ns, judged.bytes, judged.staged) == ("/run/a.pt", 0, 2, 0, None)


def test_no_room_sets_a_field_of_a_transfer_but_those_that_see_it() -> None:
    """All others change it by what it offers, which its phase may refuse."""
    found = []
    for path in sorted(_DETECT.rglob("*.py")):
        room = path.relative_to(_DETECT).as_posix()
        if room.startswith(_OWNERS) or room.startswith("world/"):
            continue
        set_here = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute))
        for node in set_here:
            whose = ast.unparse(node.value)
            if isinstance(node.ctx, ast.Store) and node.attr in _FIELDS and not whose.startswith(("self", *_OF_OTHERS)):
                found.append(f"{room}:{node.lineno} {ast.unparse(node)}")

    assert found == []
