"""What this process holds open, told apart from what other threads of it close meanwhile."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def held() -> set[tuple[int, str]]:
    """Return the open descriptors, with what each leads to: `held() <= before` says that nothing was left open."""
    found = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - of /proc
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            found.add((int(name), str(Path("/proc/self/fd", name).readlink())))
    return found
