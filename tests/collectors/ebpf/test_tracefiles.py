"""Records and values of the eBPF maps become samples, whatever is in them."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptprof_collectors.ebpf.file_records import HEAD, SampleDecoder, parse_record
from ckptprof_collectors.ebpf.layouts import FileSession, PathState, RecordHead, RecordKind, SessionKey
from ckptprof_collectors.files.process_roots import ProcessKey
from ckptprof_collectors.samples import FileActivity, FileLifeEvent

BTRFS = 0x9123683E


def key(**changes: int) -> SessionKey:
    """Return the key of a session."""
    given_ = {"inode": 77, "device": 8 << 20 | 1, "generation": 5, "tid": 43, "tail": 9 << 1 | 1} | changes
    return SessionKey(**given_)


def session(**changes: int) -> FileSession:
    """Return a session of two writes."""
    made = FileSession(
        process_start_ns=12_340_000_000,
        operations=2,
        bytes=5000,
        consecutive_operations=2,
        first_ns=100,
        last_ns=200,
        process=42,
        comm=b"py\x1bthon",
        kinds=1,
    )
    made.sizes_operations[10], made.sizes_bytes[10] = 1, 1100
    made.sizes_operations[11], made.sizes_bytes[11] = 1, 3900
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def head(kind: RecordKind, names: bytes, state: PathState, **changes: int) -> bytes:
    """Return the head of a record that is followed by names."""
    made = RecordHead(
        kind=kind, path_state=state, path_bytes=len(names), process=42, process_start_ns=12_340_000_000, at_ns=7
    )
    made.key = key(**{name: changes.pop(name) for name in ("inode", "device") if name in changes})
    for name, value in changes.items():
        setattr(made, name, value)
    return bytes(made)


def decoder(proc: Path) -> SampleDecoder:
    """Return one that finds processes under `proc`."""
    return SampleDecoder(str(proc), 100)


def test_a_session_becomes_a_sample(tmp_path: Path) -> None:
    """Every number stands where it belongs."""
    data = head(RecordKind.SESSION, b"a.pt\0run\0", PathState.NAMES) + bytes(session(closed_ns=300)) + b"a.pt\0run\0"
    record = parse_record(data)
    assert record.session is not None

    sample = decoder(tmp_path).activity(record.key, record.session, record.names[0])

    assert isinstance(sample, FileActivity)
    assert (sample.path, sample.pid, sample.start_ticks, sample.tid) == ("/run/a.pt", 42, 1234, 43)
    assert (sample.device, sample.inode, sample.generation, sample.writes) == (os.makedev(8, 1), 77, 5, True)
    assert (sample.operations, sample.bytes, sample.closed_ns, sample.comm) == (2, 5000, 300, "py\x1bthon")
    assert sample.sizes == ((1024, 1, 1100), (2048, 1, 3900))
    assert sample.call_ns is None


def test_the_same_file_used_again_is_another_session(tmp_path: Path) -> None:
    """What begins at another time has another name."""
    make = decoder(tmp_path)

    first = make.activity(bytes(key()), bytes(session()), None)
    second = make.activity(bytes(key()), bytes(session(first_ns=101)), None)

    assert first.session != second.session


@pytest.mark.parametrize("state", [PathState.NONE, PathState.CUT])
def test_a_path_that_is_not_whole_is_none(state: PathState) -> None:
    """Half a path is no path."""
    record = parse_record(head(RecordKind.CREATED, b"a\0b\0", state) + b"a\0b\0")

    assert record.names == ()


def test_names_may_be_any_bytes(tmp_path: Path) -> None:
    """Escape codes, newlines and bytes that are no UTF-8 come through as text that can be stored."""
    names = b"\xff\n\x1b[31m.pt\0a b\0"
    record = parse_record(head(RecordKind.CREATED, names, PathState.NAMES) + names)
    event = decoder(tmp_path).life_event(record)

    assert isinstance(event, FileLifeEvent)
    assert event.path == "/a b/\\xff\n\x1b[31m.pt"


def test_a_rename_is_resolved_against_the_folder_of_its_process(tmp_path: Path) -> None:
    """A relative name is below the working directory, or below the folder that the call names."""
    (tmp_path / "42/fd").mkdir(parents=True)
    (tmp_path / "42/cwd").symlink_to("/work/run")
    (tmp_path / "42/fd/9").symlink_to("/ckpt")
    names = b"./x.tmp\0sub/../x.pt\0"
    flags = 0xFFFFFF9C | 9 << 32

    event = decoder(tmp_path).life_event(
        parse_record(head(RecordKind.RENAMED, names, PathState.STRINGS, flags=flags, inode=0) + names)
    )

    assert (event.kind, event.path, event.new_path) == ("renamed", "/work/run/x.tmp", "/ckpt/x.pt")
    assert (event.device, event.inode) == (None, None)


def test_a_process_that_is_gone_leaves_its_relative_names(tmp_path: Path) -> None:
    """They are told as they were given, unless the process has used such a file lately."""
    record = parse_record(head(RecordKind.UNLINKED, b"x\0", PathState.STRINGS, flags=0xFFFFFF9C, inode=0) + b"x\0")

    events = [decoder(tmp_path).life_event(record, recent) for recent in ([], ["/a/x", "/b/x", "/b/xx"])]
    assert [(event.path, event.is_guessed) for event in events] == [("x", False), ("/b/x", True)]


def test_a_subvolume_has_the_device_that_stat_gives(tmp_path: Path) -> None:
    """On btrfs the kernel's device of a file is not that of stat(2)."""
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    mine, ended = ProcessKey(os.getpid(), started), ProcessKey(os.getpid(), started - 1)
    make = decoder(tmp_path)

    assert make.device(8 << 20 | 1, BTRFS, mine, f"{tmp_path}/x") == tmp_path.stat().st_dev
    assert make.device(8 << 20 | 2, BTRFS, ended, f"{tmp_path}/x") == tmp_path.stat().st_dev
    assert make.device(8 << 20 | 1, BTRFS, mine, "/nowhere/x") == os.makedev(8, 1)
    assert make.device(8 << 20 | 1, 0xEF53, mine, f"{tmp_path}/x") == os.makedev(8, 1)


