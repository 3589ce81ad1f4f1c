"""The lines of /proc/diskstats (Documentation/admin-guide/iostats.rst)."""

from __future__ import annotations

from ckptprof_collectors.samples import DiskSample, text

# Numbers after major, minor and name that a kernel writes: 11, with discards (4.18) 15, with flushes (5.5) 17.
_WIDTHS = (17, 15, 11)


def name_of(line: bytes) -> bytes | None:
    """Return the device's name as the kernel spells it, None for a line that is none of diskstats."""
    fields = line.split(None, 3)
    return fields[2] if len(fields) == 4 else None


def numbers_of(line: bytes) -> tuple[int, int] | None:
    """Return major and minor, None for a line that is none of diskstats."""
    fields = line.split(None, 2)
    try:
        return int(fields[0]), int(fields[1])
    except (IndexError, ValueError):
        return None


def parse_line(line: bytes) -> DiskSample | None:
    """Return the sample of a line, None if it is malformed (as are the short lines of partitions before 2.6.25).

    Columns that a newer kernel may append are left out; those that an older one lacks are None.
    """
    fields = line.split()
    have = len(fields) - 3
    for width in _WIDTHS:
        if have >= width:
            try:
                return DiskSample(text(fields[2]), *map(int, fields[3 : 3 + width]))
            except ValueError:
                return None
    return None
