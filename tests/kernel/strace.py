"""What strace says of a run: operations per file, direction and thread, with the offset of each.

`strace -ff` writes one file per thread, so no line is ever split between two; they are put in order by their times
(nanoseconds): a descriptor is there when open returns, and gone when close begins. Positions follow from open, lseek,
read and write, in a table of descriptors for each process, as in the kernel: threads share it, a fork copies it, copies
of a descriptor share one position.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

CALLS = (
    "open,openat,openat2,creat,close,close_range,dup,dup2,dup3,fcntl,lseek,read,write,readv,writev,pread64,pwrite64,"
    "preadv,pwritev,preadv2,pwritev2,sendfile,copy_file_range,splice,mmap,clone,clone3,fork,vfork,fsync,fdatasync,"
    "rename,renameat,renameat2,unlink,unlinkat,ftruncate"
)
_LINE = re.compile(
    r"(?P<at>\d+\.\d+) (?P<name>\w+)\((?P<arguments>.*)\) += (?P<result>-?\d+|0x[0-9a-f]+|\?)(?P<rest>.*)$"
)
_ANNOTATION = re.compile(r"<(?:[^<>\\]|\\.)*>")
_TAKEN = re.compile(r" <(\d+\.\d+)>$")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"(?:\.\.\.)?')
_FORKS = ("clone", "clone3", "fork", "vfork")
_OPENS = ("open", "openat", "openat2", "creat")


@dataclass
class _Open:
    path: str
    position: int = 0


@dataclass
class Account:
    """What a run did, by strace."""

    sessions: dict[tuple[str, bool], list[list[tuple[int, int]]]] = field(default_factory=lambda: defaultdict(list))
    mapped: set[str] = field(default_factory=set)
    synced: list[str] = field(default_factory=list)
    _running: dict[tuple[str, bool, int], list[tuple[int, int]]] = field(default_factory=dict)

    def moved(self, path: str, thread: int, offset: int, length: int, *, writes: bool) -> None:
        """Note one operation: of the session of its thread, file and direction, that lasts until a close."""
        if length > 0:
            self._running.setdefault((path, writes, thread), []).append((offset, length))

    def closed(self, path: str, path_now: str, thread: int) -> None:
        """End the sessions that this thread has on the file, which may have been renamed."""
        for writes in (False, True):
            session = self._running.pop((path, writes, thread), None)
            if session is not None:
                self.sessions[path_now, writes].append(session)

    def end(self) -> None:
        """End what was never closed."""
        for path, _, thread in list(self._running):
            self.closed(path, path, thread)


def command(strace: str, directory: Path, job: Sequence[str | Path]) -> list[str | Path]:
    """Return a command line that runs the job under strace, with its accounts in the directory."""
    options = [
        "-ff",
        "-y",
        "-s",
        "0",
        "--seccomp-bpf",
        "--timestamps=unix,ns",
        "--syscall-times=ns",
        "-e",
        f"trace={CALLS}",
        "-e",
        "signal=none",
    ]
    return [strace, *options, "-o", directory / "call", "--", *job]


def account_of(directory: Path) -> Account:
    """Read what `command` left behind."""
    replay = _Replay()
    for thread, line in _lines(directory):
        match = _LINE.match(line)
        if match is not None and match["result"] != "?":
            replay.call(thread, match["name"], match["arguments"], int(match["result"], 0), match["rest"])
    replay.account.end()
    return replay.account


def _lines(directory: Path) -> Iterator[tuple[int, str]]:
    lines = []
    for file in directory.glob("call.*"):
        thread = int(file.name.rpartition(".")[2])
        for line in file.read_text(errors="surrogateescape").splitlines():
            at, _, call = line.partition(" ")
            taken = _TAKEN.search(call) if call.startswith(_OPENS) else None
            lines.append((Decimal(at) + Decimal(taken[1] if taken else 0), thread, line))
    for _, thread, line in sorted(lines):
        yield thread, line


def _path_in(annotated: str) -> str:
    found = _ANNOTATION.search(annotated)
    return found[0][1:-1] if found else "?"


def _words(arguments: str) -> list[str]:
    """Return the arguments without strings, paths and what braces hold."""
    bare = _STRING.sub("S", _ANNOTATION.sub("", arguments))
    for _ in range(3):
        bare = re.sub(r"\[[^\[\]]*\]|\{[^{}]*\}", lambda match: match[0].strip("[]").replace(",", ";"), bare)
    return [word.strip() for word in bare.split(",")]


class _Replay:
    """The descriptors of every process, as the calls of strace change them."""

    def __init__(self) -> None:
        self.account = Account()
        self._process_of: dict[int, int] = {}
        self._tables: dict[int, dict[int, _Open]] = defaultdict(dict)

    def call(self, thread: int, name: str, arguments: str, result: int, rest: str) -> None:
        """Take one call; a failed one changes nothing."""
        process = self._process_of.setdefault(thread, thread)
        if result < 0:
            return
        if name in _FORKS:
            if result > 0:
                self._forked(process, result, shares="CLONE_THREAD" in arguments)
            return
        table, words = self._tables[process], _words(arguments)
        fd = int(words[0]) if words[0].isdigit() else -1
        if name in _OPENS:
            table[result] = _Open(_path_in(rest))
        elif name == "copy_file_range":
            self._between(table, thread, ((words[0], words[1]), (words[2], words[3])), result)
        elif name == "sendfile":
            self._between(table, thread, ((words[1], words[2]), (words[0], "NULL")), result)
        elif name == "mmap" and words[4].isdigit() and int(words[4]) in table:
            self.account.mapped.add(table[int(words[4])].path)
        elif fd in table:
            self._used(table, fd, thread, (name, words, result, arguments))

    def _forked(self, process: int, child: int, *, shares: bool) -> None:
        self._process_of[child] = process if shares else child
        if not shares:
            self._tables[child] = dict(self._tables[process])

    def _used(self, table: dict[int, _Open], fd: int, thread: int, call: tuple[str, list[str], int, str]) -> None:
        name, words, result, arguments = call
        opened = table[fd]
        if name in ("dup", "dup2", "dup3") or (name == "fcntl" and words[1].startswith("F_DUPFD")):
            table[result] = opened
        elif name == "close":
            self.account.closed(opened.path, _path_in(arguments), thread)
            del table[fd]
        elif name == "lseek":
            opened.position = result
        elif name in ("fsync", "fdatasync"):
            self.account.synced.append(opened.path)
        elif name in ("read", "readv", "write", "writev"):
            self.account.moved(opened.path, thread, opened.position, result, writes=name.startswith("write"))
            opened.position += result
        elif name.startswith(("pread", "pwrite")):
            offset = int(words[-2] if name.endswith("v2") else words[-1])
            self.account.moved(opened.path, thread, offset, result, writes=name.startswith("pw"))

    def _between(
        self, table: dict[int, _Open], thread: int, ends: tuple[tuple[str, str], tuple[str, str]], length: int
    ) -> None:
        for (fd, offset), writes in zip(ends, (False, True), strict=True):
            opened = table.get(int(fd))
            if opened is None:
                continue
            if offset == "NULL":
                self.account.moved(opened.path, thread, opened.position, length, writes=writes)
                opened.position += length
            else:  # "[100] => [200]" or "[100]": what the caller's offset was before comes first
                self.account.moved(opened.path, thread, int(offset.split()[0].strip("[]")), length, writes=writes)
