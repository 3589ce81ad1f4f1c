"""What happens to the folder of the database while an agent records: full, read-only, failing, gone, swapped."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from livecommand import fill
from tests.kernel.filesystems import call
from tests.store.grounds import LOG_LOST, ground, memory

from proofs.proving import Live, Row, live, logged, place, saving, say

SIZE, SAVE_SECONDS, PAUSE_SECONDS = 16 << 20, 0.2, 0.7
BROKEN_SECONDS = 8.0
STORED_SECONDS = 60.0
FOREIGN = 65534
_SAYS = "not storing for now"
PROMISED = "it is said; it goes on seeing; afterwards every event is stored, and none of before is lost"


@dataclass(frozen=True)
class Trouble:
    """How the folder is broken and mended; `make` gives it first, `says` is what the agent is to say of it."""

    name: str
    done: str
    make: Callable[[Path], contextlib.AbstractContextManager[tuple[Callable[[], None], Callable[[], None]]]]
    says: str = _SAYS
    stores_meanwhile: bool = False  # somewhere else, so that nothing waits for the mending
    begins_anew: bool = False  # what was stored before is elsewhere


Ways = tuple[Callable[[], None], Callable[[], None]]


@contextlib.contextmanager
def _full(state: Path) -> Iterator[Ways]:
    with memory(state, "2m"):
        yield lambda: fill(state), (state / "filler").unlink


@contextlib.contextmanager
def _read_only(state: Path) -> Iterator[Ways]:
    with ground(state.parent, "ext4", state, "noatime,errors=remount-ro") as disk, contextlib.ExitStack() as later:

        def mend() -> None:  # such a file system stays so until it is mounted anew: another takes its place
            call("umount", "--lazy", state)
            later.enter_context(memory(state, "64m"))

        yield disk.error, mend


@contextlib.contextmanager
def _failing(state: Path) -> Iterator[Ways]:
    """Each write that needs a new block of the device fails with EIO: the file below the loop device has no room."""
    below = state.parent / "below"
    with memory(below, "40m"), ground(below, "ext4-plain", state, "noatime,errors=continue"):
        yield lambda: fill(below), (below / "filler").unlink


@contextlib.contextmanager
def _vanished(state: Path) -> Iterator[Ways]:
    yield lambda: shutil.rmtree(state), lambda: None


@contextlib.contextmanager
def _swapped(state: Path) -> Iterator[Ways]:
    """Another user's folder takes its place, in which a link of the database's name leads to a file of root."""
    away, theirs, victim = (state.with_name(name) for name in ("away", "theirs", "victim"))
    theirs.mkdir()
    victim.touch(0o600)
    (theirs / "ckptprof.db").symlink_to(victim)
    for path in (theirs, theirs / "ckptprof.db"):
        os.chown(path, FOREIGN, FOREIGN, follow_symlinks=False)

    def swap() -> None:
        state.rename(away)
        theirs.rename(state)

    def mend() -> None:
        state.rename(theirs)
        away.rename(state)
        names = sorted(path.name for path in theirs.iterdir())
        if victim.stat().st_size or names != ["ckptprof.db"]:
            raise RuntimeError(f"written: {names} into another user's folder, {victim.stat().st_size} through its link")

    yield swap, mend


TROUBLES = (
    Trouble("full", "a tmpfs of 2 MiB is filled to the last byte", _full),
    Trouble("read-only", "ext4 turns read-only after an error of its own; another file system takes its place",
            _read_only, begins_anew=True),
    Trouble("EIO", "each write to a new block fails with EIO: a loop device whose own file has no room", _failing),
    Trouble("vanished", "the folder is deleted", _vanished, "was removed", stores_meanwhile=True, begins_anew=True),
    Trouble("swapped", "the folder is swapped for another user's, with a link to a file of root in it", _swapped),
)  # fmt: skip


def stored(database: Path) -> tuple[set[str], bool]:
    """Return the events of a database, and whether it is whole."""
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        whole = connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return {path for (path,) in connection.execute("SELECT uid FROM checkpoints")}, whole
    finally:
        connection.close()


def prove(only: str = "") -> list[Row]:
    """Break and mend each once, or those whose name begins so."""
    rows = []
    for trouble in TROUBLES:
        if not trouble.name.startswith(only):
            continue
        with place() as work, live(work) as agent:
            try:
                rows.append(_prove(trouble, work, agent))
            except RuntimeError as error:
                rows.append(Row(f"disks: {trouble.name}", trouble.done, PROMISED, str(error)[-300:], holds=False))
        say(f"disks: {trouble.name}")
    return rows


def _prove(trouble: Trouble, work: Path, agent: Live) -> Row:
    state = work / "state"
    state.mkdir()
    with trouble.make(state) as (breaks, mends), saving(work, SIZE, SAVE_SECONDS, PAUSE_SECONDS) as truth:
        agent.start()
        time.sleep(9)
        before, _ = stored(agent.database)
        broken_ns = time.time_ns()
        breaks()
        time.sleep(BROKEN_SECONDS)
        mended_ns = time.time_ns()
        mends()
        time.sleep(5)
        during = [one["path"] for one in logged(truth) if broken_ns < one["start_ns"] < mended_ns]
        until = time.monotonic() + STORED_SECONDS
        found: set[str] = set()
        while not {*during} <= found and time.monotonic() < until:
            time.sleep(0.5)
            with contextlib.suppress(RuntimeError):
                found = {one["path"] for one in agent.saves()}
        seconds = max(0.0, STORED_SECONDS - (until - time.monotonic())) + 5
        code = agent.end()
        after, whole = stored(agent.database)
        says = agent.said().count(trouble.says)
    kept = trouble.begins_anew or before <= after
    missing = len({*during} - found)
    seen = f"{len(during)} saves while it was broken, {missing} of them not stored {seconds:.0f} s after the mending; "
    seen += "nothing of before lost; " if kept else f"{len(before - after)} of before lost; "
    seen += f"said {says} times; exit code {code}" + ("" if whole else "; the database is damaged")
    holds = not missing and kept and whole and code == 0 and says >= 1
    return Row(f"disks: {trouble.name}", trouble.done, PROMISED, seen, holds)


def shutdowns(count: int) -> list[Row]:
    """Shut the file system down so many times below an agent that records."""
    lost = corrupt = unsaid = acknowledged = 0
    with place() as work, live(work) as agent, saving(work, 16 << 20, 0.2, 0.6):
        for number in range(count):
            with ground(work, ("ext4", "xfs")[number % 2], work / "state") as disk:
                agent.start()
                time.sleep(7 + number % 3)
                before, _ = stored(agent.database)
                already = agent.said().count("not storing for now")
                disk.shut_down(LOG_LOST)
                time.sleep(5)
                unsaid += agent.said().count("not storing for now") == already
                agent.end()
                disk.unmount()
                disk.mount()
                after, whole = stored(agent.database)
                agent.start()
                agent.end()
                again, still = stored(agent.database)
            acknowledged += len(before)
            corrupt += not whole + (not still)
            lost += len(before - after) + len(before - again)
            say(f"shutdowns: agent: {number + 1} of {count}")
    return [
        Row(
            "shutdowns: agent",
            f"{count} below the folder of a running agent while a job saves; {acknowledged} events were stored before",
            "0 of them lost, 0 corrupt; the agent says that it does not store, and goes on",
            f"{lost} lost, {corrupt} corrupt, {unsaid} times not said",
            lost + corrupt + unsaid == 0,
        )
    ]
