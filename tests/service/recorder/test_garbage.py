"""What a recorder's start has made is not looked through again."""

from __future__ import annotations

import gc

from ckptprof.service.commands.agent_service import reduce_garbage_collection


def test_what_is_there_is_never_looked_at_and_the_rest_seldom() -> None:
    """A burst of objects in use begins no collection that fewer of them would have begun."""
    before = gc.get_threshold()
    try:
        reduce_garbage_collection()

        assert gc.get_freeze_count() > 10_000
        assert gc.get_threshold()[0] > before[0]
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
