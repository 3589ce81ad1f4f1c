"""Only the modules that own a change of a transfer make it."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

from ckptprof import detect
from ckptprof.detect.transfers.model.traced_transfer import TracedTransfer

_DETECT = Path(str(detect.__file__)).parent
_FIELDS = {field.name for field in dataclasses.fields(TracedTransfer)}
_OWNERS = ("transfers/model/", "transfers/observed/")  # the first by what it offers, the second as it sees
_OF_OTHERS = ("main", "act")  # measures, which have times and bytes of their own


def test_no_room_sets_a_field_of_a_transfer_but_those_that_see_it() -> None:
    """All others change it by its methods."""
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
