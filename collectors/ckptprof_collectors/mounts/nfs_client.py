"""Counters of NFS clients: mountstats of /proc (fs/nfs/super.c nfs_show_stats, net/sunrpc/stats.c).

A read queries no server. Only NFS has blocks with `statvers=`: others are skipped.
Versions 1.0 and 1.1 of its operations differ by a ninth number, the errors (kernel 5.3).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ckptprof_collectors.kernelfs import KernelFile, KernelFs, parse_counter, valid_counter
from ckptprof_collectors.mounts.mountinfo import host_mounts, unescape
from ckptprof_collectors.samples import ClientOperation, ClientSample, MountInfo, text

MAX_OPERATIONS = 128  # NFS 4.2 has 72
_HEAD = re.compile(rb"device (\S+) mounted on (\S+) with fstype nfs4? statvers=")
_MS = 1000
_OPTIONS = ("rsize", "wsize", "nconnect", "timeo", "retrans")
_DELAY = 24  # of the events: NFSIOS_DELAY in include/linux/nfs_iostat.h
_SENDS, _IN_USE, _BACKLOG, _SLOTS = 5, 8, 9, 10  # of a transport, after its name
_MISSING_NUMBERS = {b"tcp": 0, b"rdma": 0, b"udp": 3}  # of the numbers before these: UDP has no connections


class NfsClients:
    """Reads all NFS mounts of the host."""

    def __init__(self, fs: KernelFs) -> None:
        """Open the file; raises OSError."""
        try:
            self._file = KernelFile(host_mounts(fs) / "mountstats", chunk=1 << 16)
        except PermissionError:  # only its owner may read it of another process, unlike mountinfo
            self._file = KernelFile(fs.proc / "self" / "mountstats", chunk=1 << 16)
        # by device: the part of its block that changes with each request, and the parsed block
        self._previous: dict[tuple[int, int], tuple[bytes, ClientSample]] = {}

    def read(self, mounts: Sequence[MountInfo]) -> Sequence[ClientSample]:
        devices_by_place = _places(mounts)
        current: dict[tuple[int, int], tuple[bytes, ClientSample]] = {}
        data = self._file.read()
        for start, head in _heads(data):
            device = devices_by_place.get((text(unescape(head[1])), text(unescape(head[2]))))
            if device is None or device in current:  # mounts of one superblock show the same
                continue
            end = data.find(b"\ndevice ", start)
            block = data[start : end if end >= 0 else None]
            counts, previous = _compared_part(block), self._previous.get(device)
            current[device] = previous if previous and previous[0] == counts else (counts, parse_block(device, block))
        self._previous = current
        return [sample for _, sample in current.values()]

    def close(self) -> None:
        self._file.close()


def _places(mounts: Sequence[MountInfo]) -> Mapping[tuple[str, str], tuple[int, int]]:
    """Devices of mounts by source and mount point; none where several mounts of one source hide each other."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    hidden = set()
    for mount in mounts:
        place, device = (mount.source, mount.mount_point), (mount.major, mount.minor)
        if found.setdefault(place, device) != device:
            hidden.add(place)
    return {place: device for place, device in found.items() if place not in hidden}


def _heads(data: bytes) -> list[tuple[int, re.Match[bytes]]]:
    found = []
    at = data.find(b" statvers=")
    while at >= 0:
        start = data.rfind(b"\n", 0, at) + 1
        head = _HEAD.match(data, start)
        if head is not None:
            found.append((start, head))
        at = data.find(b" statvers=", at + 1)
    return found


def _compared_part(block: bytes) -> bytes:
    """Part of a block that stays the same while idle: not its age, nor the idle time of a connection."""
    after = max(0, block.find(b"\tevents:"))
    end = block.find(b"\txprt:", after)
    operations = block.find(b"\tper-op", after)
    return block[after:] if end < 0 or operations < end else block[after:end] + block[operations:]


