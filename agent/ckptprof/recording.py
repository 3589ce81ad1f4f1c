"""Recordings: the header and frames of a sampler, in a pipe or a file.

A pipe carries length-prefixed msgpack; a file is gzip of JSON lines, header first, readable with zcat.
"""

from __future__ import annotations

import gzip
import os
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import IO

import msgspec

from ckptprof import __version__
from ckptprof.errors import PermissionDeniedError, RecordingError
from ckptprof_collectors.samples import Frame

__all__ = ["FileWriter", "Frame", "Header", "Unpacker", "pack", "read_file"]

FORMAT = "ckptprof-recording"
VERSION = 1
MAX_FRAME_BYTES = 64 << 20
_LENGTH = struct.Struct("<I")
_MANY_DIGITS = re.compile(rb"[0-9]{20}|[0-9][eE]\+?[0-9]{2}")


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of a recording."""

    format: str = FORMAT
    version: int = VERSION
    uid: str  # of this session of the sampler
    host: str
    boot_id: str
    kernel: str
    ckptprof: str
    level: str  # effective level: trace | poll
    at_ns: int  # CLOCK_MONOTONIC of the start
    wall_ns: int  # CLOCK_REALTIME of the start
    ticks_per_second: int  # of utime and stime
    page_size: int
    monitor_pids: tuple[int, ...] = ()  # ckptprof's own processes, never a job
    root_pid: int | None = None  # the command of `ckptprof run`: only it and its descendants are monitored
    note: str = ""
    level_reason: str = ""  # of poll: why tracing is unavailable, if requested; of trace: what it does not cover here
    cores: int | None = None  # processors of the host
    level_denied: bool = False  # tracing lacks only a privilege


class _Stamp(msgspec.Struct, frozen=True):
    """The part of a header common to all format versions."""

    format: str
    version: int
    ckptprof: str = "unknown"


_A_RECORDING = "give the path of a file that `ckptprof capture` wrote"
_encoder = msgspec.msgpack.Encoder()
_decode_frame = msgspec.msgpack.Decoder(Frame).decode
_decode_header = msgspec.msgpack.Decoder(Header).decode
_DAMAGE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)  # raised by msgspec for arbitrary bytes


def pack(message: Header | Frame) -> bytes:
    """Encode a message as a length-prefixed block for a pipe."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


