"""What tells one process and one file of a host from all others."""

from __future__ import annotations

ProcessKey = tuple[int, int]  # pid, start_ticks
FileKey = tuple[int, int]  # device, inode
