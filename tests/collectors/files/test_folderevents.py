"""The events of folders are read by one thread while another opens files."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ckptprof_collectors.files.folderevents import IN_CLOSE_NOWRITE, IN_OPEN, FolderEvents


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Let the interpreter change threads as often as it can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_files_may_be_noted_while_events_are_read(tmp_path: Path, quick_switches: None) -> None:
    """A reader of facts notes its own openings from its thread: that must not end the sampler."""
    events, over = FolderEvents(), threading.Event()
    events.watch(bytes(tmp_path))

    def note() -> None:
        while not over.is_set():
            events.own(bytes(tmp_path / "a"))

    noting = threading.Thread(target=note)
    noting.start()
    seen = 0
    try:
        end = time.monotonic() + 0.4
        while time.monotonic() < end:
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
    events.watch(bytes(tmp_path))

    events.own(bytes(file))
    for _ in range(1 + others):
        with file.open("rb"):
            pass
    masks = [event.mask for event in events.read()]

    assert masks == [IN_OPEN, IN_CLOSE_NOWRITE] * others
