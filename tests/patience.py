"""How long a test waits before it takes something for hung: one number for all of them.

A busy machine makes a test slow and not red, so it is far above what anything takes that is waited for. On a machine
that is slower still, CKPTPROF_PATIENCE=3 makes it three times as long. What takes long by itself, as a build does, has
the bound of pytest-timeout only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 120.0 * float(os.environ.get("CKPTPROF_PATIENCE", "1"))
# What a process sleeps that the test ends itself; should the test be killed, it is not left for ever
LIFETIME = str(int(10 * PATIENCE_SECONDS))
_PAUSE_SECONDS = 0.01


def wait_until(condition: Callable[[], Any], what: str | Callable[[], object] = "it did not come to that") -> Any:
    """Return what the condition returns as soon as that is true; `what` says what is wrong if it never is.

    Raises AssertionError when the patience is over.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, what() if callable(what) else what
        time.sleep(_PAUSE_SECONDS)
    return found
