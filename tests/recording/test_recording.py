"""Recordings as a stream of bytes: in a pipe in whatever pieces, in a file, damaged, newer or none at all."""

from __future__ import annotations

import gzip
import io
import itertools
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptprof.errors import RecordingError
from ckptprof.recording import MAX_FRAME_BYTES, FileWriter, Frame, Header, Unpacker, pack, read_file
from ckptprof_collectors.samples import ProcessExit, ProcessInfo

HEADER = Header(
    uid="u", host="h", boot_id="b", kernel="k", ckptprof="0", level="poll", at_ns=1, wall_ns=2, ticks_per_second=100,
    page_size=4096,
)  # fmt: skip
HOSTILE = ProcessInfo(1, 2, 0, 0, "\x1b[2J\n\u2028<b>", "\\xff\x00", ("torch",), {"RANK": "'\""}, None)
FRAMES = [Frame(number, number, ("processes",), (ProcessExit(number, 1), HOSTILE)) for number in range(5)]


def written(path: Path, frames: list[Frame] = FRAMES, header: Header = HEADER) -> Path:
    """Write a recording to `path`."""
    with path.open("wb") as stream:
        writer = FileWriter(stream, header)
        for frame in frames:
            writer.write(frame)
        writer.close()
    return path


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60))
def test_a_pipe_may_deliver_in_any_pieces(lengths: list[int]) -> None:
    """The header first, then every frame, as soon as its last byte is there."""
    stream = io.BytesIO(b"".join(map(pack, [HEADER, *FRAMES])))
    unpacker = Unpacker()
    found: list[Header | Frame] = []
    for length in lengths:
        found += unpacker.feed(stream.read(length))
    found += unpacker.feed(stream.read())

    assert found == [HEADER, *FRAMES]


@pytest.mark.parametrize(
    "data", [b"\xff\xff\xff\xff", b"\x01\x00\x00\x00\xc1", b"\x02\x00\x00\x00{}", b"GET / HTTP/1.1\r\n\r\n"]
)
def test_a_pipe_that_carries_something_else_is_refused(data: bytes) -> None:
    """At once, before anything is stored for it."""
    with pytest.raises(RecordingError):
        list(Unpacker().feed(data))


def test_a_crowd_of_frames_is_decoded_one_at_a_time() -> None:
    """A second frame that is damaged is found when it is asked for, and what was not taken is still there later."""
    unpacker = Unpacker()
    messages = unpacker.feed(b"".join(map(pack, [HEADER, *FRAMES])) + b"\x01\x00\x00\x00\xc1")

    assert [next(messages), next(messages)] == [HEADER, FRAMES[0]]
    later = unpacker.feed(b"")
    assert [next(later) for _ in FRAMES[1:]] == FRAMES[1:]
    with pytest.raises(RecordingError, match="damaged"):
        next(later)


def test_a_frame_that_is_too_long_is_refused_before_it_is_buffered() -> None:
    """A broken length does not fill the memory."""
    with pytest.raises(RecordingError, match="not a stream"):
        next(Unpacker().feed((MAX_FRAME_BYTES + 1).to_bytes(4, "little")))


def test_a_file_holds_what_was_written(tmp_path: Path) -> None:
    """Header and frames, hostile names included."""
    header, frames = read_file(written(tmp_path / "r.gz"))

    assert (header, list(frames)) == (HEADER, FRAMES)


def test_a_file_may_be_unpacked_and_read_by_a_person(tmp_path: Path) -> None:
    """Plain JSON lines are read as well."""
    plain = tmp_path / "r.json"
    plain.write_bytes(gzip.decompress(written(tmp_path / "r.gz").read_bytes()))

    assert next(json.loads(line) for line in plain.read_text().splitlines())["host"] == "h"
    assert list(read_file(plain)[1]) == FRAMES


@pytest.mark.parametrize(
    "content",
    [b"", b"\x1f\x8b", b"{}\n", b"[]\n", b"hello\n", b"\xff\xfe\n", b'{"format": "other"}\n', bytes(100), b"\n"],
)
def test_a_file_that_is_no_recording_is_told_so(tmp_path: Path, content: bytes) -> None:
    """With its name, at once."""
    path = tmp_path / "r"
    path.write_bytes(content)

    with pytest.raises(RecordingError, match="r: "):
        read_file(path)


def test_what_is_no_file_is_told_so(tmp_path: Path) -> None:
    """A folder; nothing at all."""
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(RecordingError):
            read_file(path)


def test_a_newer_recording_asks_for_a_newer_ckptprof(tmp_path: Path) -> None:
    """It is not guessed at."""
    path = written(tmp_path / "r.gz", [], msgspec.structs.replace(HEADER, version=99))

    with pytest.raises(RecordingError, match="newer") as raised:
        read_file(path)
    assert raised.value.hint


def test_a_recording_that_was_cut_off_gives_what_it_has(tmp_path: Path) -> None:
    """Kill -9 of a capture leaves the frames that reached the disk; the end is told as what it is."""
    path = written(tmp_path / "r.gz", FRAMES * 2000)
    path.write_bytes(path.read_bytes()[:-500])
    _, frames = read_file(path)
    found = list(itertools.islice(frames, 1000))

    assert found == (FRAMES * 200)[:1000]
    with pytest.raises(RecordingError):
        list(frames)


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b"[1,2]",
        b"\xff\xfe",
        b'[1,2,["\xff"],[]]',  # no UTF-8
        b"[1,%d,[],[]]" % (1 << 64),  # no counter of a kernel
        b"[1,-1e99,[],[]]",
        b'[1,2,["processes"],[["exit","x",1]]]',
        b"[" * 100_000,
    ],
)
def test_a_damaged_frame_is_told_with_its_line(tmp_path: Path, line: bytes) -> None:
    """Whatever stands there."""
    path = tmp_path / "r"
    path.write_bytes(msgspec.json.encode(HEADER) + b"\n" + msgspec.json.encode(FRAMES[0]) + b"\n" + line + b"\n")

    with pytest.raises(RecordingError, match="line 3"):
        list(read_file(path)[1])


@pytest.mark.parametrize("field", ["ticks_per_second", "page_size"])
def test_a_header_with_impossible_units_is_refused(tmp_path: Path, field: str) -> None:
    """Nobody divides by it later."""
    path = written(tmp_path / "r.gz", [], msgspec.structs.replace(HEADER, **{field: 0}))

    with pytest.raises(RecordingError):
        read_file(path)


def test_the_same_frames_make_the_same_file(tmp_path: Path) -> None:
    """No time of writing is in it."""
    assert written(tmp_path / "a").read_bytes() == written(tmp_path / "b").read_bytes()
