"""Memory layouts shared by the BPF programs and Python: their single source.

`python -m ckptprof_collectors.ebpf.layouts` writes bpf/layouts.h from these classes; a test compares them with the
BTF of the compiled objects, member by member. All integers are of the machine's own byte order; times are
CLOCK_MONOTONIC nanoseconds (bpf_ktime_get_ns).
"""

from __future__ import annotations

import ctypes
from ctypes import c_char, c_int64, c_uint32, c_uint64
from enum import IntEnum
from typing import Any

SIZE_BUCKETS = 32  # log2: bucket n counts operations of 2^n to 2^(n+1)-1 bytes
LATENCY_BUCKETS = 40  # log2 of nanoseconds: the last holds what took longer than 9 minutes
COMM_BYTES = 16  # TASK_COMM_LEN
PATH_BYTES = 4096  # PATH_MAX, of the names of a path with their zero bytes
MAX_IGNORED = 8  # processes of our own

_SIZES: dict[Any, str] = {c_char: "char", c_uint32: "__u32", c_uint64: "__u64", c_int64: "__s64"}


class RecordKind(IntEnum):
    """The kind of a ring record: what follows its head."""

    SESSION = 1  # an ended session
    SEEN = 2  # an open session: its path
    CREATED = 3
    SYNCED = 4
    MAPPED = 5
    RENAMED = 6
    UNLINKED = 7
    CLOSED = 8  # by a writer, or slow; its path came with the session
    EMPTIED = 9  # truncated by an open for writing, slowly


class PathState(IntEnum):
    """Format of the path at the end of a record."""

    NONE = 0
    NAMES = 1  # names from the file up to the root, each ended by a zero byte
    CUT = 2  # the same, but too deep: the upper folders are missing
    STRINGS = 3  # as the caller gave them: one path, or the old and the new one, each ended by a zero byte


class SessionKey(ctypes.Structure):
    """Identity of a session: one thread, one file, one direction."""

    _fields_ = (
        ("inode", c_uint64),
        ("device", c_uint32),  # the kernel's dev_t: major << 20 | minor
        ("generation", c_uint32),
        ("tid", c_uint32),
        ("tail", c_uint32),  # bit 0: writes; the rest: start of the thread in ms, as tids are reused
    )


class FileSession(ctypes.Structure):
    """The I/O of one thread on one file in one direction until it closed it; only that thread writes it."""

    _fields_ = (
        ("process_start_ns", c_uint64),  # of the process, since boot (CLOCK_BOOTTIME); in /proc/PID/stat in ticks
        ("operations", c_uint64),
        ("bytes", c_uint64),
        ("consecutive_operations", c_uint64),
        ("consecutive_bytes", c_uint64),
        ("sequential_operations", c_uint64),
        ("sequential_bytes", c_uint64),
        ("large_bytes", c_uint64),
        ("direct_bytes", c_uint64),
        ("faulted_bytes", c_uint64),
        ("call_ns", c_uint64),
        ("timed_operations", c_uint64),
        ("first_ns", c_uint64),
        ("last_ns", c_uint64),
        ("closed_ns", c_uint64),
        ("first_offset", c_int64),
        ("end_offset", c_int64),
        ("low_offset", c_int64),
        ("high_offset", c_int64),
        ("size", c_int64),
        ("run_bytes", c_uint64),
        ("window_offset", c_int64),  # of faults: start of the last mapped pages
        ("failed_ns", c_uint64),  # end of the last failed call
        ("failed_operations", c_uint32),
        ("error", c_uint32),  # errno of the last failed call
        ("file_system", c_uint32),  # s_magic
        ("parent", c_uint32),  # process that started this one
        ("process", c_uint32),
        ("kinds", c_uint32),
        ("told", c_uint32),
        ("shed_operations", c_uint32),  # counted without size and time
        ("comm", c_char * COMM_BYTES),
        ("sizes_operations", c_uint32 * SIZE_BUCKETS),
        ("sizes_bytes", c_uint64 * SIZE_BUCKETS),
    )


class RecordHead(ctypes.Structure):
    """The head of every record of the ring; a path follows at its end."""

    _fields_ = (
        ("kind", c_uint32),
        ("path_state", c_uint32),
        ("path_bytes", c_uint32),
        ("process", c_uint32),
        ("process_start_ns", c_uint64),
        ("at_ns", c_uint64),
        ("duration_ns", c_uint64),  # 0: not timed
        ("size", c_int64),
        # of mmap: prot | flags << 32; of a rename and an unlink: folder descriptors, two * 32 bits; of a sync
        # of a file and a close: errno if it failed
        ("flags", c_uint64),
        ("file_system", c_uint64),
        ("key", SessionKey),
    )


class SessionRecord(ctypes.Structure):
    """An ended session."""

    _fields_ = (("head", RecordHead), ("session", FileSession))


class ClosingFile(ctypes.Structure):
    """A writable file that a thread is closing: data for the record at the end of the call."""

    _fields_ = (("key", SessionKey), ("size", c_int64), ("file_system", c_uint32), ("written", c_uint32))


class DirtyPauses(ctypes.Structure):
    """How long balance_dirty_pages paused a process; in jiffies, as the kernel counts it."""

    _fields_ = (("process_start_ns", c_uint64), ("pauses", c_uint64), ("paused_jiffies", c_uint64))