@given(st.binary(max_size=HEAD.size + 4096))
def test_no_record_breaks_it(data: bytes) -> None:
    """Anything as long as a head is taken apart, anything shorter is an error of struct."""
    if len(data) < HEAD.size:
        with pytest.raises(struct.error):
            parse_record(data)
    else:
        assert all(isinstance(name, str) for name in parse_record(data).names)


def test_a_close_is_told_at_its_end_with_the_path_of_its_session(tmp_path: Path) -> None:
    """The record itself carries none: the name went with the session that ended as the close began."""
    record = parse_record(head(RecordKind.CLOSED, b"", PathState.NONE, inode=77, at_ns=900, duration_ns=500))
    event = decoder(tmp_path).life_event(record, path="/ckpt/model.pt")

    assert (event.kind, event.at_ns, event.duration_ns) == ("closed-written", 900, 500)
    assert (event.path, event.inode, event.tid) == ("/ckpt/model.pt", 77, 43)


def test_a_sync_of_everything_is_about_no_file(tmp_path: Path) -> None:
    """sync(2); syncfs(2) tells the device."""
    record = parse_record(head(RecordKind.SYNCED, b"", PathState.NONE, inode=0, device=0, duration_ns=5))
    event = decoder(tmp_path).life_event(record)

    assert (event.kind, event.device, event.inode, event.path) == ("synced", None, None, None)
    whole = decoder(tmp_path).life_event(
        parse_record(head(RecordKind.SYNCED, b"", PathState.NONE, inode=0, duration_ns=5))
    )
    assert whole.device is not None
    assert whole.inode is None
