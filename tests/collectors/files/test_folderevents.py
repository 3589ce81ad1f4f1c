"""The events of folders are read by one thread while another opens files."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ckptprof_collectors.files import folder_events
from ckptprof_collectors.files.folder_events import IN_CLOSE_NOWRITE, IN_OPEN, FolderEvents


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Let the interpreter change threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def watch(events: FolderEvents, folder: Path) -> None:
    """Watch a folder."""
    fd = os.open(folder, os.O_PATH)
    assert events.record_added(bytes(folder), events.add(fd))
    os.close(fd)


def test_files_may_be_noted_while_events_are_read(tmp_path: Path, quick_switches: None) -> None:
    """A reader of facts notes its own openings from its thread: that must not end the sampler."""
    events, over = FolderEvents(), threading.Event()
    watch(events, tmp_path)

    def note() -> None:
        while not over.is_set():
            events.expect_own(bytes(tmp_path / "a"))

    noting = threading.Thread(target=note)
    noting.start()
    seen = 0
    try:
        for _ in range(1000):
            (tmp_path / "b").write_bytes(b"1")
            seen += len(events.read())
    finally:
        over.set()
        noting.join()

    assert seen > 0


@pytest.mark.parametrize("others", [0, 1, 2])
def test_who_opens_a_file_just_when_we_look_into_it_is_told(tmp_path: Path, others: int) -> None:
    """A restore may begin while the files that an earlier run saved are asked for the last time."""
    file, events = tmp_path / "layer.npy", FolderEvents()
    file.write_bytes(b"1")
    watch(events, tmp_path)

    events.expect_own(bytes(file))
    for _ in range(1 + others):
        with file.open("rb"):
            pass
    masks = [event.mask for event in events.read()]

    assert masks == [IN_OPEN, IN_CLOSE_NOWRITE] * others


def test_what_happens_before_a_watch_is_taken_note_of_is_told_then(tmp_path: Path) -> None:
    """A thread adds the watch, and the answer comes a moment after the first event."""
    events, fd = FolderEvents(), os.open(tmp_path, os.O_PATH)
    descriptor = events.add(fd)
    os.close(fd)
    (tmp_path / "a").write_bytes(b"1")
    early = events.read()
    events.record_added(bytes(tmp_path), descriptor)

    assert early == []
    assert {event.path for event in events.read()} == {bytes(tmp_path / "a")}
    assert events.read() == []


def test_a_folder_that_is_emptied_stays_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint of a thousand files is deleted in a second; as many openings are a data set, and no longer told."""
    monkeypatch.setattr(folder_events, "MAX_EVENTS_PER_SECOND", 10)
    files, events = [tmp_path / f"{number}.distcp" for number in range(20)], FolderEvents()
    for file in files:
        file.touch()
    watch(events, tmp_path)

    def after(act: Callable[[Path], object]) -> bool:
        for file in files:
            act(file)
        events.read()
        monkeypatch.setattr(events, "_counted_ns", 0)  # a second ago
        events.read()
        (tmp_path / "later").touch()
        return bool(events.read())

    assert after(Path.unlink)
    assert not after(Path.touch)