class ProgramCounters(ctypes.Structure):
    """Per processor: counters of operations, and of lost or omitted ones."""

    _fields_ = (
        ("operations", c_uint64),
        ("untimed_operations", c_uint64),
        ("lost_operations", c_uint64),
        ("lost_bytes", c_uint64),
        ("lost_sessions", c_uint64),
        ("lost_events", c_uint64),
        ("socket_calls", c_uint64),
        ("window_ns", c_uint64),
        ("window_small", c_uint64),
        ("window_small_reads", c_uint64),
        ("jiffies", c_uint64),  # at `jiffies_ns`, for the length of a jiffy
        ("jiffies_ns", c_uint64),
    )


class ProgramConfig(ctypes.Structure):
    """Fixed when the programs are loaded."""

    _fields_ = (
        ("family_only", c_uint32),
        ("small_bytes", c_uint32),  # written in a session; smaller ones, and events, are limited by the next field
        ("small_per_window", c_uint32),  # in 100 ms and processor
        ("small_read_bytes", c_uint32),  # the same for reads, as data loaders read many small files
        ("small_reads_per_window", c_uint32),
        ("ignored_count", c_uint32),
        ("ignored", c_uint32 * MAX_IGNORED),
    )


class ProgramControl(ctypes.Structure):
    """Set while the programs run."""

    _fields_ = (
        ("shed", c_uint32),
        ("dirty_seen", c_uint32),
        ("trifle_bytes", c_uint32),  # smaller reads are reported only for processes in `attended`; 0: all are reported
    )


class BlockKey(ctypes.Structure):
    """One direction of one disk."""

    _fields_ = (("device", c_uint32), ("writes", c_uint32))


class BlockCounters(ctypes.Structure):
    """Per processor: the requests of one direction of one disk."""

    _fields_ = (
        ("requests", c_uint64),
        ("bytes", c_uint64),
        ("issued", c_uint64),
        ("issued_bytes", c_uint64),
        ("sequential_bytes", c_uint64),
        ("sizes", c_uint64 * SIZE_BUCKETS),
        ("latencies", c_uint64 * LATENCY_BUCKETS),
    )


class ConnectionKey(ctypes.Structure):
    """One connection of one process."""

    _fields_ = (("cookie", c_uint64), ("process", c_uint32), ("nothing", c_uint32))


class ConnectionDirection(ctypes.Structure):
    """One direction of a connection."""

    _fields_ = (
        ("bytes", c_uint64),
        ("calls", c_uint64),
        ("began_ns", c_uint64),  # the first after the last pause of a second
        ("last_ns", c_uint64),
        ("run_from", c_uint64),  # `bytes` at the last transfer in the other direction
        ("parts", c_uint64),  # completed runs of at least 64 KiB in one direction
        ("parts_bytes", c_uint64),
        ("largest_part_bytes", c_uint64),
    )


class TcpConnection(ctypes.Structure):
    """A TCP connection of one process; family 0: the sum of all beyond the map's capacity."""

    _fields_ = (
        ("process_start_ns", c_uint64),
        ("sent", ConnectionDirection),
        ("received", ConnectionDirection),
        ("remote", c_uint32 * 4),  # address: as in the packets, of IPv4 the first
        ("remote_port", c_uint32),
        ("local_port", c_uint32),
        ("family", c_uint32),  # AF_INET or AF_INET6
        ("tid", c_uint32),  # of the last sender
    )


STRUCTURES: tuple[tuple[str, type[ctypes.Structure]], ...] = (
    ("key", SessionKey),
    ("session", FileSession),
    ("head", RecordHead),
    ("session_record", SessionRecord),
    ("closing", ClosingFile),
    ("pauses", DirtyPauses),
    ("counters", ProgramCounters),
    ("config", ProgramConfig),
    ("control", ProgramControl),
    ("connection_key", ConnectionKey),
    ("way", ConnectionDirection),
    ("connection", TcpConnection),
    ("block_key", BlockKey),
    ("block", BlockCounters),
)
_NAMES = {structure: name for name, structure in STRUCTURES}


def render_header() -> str:
    """Render bpf/layouts.h."""
    lines = [
        "/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */",
        "/* Written by `python -m ckptprof_collectors.ebpf.layouts` from layouts.py: change it there. */",
        "#pragma once",
        "",
    ]
    constants = {
        "SIZE_BUCKETS": SIZE_BUCKETS,
        "LATENCY_BUCKETS": LATENCY_BUCKETS,
        "COMM_BYTES": COMM_BYTES,
        "PATH_BYTES": PATH_BYTES,
        "MAX_IGNORED": MAX_IGNORED,
    }
    lines += [f"#define {name} {value}" for name, value in constants.items()]
    for prefix, kinds in (("RECORD", RecordKind), ("PATH", PathState)):
        lines += ["", f"enum {prefix.lower()}_kind {{"]
        lines += [f"\t{prefix}_{kind.name} = {kind.value}," for kind in kinds]
        lines += ["};"]
    for name, structure in STRUCTURES:
        lines += ["", f"struct {name} {{"]
        lines += [f"\t{_render_member(field)};" for field in structure._fields_]
        lines += ["};"]
    return "\n".join([*lines, ""])


def _render_member(field: Any) -> str:
    name, kind = field[0], field[1]
    if issubclass(kind, ctypes.Array):
        return f"{_SIZES[kind._type_]} {name}[{kind._length_}]"
    if issubclass(kind, ctypes.Structure):
        return f"struct {_NAMES[kind]} {name}"
    return f"{_SIZES[kind]} {name}"


if __name__ == "__main__":
    from pathlib import Path

    (Path(__file__).parents[1] / "bpf" / "layouts.h").write_text(render_header(), encoding="utf-8")