def parse_block(device: tuple[int, int], block: bytes) -> ClientSample:
    """Parse one block; a malformed value is None."""
    fields: dict[bytes, list[bytes]] = {}
    transports: list[list[bytes]] = []
    operations: list[ClientOperation] = []
    lines = iter(block.split(b"\n"))
    for line in lines:
        name, _, rest = line.strip().partition(b":")
        if name == b"xprt":
            transports.append(rest.split())
        elif name.startswith(b"per-op"):
            break
        else:
            fields.setdefault(name, rest.split())
    for line in lines:
        operation = _operation(line) if len(operations) < MAX_OPERATIONS else None
        if operation is not None:
            operations.append(operation)
    options = _options(fields.get(b"opts", []))
    has_pnfs = b"pnfs=LAYOUT" in b" ".join(fields.get(b"nfsv4", []))
    transferred = [_at(fields.get(b"bytes", []), index) for index in range(6)]
    return ClientSample(
        major=device[0],
        minor=device[1],
        client=f"nfs {options['vers']}" if "vers" in options else "nfs",
        read_bytes=transferred[0],
        written_bytes=transferred[1],
        direct_read_bytes=transferred[2],
        direct_written_bytes=transferred[3],
        wire_read_bytes=transferred[4],
        wire_written_bytes=transferred[5],
        operations=tuple(operations),
        delays=_at(fields.get(b"events", []), _DELAY),
        settings=_settings(options),
        limitations=("bytes of each data server, and the connections to them (pNFS)",) if has_pnfs else (),
        **_transport(transports),
    )


def _at(words: Sequence[bytes], index: int) -> int | None:
    return parse_counter(words[index]) if index < len(words) else None


def _operation(line: bytes) -> ClientOperation | None:
    """Read `WRITE: ops transmissions timeouts sent received queue rtt execute [errors]`, times in milliseconds."""
    name, colon, rest = line.strip().partition(b":")
    words = rest.split()
    count = _at(words, 0)
    if not colon or not count or len(words) < 8:
        return None
    queue, answer, total = (_microseconds(words[index]) for index in (5, 6, 7))
    return ClientOperation(
        kind=text(name),
        count=count,
        total_us=total,
        queue_us=queue,
        server_us=answer,
        sent_bytes=_at(words, 3),
        received_bytes=_at(words, 4),
        transmissions=_at(words, 1),
        timeouts=_at(words, 2),
        errors=_at(words, 8),
    )


def _microseconds(word: bytes) -> int | None:
    milliseconds = parse_counter(word)
    return None if milliseconds is None else valid_counter(milliseconds * _MS)


def _transport(transports: Sequence[Sequence[bytes]]) -> dict[str, Any]:
    named = [words for words in transports if words]
    if not named:
        return {}

    def numbers(index: int) -> list[int | None]:
        return [
            _at(words[1:], index - _MISSING_NUMBERS[words[0]]) if words[0] in _MISSING_NUMBERS else None
            for words in named
        ]

    def together(index: int) -> int | None:
        known = [value for value in numbers(index) if value is not None]
        return valid_counter(sum(known)) if len(known) == len(named) else None

    slots = max((value for value in numbers(_SLOTS) if value is not None), default=None)
    return {
        "transport": text(named[0][0]),
        "connections": len(named),
        "sends": together(_SENDS),
        "backlog": together(_BACKLOG),
        "in_use": together(_IN_USE),
        "slots": None if named[0][0] == b"rdma" else slots,  # whose further numbers have another meaning
    }


def _options(words: Sequence[bytes]) -> dict[str, str]:
    found: dict[str, str] = {}
    for option in text(b"".join(words[:1])).split(","):
        name, _, value = option.partition("=")
        found.setdefault(name, value)
    return found


def _settings(options: Mapping[str, str]) -> dict[str, int]:
    found = {name: parse_counter(options[name].encode()) for name in _OPTIONS if name in options}
    return {name: value for name, value in found.items() if value is not None} | (
        {"sync": 1} if "sync" in options else {}
    )
