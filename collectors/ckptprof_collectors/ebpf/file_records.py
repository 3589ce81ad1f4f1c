"""Decodes maps and ring records into samples: sessions of files, and events of files."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from ckptprof_collectors.ebpf.layouts import (
    SIZE_BUCKETS,
    FileSession,
    PathState,
    RecordHead,
    RecordKind,
    SessionKey,
    SessionRecord,
)
from ckptprof_collectors.files.process_roots import HOST_PROCESS, OtherDomain, ProcessKey
from ckptprof_collectors.files.workers import WORKERS
from ckptprof_collectors.samples import FileActivity, FileLifeEvent, text

_CODES = {4: "I", 8: "Q"}
_SIGNED = frozenset({"first_offset", "end_offset", "low_offset", "high_offset", "size", "window_offset"})


def _format(structure: type) -> str:
    """`struct` format of a layout: its fields are naturally aligned, so there is no padding."""
    codes = ["="]
    for name, kind, *_ in structure._fields_:  # type: ignore[attr-defined]
        if hasattr(kind, "_length_"):
            size = kind._length_
            codes.append(f"{size}s" if name == "comm" else f"{size}{_CODES[struct.calcsize(kind._type_._type_)]}")
        elif hasattr(kind, "_fields_"):
            codes.append(_format(kind)[1:])
        else:
            code = _CODES[struct.calcsize(kind._type_)]
            codes.append("q" if name in _SIGNED else code)
    return "".join(codes)


SESSION = struct.Struct(_format(FileSession))
KEY = struct.Struct(_format(SessionKey))
HEAD = struct.Struct(_format(RecordHead))
RECORD_BYTES = HEAD.size + SESSION.size
LAST_NS_WORD = FileSession.last_ns.offset // 8  # columns of the values of a map, as 64-bit numbers
CLOSED_NS_WORD = FileSession.closed_ns.offset // 8
FAILED_NS_WORD = FileSession.failed_ns.offset // 8
PROCESS_WORD = FileSession.process.offset // 4
SESSION_WORDS = SESSION.size // 8
_COMM = 31  # of the unpacked fields of a session
_OPERATIONS = slice(_COMM + 1, _COMM + 1 + SIZE_BUCKETS)
_BYTES = slice(_COMM + 1 + SIZE_BUCKETS, _COMM + 1 + 2 * SIZE_BUCKETS)
_NO_DESCRIPTOR = 0xFFFFFF9C  # AT_FDCWD
_SUBVOLUMES = frozenset({0x9123683E, 0xCA451A4E})  # btrfs, bcachefs: stat(2) gives a device for each subvolume
LIFE_KINDS: dict[int, str] = {
    RecordKind.CREATED: "created",
    RecordKind.SYNCED: "synced",
    RecordKind.MAPPED: "mapped",
    RecordKind.RENAMED: "renamed",
    RecordKind.UNLINKED: "unlinked",
    RecordKind.CLOSED: "closed-written",
    RecordKind.EMPTIED: "emptied",
}
_KINDS_WITH_ERROR = (RecordKind.SYNCED, RecordKind.CLOSED)  # the others are reported only if they succeeded


class RingRecord(NamedTuple):
    """One parsed record of the ring."""

    kind: int
    process: int
    process_start_ns: int
    at_ns: int
    duration_ns: int
    size: int
    flags: int
    file_system: int
    key: bytes
    names: tuple[str, ...]  # one path, or the two of a rename; none if it could not be read whole
    session: bytes | None

    @property
    def is_of_file(self) -> bool:
        """It is about one file; else about names, or several files."""
        return self.key[:8] != bytes(8)


def parse_record(data: bytes) -> RingRecord:
    """Parse a record; raises struct.error for one that is too short."""
    kind, state, path_bytes, process, start_ns, at_ns, duration_ns, size, flags, file_system = HEAD.unpack_from(data)[
        :10
    ]
    place = RECORD_BYTES if kind == RecordKind.SESSION else HEAD.size
    names = _names(state, data[place : place + path_bytes])
    key = data[HEAD.size - KEY.size : HEAD.size]
    session = data[HEAD.size : RECORD_BYTES] if kind == RecordKind.SESSION else None
    return RingRecord(kind, process, start_ns, at_ns, duration_ns, size, flags, file_system, key, names, session)


def _names(state: int, raw: bytes) -> tuple[str, ...]:
    parts = raw.split(b"\0")[:-1]
    if state == PathState.NAMES:
        return (text(b"/" + b"/".join(reversed(parts))),)
    if state == PathState.STRINGS:
        return tuple(text(part) for part in parts)
    return ()


def _find_device(view: ProcessKey, folder: str) -> int | None:
    """Find st_dev of a folder of a process; None if it is not local, or not reachable.

    The path is walked by steps, which enter nothing that may hang: it runs in the thread that reads the trace.
    """
    for candidate in (view, HOST_PROCESS):
        with suppress(OSError, ValueError, OtherDomain), WORKERS.views.enter(candidate) as root:
            found = root.find(os.fsencode(folder))
            try:
                return found.status.device
            finally:
                found.close()
    return None


class SampleDecoder:
    """Makes samples; remembers the st_dev for each of the kernel's device numbers."""

    def __init__(self, proc: str, ticks_per_second: int) -> None:
        self._proc = proc
        self._ticks_per_second = ticks_per_second
        self._subvolumes: dict[tuple[int, str], int] = {}

    def ticks(self, start_ns: int) -> int:
        """Convert a start time to the unit of /proc/PID/stat (fs/proc/array.c: nsec_to_clock_t)."""
        return start_ns * self._ticks_per_second // 1_000_000_000

    def device(self, kernel_device: int, file_system: int, process: ProcessKey, path: str | None) -> int:
        """Find st_dev of a file."""
        plain = os.makedev(kernel_device >> 20, kernel_device & 0xFFFFF)
        if file_system not in _SUBVOLUMES or path is None:
            return plain
        folder = os.path.dirname(path)
        device = self._subvolumes.get((kernel_device, folder))
        if device is None:
            device = _find_device(process, folder)
            if device is None:
                return plain
            if len(self._subvolumes) >= 4096:
                self._subvolumes.clear()
            self._subvolumes[kernel_device, folder] = device
        return device

    def activity(
        self, key: bytes, value: bytes | memoryview, path: str | None, *, closed_ns: int | None = None
    ) -> FileActivity:
        """Decode a session; `closed_ns` if it has ended."""
        inode, kernel_device, generation, tid, tail = KEY.unpack(key)
        fields = SESSION.unpack(value)
        (
            start_ns, operations, size_bytes, consecutive, consecutive_bytes, sequential, sequential_bytes, large,
            direct, faulted, call_ns, timed, first_ns, last_ns, closed, first_offset, end_offset, low, high, size,
            _, _, failed_ns, failed, error, file_system, parent, process, kinds, _, _,
        ) = fields[:_COMM]  # fmt: skip
        counts, sums = fields[_OPERATIONS], fields[_BYTES]
        sizes = tuple((1 << n, counts[n], sums[n]) for n in range(SIZE_BUCKETS) if counts[n])
        return FileActivity(
            session=f"{key.hex()}{first_ns:x}",
            pid=process,
            start_ticks=self.ticks(start_ns),
            tid=tid,
            comm=text(fields[_COMM].partition(b"\0")[0]),
            device=self.device(kernel_device, file_system, ProcessKey(process, self.ticks(start_ns)), path),
            inode=inode,
            generation=generation,
            writes=bool(tail & 1),
            path=path,
            size=size,
            operations=operations,
            bytes=size_bytes,
            consecutive_operations=consecutive,
            consecutive_bytes=consecutive_bytes,
            sequential_operations=sequential,
            sequential_bytes=sequential_bytes,
            large_bytes=large,
            direct_bytes=direct,
            call_ns=call_ns if timed else None,
            timed_operations=timed,
            first_ns=first_ns,
            last_ns=last_ns,
            first_offset=first_offset,
            end_offset=end_offset,
            low_offset=low,
            high_offset=high,
            kinds=kinds,
            sizes=sizes,
            faulted_bytes=faulted,
            closed_ns=closed or closed_ns,
            parent_pid=parent or None,
            failed_operations=failed,
            failed_ns=failed_ns or None,
            error=error or None,
        )

    def life_event(self, record: RingRecord, recent: Sequence[str] = (), path: str | None = None) -> FileLifeEvent:
        """Decode an event; `recent`: paths that its process used recently.

        `path`: of its file, if the record itself has none.
        """
        inode, kernel_device, _, tid, _ = KEY.unpack(record.key)
        names: Sequence[str | None] = record.names
        is_guessed = False
        if not record.is_of_file:  # names as the caller gave them
            folders = (record.flags & 0xFFFFFFFF, record.flags >> 32)
            names, is_guessed = self._absolute(record, folders, recent)
        path = names[0] if names else path
        placed = record.is_of_file or (record.kind == RecordKind.SYNCED and kernel_device)  # syncfs: a device only
        process = ProcessKey(record.process, self.ticks(record.process_start_ns))
        return FileLifeEvent(
            at_ns=record.at_ns,
            kind=LIFE_KINDS[record.kind],
            pid=record.process,
            start_ticks=self.ticks(record.process_start_ns),
            tid=tid,
            device=self.device(kernel_device, record.file_system, process, path) if placed else None,
            inode=inode if record.is_of_file else None,
            duration_ns=record.duration_ns or None,
            path=path,
            new_path=names[1] if len(names) > 1 else None,
            error=record.flags or None if record.kind in _KINDS_WITH_ERROR else None,
            is_guessed=is_guessed,
        )

    def _absolute(self, record: RingRecord, folders: tuple[int, int], recent: Sequence[str]) -> tuple[list[str], bool]:
        """Resolve relative names, which stay as they are if that is not possible; also return whether by a guess."""
        found: list[str] = []
        start: str | None = None
        is_guessed = False
        for name, folder in zip(record.names, folders, strict=False):
            if name.startswith("/"):
                found.append(os.path.normpath(name))
                continue
            start = self._folder(record.process, folder) or start
            if start is None:  # it has ended; files that it renames and unlinks were mostly used by it before
                end = "/" + os.path.normpath(name)
                start = next((path[: -len(end)] for path in reversed(recent) if path.endswith(end)), None)
                is_guessed = is_guessed or start is not None
            found.append(name if start is None else os.path.normpath(f"{start}/{name}"))
        return found, is_guessed

    def _folder(self, process: int, folder: int) -> str | None:
        link = "cwd" if folder == _NO_DESCRIPTOR else f"fd/{folder}"
        try:
            return text(os.readlink(f"{self._proc}/{process}/{link}".encode()))
        except OSError:
            return None


assert struct.calcsize(_format(SessionRecord)) == RECORD_BYTES  # noqa: S101 - fails on import, not in the field
