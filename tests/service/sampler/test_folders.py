"""What is heard of a checkpoint that is written again under its old name, and of other small files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.patience import PATIENCE_SECONDS, wait_until

from ckptprof.service.sampler.watched_folders import WAKING_BYTES, WatchedFolders
from ckptprof_collectors.files.folder_events import FolderEvents
from ckptprof_collectors.files.process_roots import OWN_PROCESS
from ckptprof_collectors.samples import FileEvent


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[WatchedFolders]:
    """Give what watches the folder of this test, as this process sees it."""
    watched = WatchedFolders()
    watched.watch(bytes(tmp_path), OWN_PROCESS)
    (tmp_path / "known").write_bytes(bytes(WAKING_BYTES))

    def known() -> bool:
        (tmp_path / "known").open("rb").close()
        return any(event.size for event in watched.consume())

    wait_until(known)
    yield watched
    watched.close()


def heard(watched: WatchedFolders, kind: str, size: int, seconds: float = PATIENCE_SECONDS) -> FileEvent | None:
    """Return the first such event; others may look into the folder, too, as an agent of this host does."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        watched.is_woken, watched.opened = False, None
        for event in watched.consume():
            if (event.kind, event.size) == (kind, size):
                return event
        time.sleep(0.005)
    return None


@pytest.mark.xdist_group("live")
def test_a_large_file_that_is_emptied_to_be_written_again_is_told_of_at_its_opening(
    folders: WatchedFolders, tmp_path: Path
) -> None:
    """It is empty then, as a new file is; and a look is worth while at once."""
    with (tmp_path / "known").open("wb"):
        opened = heard(folders, "opened", 0)
        woken = folders.is_woken
    closed = heard(folders, "closed-written", 0)

    assert opened is not None
    assert closed is not None
    assert woken


@pytest.mark.xdist_group("live")
@pytest.mark.parametrize("closed", [False, True])
def test_a_file_that_is_closed_again_starts_no_burst(folders: WatchedFolders, tmp_path: Path, *, closed: bool) -> None:
    """As another agent does, which reads its first bytes; the tick tells whether a process has read more."""
    with (tmp_path / "known").open("rb") as file:
        if closed:
            file.close()
        opened = heard(folders, "opened", WAKING_BYTES)
        woken = folders.is_woken, folders.opened

    assert opened is not None
    assert woken == (True, None if closed else True)


@pytest.mark.xdist_group("live")
def test_a_file_that_was_never_large_is_not_told_of(folders: WatchedFolders, tmp_path: Path) -> None:
    """A log or a lock is opened all the time."""
    (tmp_path / "log").write_bytes(b"a line")
    (tmp_path / "log").write_bytes(b"another one")

    assert heard(folders, "closed-written", len(b"another one"), 0.5) is None


@pytest.mark.xdist_group("live")
def test_a_large_file_that_is_renamed_into_the_folder_is_told_of(folders: WatchedFolders, tmp_path: Path) -> None:
    """Written elsewhere on the same file system, as by who makes a file whole before anybody can read it."""
    (tmp_path / "elsewhere").mkdir()
    written = tmp_path / "elsewhere" / "tmpab12cd34"
    written.write_bytes(bytes(2 * WAKING_BYTES))
    inode = written.stat().st_ino
    written.rename(tmp_path / "step_1.pt")

    told = heard(folders, "renamed", 2 * WAKING_BYTES)

    assert told is not None
    assert (told.inode, told.path) == (inode, str(tmp_path / "step_1.pt"))


@pytest.mark.xdist_group("live")
def test_what_is_deleted_is_told_of_whatever_its_size(folders: WatchedFolders, tmp_path: Path) -> None:
    """A file, and a folder, whose own files may be in no watched folder."""
    (tmp_path / "step_1").mkdir()
    (tmp_path / "step_1").rmdir()
    folder = heard(folders, "deleted", 0)
    (tmp_path / "known").unlink()
    file = heard(folders, "deleted", 0)

    assert folder is not None
    assert file is not None
    assert (folder.path, file.path) == (str(tmp_path / "step_1"), str(tmp_path / "known"))


def test_while_nothing_happens_nothing_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tick asks; a folder that is watched has its events read once there are some."""
    reads: list[int] = []
    kernels = FolderEvents.read
    monkeypatch.setattr(FolderEvents, "read", lambda self: reads.append(self.fd) or kernels(self))
    watched = WatchedFolders()
    quiet = [watched.consume() for _ in range(5)]
    before = len(reads)
    watched.watch(bytes(tmp_path), OWN_PROCESS)

    def made() -> bool:
        (tmp_path / "new").touch()
        (tmp_path / "new").unlink()
        watched.consume()
        return watched.is_woken

    wait_until(made)
    watched.close()

    assert quiet == [[]] * 5
    assert before == 0
    assert reads
