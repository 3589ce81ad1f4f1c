"""Unique keys of processes and files of a host."""

from __future__ import annotations

ProcessKey = tuple[int, int]  # pid, start_ticks
FileKey = tuple[int, int]  # device, inode
