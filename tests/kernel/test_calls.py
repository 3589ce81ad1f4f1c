"""Every way to move bytes of a file, and every odd life of one: the trace says what the program itself logged."""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.kernel.order import Order, order_of
from tests.kernel.tracer import Seen, Tracer, difference, order_seen

from ckptprof_collectors.samples import FileActivity, OperationKind

pytestmark = [pytest.mark.root, pytest.mark.bpf, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("calls_program.py")
EXACT = (
    "vectored", "sendfile", "splice", "copy_file_range", "append", "sparse", "short", "refused", "threads",
    "left_open", "large",
)  # fmt: skip
KINDS = {
    "sendfile": OperationKind.SENDFILE,
    "splice": OperationKind.SPLICE,
    "copy_file_range": OperationKind.COPY_RANGE,
}
Log = dict[tuple[str, bool], dict[int, list[tuple[int, int]]]]


@dataclass
class Run:
    """What a scenario logged and what was seen of it."""

    directory: Path
    log: Log
    seen: Seen

    def sessions(self, name: str, *, writes: bool) -> list[FileActivity]:
        """Return the sessions of a file of the scenario."""
        return self.seen.of(f"{self.directory}/{name}".encode(), writes=writes)

    def truth(self, name: str, *, writes: bool) -> Order:
        """Return what the program says of it, each thread by itself."""
        total = Order()
        for operations in self.log[name, writes].values():
            total += order_of(operations)
        return total


@pytest.fixture
def perform(on: Callable[[str], Path], tracer: Tracer) -> Callable[[str, str], Run]:
    """Give what runs a scenario on a kind of file system."""

    def run(scenario: str, kind: str = "ext4") -> Run:
        directory = on(kind)
        seen = tracer.run([sys.executable, PROGRAM, scenario, directory], cwd=directory)
        log: Log = defaultdict(lambda: defaultdict(list))
        for name, writes, thread, offset, length in json.loads(seen.output):
            log[name, writes][thread].append((offset, length))
        assert not seen.lost
        return Run(directory, log, seen)

    return run


@pytest.mark.parametrize("kind", ["ext4", "tmpfs", "overlay"])
@pytest.mark.parametrize("scenario", EXACT)
def test_a_call_is_counted_as_its_caller_logged_it(
    perform: Callable[[str, str], Run], scenario: str, kind: str
) -> None:
    """Operations, bytes and order of each file and direction equal the program's own log."""
    run = perform(scenario, kind)

    assert run.log
    for name, writes in run.log:
        sessions = run.sessions(name, writes=writes)
        assert not difference(run.truth(name, writes=writes), order_seen(sessions)), (name, writes, sessions)


@pytest.mark.parametrize("kind", ["xfs", "btrfs"])
@pytest.mark.parametrize("scenario", ["sendfile", "splice", "copy_file_range", "append"])
def test_copies_within_the_kernel_are_exact_where_files_share_blocks(
    perform: Callable[[str, str], Run], scenario: str, kind: str
) -> None:
    """On file systems that copy by reference the numbers are the callers' too."""
    run = perform(scenario, kind)

    for name, writes in run.log:
        sessions = run.sessions(name, writes=writes)
        assert not difference(run.truth(name, writes=writes), order_seen(sessions)), (name, writes, sessions)


@pytest.mark.parametrize("scenario", KINDS)
def test_it_is_told_by_which_call(perform: Callable[[str, str], Run], scenario: str) -> None:
    """Copies within the kernel carry their kind, and no other but that of the plain writes beside them."""
    run = perform(scenario, "ext4")

    for name, writes in (("source", False), ("target", True)):
        assert [session.kinds for session in run.sessions(name, writes=writes)] == [KINDS[scenario]]
    assert [session.kinds for session in run.sessions("source", writes=True)] == [OperationKind.READ_WRITE]


def test_it_is_told_of_a_file_that_it_is_appended_to(perform: Callable[[str, str], Run]) -> None:
    """As a log is; `fill` wrote it by an opening without O_APPEND before."""
    sessions = perform("append", "ext4").sessions("appended", writes=True)

    kinds = sorted(session.kinds for session in sessions)
    assert set(kinds) == {OperationKind.READ_WRITE, OperationKind.READ_WRITE | OperationKind.APPEND}


@pytest.mark.parametrize("kind", ["full-tmpfs", "full-ext4"])
def test_a_full_disk_counts_what_went_in(perform: Callable[[str, str], Run], kind: str) -> None:
    """The short write counts with what it moved, and the refused one moves nothing."""
    run = perform("full", kind)

    order, truth = order_seen(run.sessions("full", writes=True)), run.truth("full", writes=True)
    assert order.bytes == truth.bytes > 0
    assert order.operations == truth.operations
    assert order.consecutive_bytes == truth.bytes


@pytest.mark.parametrize("scenario", ["duplicated", "forked"])
def test_shared_positions_add_up(perform: Callable[[str, str], Run], scenario: str) -> None:
    """Copies of a descriptor, in one process or in a child, write one file: every byte counts once."""
    run = perform(scenario, "ext4")

    order = order_seen(run.sessions(scenario, writes=True))
    truth = run.truth(scenario, writes=True)
    assert (order.operations, order.bytes) == (truth.operations, truth.bytes)
    assert order.sequential_operations == truth.operations
    assert order.consecutive_operations >= truth.consecutive_operations


def test_a_child_that_shares_a_descriptor_is_told_apart(perform: Callable[[str, str], Run]) -> None:
    """Each process has its own sessions, with its own pid."""
    run = perform("forked", "ext4")

    by_process: dict[int, int] = defaultdict(int)
    for session in run.sessions("forked", writes=True):
        by_process[session.pid] += session.bytes
    truth = {thread: sum(length for _, length in operations) for thread, operations in run.log["forked", True].items()}
    assert dict(by_process) == truth
    parents = {session.pid: session.parent_pid for session in run.sessions("forked", writes=True)}
    assert any(parent in by_process for parent in parents.values())


def test_files_that_live_between_two_ticks_are_seen_whole(perform: Callable[[str, str], Run]) -> None:
    """A hundred files that are written, read, closed and removed within a tick: every one, by name, to the byte."""
    run = perform("brief", "ext4")

    for name, writes in run.log:
        sessions = run.sessions(name, writes=writes)
        assert not difference(run.truth(name, writes=writes), order_seen(sessions)), name
        assert len(sessions) == 1
        assert sessions[0].closed_ns is not None
        assert sessions[0].first_ns <= sessions[0].last_ns <= sessions[0].closed_ns


def test_an_inode_that_is_used_again_is_another_file(perform: Callable[[str, str], Run]) -> None:
    """ext4 gives the inode of the removed file to the next one: their bytes are not mixed."""
    run = perform("recycled", "ext4")

    sessions = [session for name, _ in run.log for session in run.sessions(name, writes=True)]
    assert len({session.inode for session in sessions}) < len(sessions) == 8  # it was used again
    assert len({(session.inode, session.generation) for session in sessions}) == 8
    assert [session.bytes for session in sessions] == [1000 * count for count in range(1, 9)]


def test_a_rename_is_told_and_the_session_goes_on(perform: Callable[[str, str], Run]) -> None:
    """One session with the bytes before and after it, under the new name at its end; created, renamed, synced."""
    run = perform("renamed", "ext4")

    (session,) = run.sessions("model.bin", writes=True)
    assert not difference(run.truth("model.bin", writes=True), order_seen([session]))
    (rename,) = [event for event in run.seen.lives if event.kind == "renamed" and "model.tmp" in str(event.path)]
    assert rename.path == f"{run.directory}/model.tmp"
    assert rename.new_path == f"{run.directory}/model.bin"
    assert [event.kind for event in run.seen.events(run.directory / "model.tmp", "created")] == ["created"]
    (sync,) = run.seen.events(run.directory / "model.bin", "synced")
    assert sync.inode == session.inode
    assert session.first_ns < rename.at_ns < session.last_ns < sync.at_ns < (session.closed_ns or 0)


def test_a_file_without_a_name_is_counted(perform: Callable[[str, str], Run]) -> None:
    """What is written after the unlink counts as well; the unlink itself is told."""
    run = perform("unlinked", "ext4")

    sessions = run.seen.where(lambda session: session.writes and session.bytes >= 2 << 16)
    assert [session.bytes for session in sessions if str(run.directory) in str(session.path)] == [2 << 16]
    assert [event.path for event in run.seen.lives if event.kind == "unlinked"] == [f"{run.directory}/unlinked"]


@pytest.mark.parametrize("name", ["replaced", "ranged"])
def test_a_descriptor_that_goes_without_close_ends_its_session(perform: Callable[[str, str], Run], name: str) -> None:
    """dup2 onto it and close_range end it too, or the end of the process does."""
    run = perform("replaced", "ext4")

    sessions = run.sessions(name, writes=True)
    assert sum(session.bytes for session in sessions) == 1 << 16
    assert all(session.closed_ns is not None for session in sessions)


def test_a_process_that_closes_nothing_leaves_no_session(perform: Callable[[str, str], Run]) -> None:
    """Its end is theirs."""
    run = perform("left_open", "ext4")

    assert [session.closed_ns is not None for session in run.sessions("left-open", writes=True)] == [True]


def test_hostile_names_arrive_unharmed(perform: Callable[[str, str], Run]) -> None:
    """Newlines, escape codes, bytes that are no UTF-8 and 255 of them: each file is found under its own name."""
    run = perform("hostile", "ext4")

    for name, writes in run.log:
        sessions = run.sessions(name, writes=writes)
        assert [session.bytes for session in sessions] == [run.truth(name, writes=writes).bytes], name
        str(sessions[0].path).encode()  # no surrogate


def test_deep_folders_lose_no_bytes(perform: Callable[[str, str], Run]) -> None:
    """100 levels and a path near PATH_MAX have their whole name; one that no path can hold is counted all the same."""
    run = perform("deep", "ext4")

    levels, longest, beyond = run.log
    for name, writes in (levels, longest):
        assert [session.bytes for session in run.sessions(name, writes=writes)] == [
            run.truth(name, writes=writes).bytes
        ]
    sessions = run.seen.where(lambda session: session.writes and session.bytes == 22)
    assert len(sessions) == 1
    path = sessions[0].path
    assert path is None or not path.startswith(os.fspath(run.directory)) or path.endswith(beyond[0])


def test_a_family_forgets_who_has_ended(tracer: Tracer) -> None:
    """However many children come and go, the kernel keeps only those that live: their numbers will be others'."""
    family = tracer.trace._files.object.map("family")
    before = family.lookup_batch()[0]

    tracer.run(["sh", "-c", "for n in $(seq 200); do /bin/true; done"])

    assert family.lookup_batch()[0] <= before
