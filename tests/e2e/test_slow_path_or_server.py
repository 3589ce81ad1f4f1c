"""A save over TCP that is slow by the path, the server, or the job itself is told so, to an ordinary user too."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.leftovers import own_link

sys.path.insert(0, str(Path(__file__).resolve().parent / "faults"))

from triad import NOBODY, TRIAD, Planted, missing, verdicts

SAVES = 3


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.xdist_group("live")
@pytest.mark.parametrize("planted", TRIAD, ids=lambda one: one.name)
def test_who_is_slow_is_told_by_what_tcp_counts(
    planted: Planted, record_property: Callable[[str, object], None]
) -> None:
    """Polled, by a user without any privilege: most saves name the limit; the evidence names the server's address."""
    if absent := missing():
        pytest.skip(f"not installed: {', '.join(absent)}")
    found = verdicts(planted, saves=SAVES, level="poll", user=NOBODY)

    limits = [one["verdict"]["limit"] for one in found]
    record_property("figure", f"{planted.name}: {', '.join(limits)}")
    told = json.dumps([(one["verdict"], one["measures"]["connections"]) for one in found], indent=1)
    assert len(found) == SAVES, told
    assert limits.count(planted.limit) * 2 > SAVES, told
    mine = [one for one in found if one["verdict"]["limit"] == planted.limit]
    for one in mine if planted.limit in ("network", "server") else ():
        (connection,) = one["measures"]["connections"]
        assert (connection["remote"], connection["port"], connection["links"]) == (
            "10.213.79.2",
            2022,
            [own_link("near")],
        )
        assert "10.213.79.2:2022" in one["verdict"]["evidence"][0]
        # What was on its way at the first and the last look is left out, which is the more the later they come
        assert 0.5 < connection["sent_bytes"] / one["bytes"] < 1.1