class Unpacker:
    """Decodes the bytes of a pipe, in pieces of any size, into the header (first) and frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._have_header = False

    def feed(self, data: bytes) -> Iterator[Header | Frame]:
        """Add data, and yield all complete messages; raises RecordingError for a foreign stream.

        Messages are decoded lazily: the frames of a busy second take twenty times the memory of their bytes.
        """
        self._buffer += data
        return self._complete()

    def _complete(self) -> Iterator[Header | Frame]:
        buffer = self._buffer
        while len(buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer)
            if length > MAX_FRAME_BYTES:
                raise RecordingError(f"a frame of {length} bytes: not a stream of ckptprof")
            end = _LENGTH.size + length
            if len(buffer) < end:
                break
            body = bytes(memoryview(buffer)[_LENGTH.size : end])
            del buffer[:end]
            try:
                message = _decode_frame(body) if self._have_header else _decode_header(body)
            except _DAMAGE as error:
                raise RecordingError(f"a damaged frame: {error}") from error
            del body
            self._have_header = True
            yield message
            del message  # free it before decoding the next one


class FileWriter:
    """Writes a recording to a file."""

    def __init__(self, stream: IO[bytes], header: Header) -> None:
        self._gzip = gzip.GzipFile("", fileobj=stream, mode="wb", compresslevel=6, mtime=0)
        self._encoder = msgspec.json.Encoder()
        self._write(header)

    def _write(self, message: Header | Frame) -> None:
        self._gzip.write(self._encoder.encode(message) + b"\n")

    def write(self, frame: Frame) -> None:
        """Append one frame; raises OSError."""
        self._write(frame)

    def flush(self) -> None:
        """Flush to the kernel, so that it survives a kill; raises OSError."""
        self._gzip.flush()

    def close(self) -> None:
        """Finish the compressed stream; the file itself stays open."""
        self._gzip.close()


def read_file(path: Path, *, on_progress: Callable[[float], None] = lambda _: None) -> tuple[Header, Iterator[Frame]]:
    """Open a recording; raises RecordingError, immediately for the header and during iteration for frames.

    `on_progress` is called for each line with the share of the file read so far. Raises PermissionDeniedError without
    read permission.
    """
    lines = _lines(path, on_progress)
    try:
        first = next(lines)
    except StopIteration:
        raise RecordingError(f"{path}: empty", hint=_A_RECORDING) from None
    header = _header(path, first)
    return header, _frames(path, header, lines)


def _header(path: Path, line: bytes) -> Header:
    """Decode the header; raises RecordingError."""
    try:
        stamp = msgspec.json.decode(line, type=_Stamp)
        if stamp.format != FORMAT:
            raise RecordingError(f"{path}: not a recording of ckptprof", hint=_A_RECORDING)
        if stamp.version > VERSION:
            raise RecordingError(
                f"{path}: recorded by a newer ckptprof "
                f"({stamp.ckptprof}, format {stamp.version}; this one reads up to {VERSION})",
                hint="upgrade ckptprof here, or replay it where it was recorded",
            )
        _check_numbers(line)
        header = msgspec.json.decode(line, type=Header)
    except _DAMAGE as error:
        raise RecordingError(f"{path}: not a recording of ckptprof ({error})", hint=_A_RECORDING) from error
    if min(header.ticks_per_second, header.page_size) < 1:
        raise RecordingError(f"{path}: not a recording of ckptprof (impossible units)", hint=_A_RECORDING)
    return header


def _check_numbers(line: bytes) -> None:
    """Raise msgspec.ValidationError for numbers beyond 64 bits, which the kernel never reports."""
    if _MANY_DIGITS.search(line) is None:  # fast path for nearly every line
        return
    inside = [msgspec.json.decode(line)]
    while inside:
        value = inside.pop()
        if isinstance(value, dict):
            inside.extend(value.values())
        elif isinstance(value, list):
            inside.extend(value)
        elif isinstance(value, (int, float)) and not -(1 << 63) <= value < 1 << 64:
            raise msgspec.ValidationError(f"a number of {len(str(value))} digits")


def _lines(path: Path, on_progress: Callable[[float], None]) -> Iterator[bytes]:
    try:
        with path.open("rb") as raw:
            size_bytes = os.fstat(raw.fileno()).st_size
            plain = raw.read(2) != b"\x1f\x8b"
            raw.seek(0)
            stream: BufferedReader | gzip.GzipFile = raw if plain else gzip.GzipFile(fileobj=raw, mode="rb")
            while line := stream.readline(MAX_FRAME_BYTES):
                yield line
                on_progress(min(1.0, raw.tell() / size_bytes) if size_bytes else 0.0)
    except PermissionError as error:
        hint = "ask its owner for it, or read it as root"
        raise PermissionDeniedError(f"{path}: {error.strerror}", hint=hint) from error
    except EOFError as error:
        raise RecordingError(f"{path}: truncated", hint="the recorder was killed, or the copy is incomplete") from error
    except (OSError, zlib.error) as error:
        if isinstance(error, OSError) and error.strerror:
            raise RecordingError(f"{path}: {error.strerror}", hint=_A_RECORDING) from error
        raise RecordingError(f"{path}: damaged: {error}", hint="copy it again from where it was recorded") from error


def _frames(path: Path, header: Header, lines: Iterator[bytes]) -> Iterator[Frame]:
    decode = msgspec.json.Decoder(Frame).decode
    for number, line in enumerate(lines, start=2):
        try:
            _check_numbers(line)
            yield decode(line)
        except _DAMAGE as error:  # noqa: PERF203 - the line's number is wanted
            hint = "copy it again from where it was recorded"
            if header.ckptprof != __version__:
                hint += f", or replay it with ckptprof {header.ckptprof}, which recorded it; this is {__version__}"
            raise RecordingError(f"{path}: line {number} is damaged: {error}", hint=hint) from error
