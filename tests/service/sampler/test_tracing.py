"""The sampler with a trace: what it asks of it, what it does with what it is told, and what it does when it fails."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from standintrace import ACTIVITY, MIB, Desk, StandIn, activity, start_ticks
from tests.patience import LIFETIME, wait_until

from ckptprof.recording import Header, pack
from ckptprof.service.sampler.traced_activity import TracedActivity
from ckptprof.service.sampler.tracing import FOLLOWED, LOSS_MEMORY_NS, SELECT_INTERVAL_NS, TRAINS, WATCHED, Tracing
from ckptprof_collectors.kernelfs import UnavailableError
from ckptprof_collectors.samples import (
    CollectorFault,
    FileActivity,
    FileFact,
    FileLifeEvent,
    FileScan,
    ProcessInfo,
    Sample,
    SocketTraffic,
    TraceHealth,
)

WRITER = (
    "import os, time\nfd = os.open('model.pt', os.O_WRONLY | os.O_CREAT)\n"
    "while True:\n os.write(fd, bytes(1 << 20)); time.sleep(0.01); os.lseek(fd, 0, 0) if os.lseek(fd, 0, 1) > 64 << 20 "
    "else 0\n"
)
HEALTH = TraceHealth(5, 1, 2, 3, 4, 0, {"write": "typed"}, ("splice is out of sight",))


def refuse(reason: str, *, permission: bool | None = None) -> Callable[..., Any]:
    """Return a maker that cannot."""

    def attach(*_: object, **__: object) -> None:
        error = UnavailableError(reason)
        if permission is not None:
            error.permission = permission  # type: ignore[attr-defined] # as the trace itself does
        raise error

    return attach


def ticks(desk: Desk, condition: Callable[[list[Sample]], Any]) -> list[Sample]:
    """Tick until the samples so far fulfil the condition, and return them."""
    samples: list[Sample] = []

    def met() -> Any:
        samples.extend(desk.tick(time.monotonic_ns()))
        return condition(samples)

    wait_until(met)
    return samples


@pytest.mark.parametrize("wish", ["auto", "trace"])
def test_the_header_says_that_it_traces_and_what_is_out_of_sight(desk: Callable[..., Desk], wish: str) -> None:
    """And the trace is told which processes are our own."""
    trace = StandIn(degraded=("splice is out of sight", "no block requests"))
    header = desk(trace, level=wish, monitor_pids=(7,)).header

    assert (header.level, header.level_denied) == ("trace", False)
    assert header.level_reason == "splice is out of sight; no block requests"
    assert trace.asked == {"family_of": (), "ignore": tuple(sorted((7, os.getpid())))}


def test_of_a_command_only_its_family_is_traced(desk: Callable[..., Desk]) -> None:
    """The recorder that will start it is named as its parent, before it is started."""
    trace = StandIn()
    desk(trace, monitor_pids=(7,), only_descendants=True)

    assert trace.asked["family_of"] == (7,)


def test_it_names_all_files_but_those_of_the_time_in_which_it_lost_some() -> None:
    """Of thousands of small files in a second the rest is only counted: once their folders were looked at, it is well.

    Counters are read as well for a while, whoever is asked about.
    """
    losing = msgspec.structs.replace(HEALTH, lost_sessions=HEALTH.lost_sessions + 1)
    trace = StandIn([[HEALTH], [losing], [losing]])
    tracing = Tracing("trace", lambda: trace, select.poll())
    named, told = [tracing.is_complete_since(0)], [tracing.is_complete(0)]
    for now_ns in (1, 2, LOSS_MEMORY_NS + 3):
        tracing.read(now_ns)
        named.append(tracing.is_complete_since(now_ns))
        told.append(tracing.is_complete(now_ns))

    assert named == [True, False, False, True]  # what it has lost when it is first read counts as well
    assert told == [True, False, False, True]
    assert [tracing.is_complete_since(since_ns) for since_ns in (1, 2, 3)] == [False, False, True]
    tracing.close()
    assert not tracing.is_complete_since(3)


def test_poll_never_comes_near_it(desk: Callable[..., Desk]) -> None:
    """Nothing is tried, and nothing is missing."""
    asked: list[object] = []
    header = desk(lambda *_, **__: asked.append(1), level="poll").header

    assert asked == []
    assert (header.level, header.level_reason, header.level_denied) == ("poll", "", False)


@pytest.mark.parametrize(
    ("attach", "reason", "denied"),
    [
        (refuse("no BTF"), "no BTF", False),
        (refuse("CAP_BPF is missing", permission=True), "CAP_BPF is missing", True),
        (refuse("lockdown\nlibbpf: a log\n of the verifier", permission=False), "lockdown", False),
        (lambda *_, **__: 1 / 0, "ZeroDivisionError: division by zero", False),
        (lambda *_, **__: os.open("/nowhere", os.O_RDONLY), "FileNotFoundError: ", False),
    ],
)
def test_what_cannot_be_attached_leaves_polling(
    desk: Callable[..., Desk], attach: Callable[..., Any], reason: str, *, denied: bool
) -> None:
    """Whatever goes wrong: the reason is in the header, and the ticks come."""
    one = desk(attach)

    assert one.header.level == "poll"
    assert one.header.level_reason.startswith(reason)
    assert "\n" not in one.header.level_reason
    assert one.header.level_denied is denied
    assert any(type(sample).__name__ == "DiskSample" for sample in one.tick(time.monotonic_ns()))


def test_what_the_trace_tells_is_in_the_next_frame(desk: Callable[..., Desk]) -> None:
    """As it is."""
    told = activity(1, None, 100_000)
    one = desk(StandIn([[told, HEALTH], []]))

    assert [s for s in one.tick(time.monotonic_ns()) if s in (told, HEALTH)] == [told, HEALTH]
    assert told not in one.tick(time.monotonic_ns())


def test_what_programs_read_of_their_code_is_left_out(desk: Callable[..., Desk]) -> None:
    """Unless it was told before its path was known: then it is told to its end, once."""
    library, late, moved = "/usr/lib/libtorch.so", "/usr/lib/python3/x.pyc", "/ckpt/model.pt"
    unknown = activity(1, None, 100_000, session="late")
    known = activity(1, late, 100_001, session="late", closed_ns=1)
    renamed = FileLifeEvent(1, "renamed", 1, 1, 1, None, None, None, "/ckpt/x.so", moved)
    removed = FileLifeEvent(1, "unlinked", 1, 1, 1, None, None, None, "model.pt")
    created = FileLifeEvent(1, "created", 1, 1, 1, 1, 1, None, library)
    told = [
        [unknown, activity(1, library, MIB), renamed, removed, created],
        [known, activity(1, library, MIB)],
        [known],
    ]
    one = desk(StandIn(list(told)))
    seen = [[s for s in one.tick(time.monotonic_ns()) if isinstance(s, FileActivity | FileLifeEvent)] for _ in told]

    assert seen == [[unknown, renamed], [known], []]  # of a stranger


def test_a_ring_that_fills_up_is_read_before_the_tick(desk: Callable[..., Desk]) -> None:
    """The descriptor of the trace wakes the sampler, which goes on waiting when it has read."""
    told = activity(1, None, 100_000)
    trace = StandIn([[], [told]])
    one = desk(trace)
    for fd in one.sampler._folders.filenos():
        one.sampler._poll.unregister(fd)  # other jobs of this host open checkpoints, too
    one.sampler._folders.close()
    one.tick(time.monotonic_ns())
    os.write(trace.wake[1], b"x")

    def waited() -> bool:
        due_ns = time.monotonic_ns() + 50_000_000
        one.sampler._wait(due_ns)
        assert time.monotonic_ns() >= due_ns
        return trace.reads == []

    wait_until(waited)
    assert told in one.tick(time.monotonic_ns())


@pytest.mark.parametrize(
    ("error", "reason"),
    [(OSError(5, "Input/output error"), "OSError: [Errno 5] Input/output error"), (ValueError("x"), "ValueError: x")],
)
def test_a_trace_that_fails_is_given_up_and_that_is_said_once(
    desk: Callable[..., Desk], error: Exception, reason: str
) -> None:
    """The fault, and the trace's last word with what it had counted; the ticks go on without."""
    trace = StandIn([[HEALTH], error])
    one = desk(trace)
    one.tick(time.monotonic_ns())
    failed = one.tick(time.monotonic_ns())
    after = one.tick(time.monotonic_ns())

    (health,) = [s for s in failed if isinstance(s, TraceHealth)]
    assert [s for s in failed if isinstance(s, CollectorFault)] == [CollectorFault("trace", reason)]
    assert (health.calls, health.programs) == (HEALTH.calls, {})
    assert health.degraded[:-1] == HEALTH.degraded
    assert reason in health.degraded[-1]
    assert [s for s in after if isinstance(s, CollectorFault | TraceHealth)] == []
    assert trace.closed == 1
    with pytest.raises(FileNotFoundError):  # a closed descriptor would wake it for ever
        one.sampler._poll.modify(trace.fileno(), 0)
    assert (one.sampler.health().faults, one.sampler.health().lost_folder_events) == ({"trace": 1}, 0)
    one.sampler._folders._events.lost = 3  # type: ignore[union-attr]  # inotify is there
    assert one.sampler.health().lost_folder_events == 3


def test_who_moves_much_is_watched_at_once(desk: Callable[..., Desk], sleeper: subprocess.Popen[bytes]) -> None:
    """In the same tick, though it was not even known; who moves little, or whose pid is used again, is not."""
    one = desk(StandIn([[activity(sleeper.pid, None, MIB - 1)], [activity(sleeper.pid, None, MIB, start_ticks=1)]]))
    one.tick(time.monotonic_ns())
    one.tick(time.monotonic_ns())
    before = sleeper.pid in one.sampler._population.watched
    one.sampler._tracing._tracer.reads = [[activity(sleeper.pid, None, MIB)]]  # type: ignore[union-attr]

    samples = one.tick(time.monotonic_ns())

    assert not before
    assert sleeper.pid in [sample.pid for sample in samples if isinstance(sample, ProcessInfo)]


def test_our_own_processes_are_never_watched(desk: Callable[..., Desk]) -> None:
    """Even if the trace tells of them."""
    one = desk(StandIn([[activity(os.getpid(), None, 8 * MIB)]]))
    one.tick(time.monotonic_ns())

    assert os.getpid() not in one.sampler._population.watched


def test_facts_are_asked_of_a_file_that_only_the_trace_saw(
    desk: Callable[..., Desk], sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """Written through io_uring, say: no counter of the process moves, and no descriptor's position."""
    path = tmp_path / "model.pt"
    path.write_bytes(b"PK\3\4" + bytes(2 * MIB))
    done = activity(sleeper.pid, path, 2 * MIB + 4, closed_ns=1)
    one = desk(StandIn([[activity(sleeper.pid, path, MIB)], [done]]))

    samples = ticks(one, lambda so_far: any(isinstance(sample, FileFact) for sample in so_far))

    fact = next(sample for sample in samples if isinstance(sample, FileFact))
    assert (fact.pid, fact.path, fact.size) == (sleeper.pid, str(path), 2 * MIB + 4)
    assert fact.magic == b"PK\3\4" + bytes(20)


def test_facts_are_asked_though_the_process_has_ended(desk: Callable[..., Desk], tmp_path: Path) -> None:
    """It was born, saved and ended between two ticks."""
    path = tmp_path / "step_7" / "model.pt"
    path.parent.mkdir()
    path.write_bytes(bytes(2 * MIB))
    gone = subprocess.Popen(["true"])
    gone.wait()
    one = desk(
        StandIn([[activity(gone.pid, path, 2 * MIB, start_ticks=99, first_ns=time.monotonic_ns(), closed_ns=1)]])
    )

    samples = ticks(one, lambda so_far: any(isinstance(sample, FileFact) for sample in so_far))

    found = {(s.pid, s.start_ticks, s.path) for s in samples if isinstance(s, FileFact) and not s.is_directory}
    assert found == {(gone.pid, 99, str(path))}


def test_a_folder_that_gets_its_final_name_is_looked_at_again(
    desk: Callable[..., Desk], sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """As orbax commits: the file is asked for under the name that it has now."""
    old, new = tmp_path / "7.orbax-checkpoint-tmp-1", tmp_path / "7"
    new.mkdir()
    path = new / "data"
    path.write_bytes(bytes(2 * MIB))
    status = path.stat()
    where = {"device": status.st_dev, "inode": status.st_ino}
    wrote = activity(sleeper.pid, str(old / "data"), 2 * MIB, closed_ns=1, **where)
    moved = FileLifeEvent(
        1, "renamed", sleeper.pid, start_ticks(sleeper.pid), sleeper.pid, None, None, None, str(old), str(new)
    )
    one = desk(StandIn([[wrote], [moved]]))

    def seen(samples: list[Sample]) -> bool:
        return any(isinstance(s, FileFact) and s.path == str(path) and not s.is_missing for s in samples)

    assert seen(ticks(one, seen))


def test_open_files_are_not_scanned_while_it_traces(desk: Callable[..., Desk], tmp_path: Path) -> None:
    """But are when the trace has failed: the same process, in the same burst. Mappings are looked at as ever."""
    trace = StandIn()
    one = desk(trace)

    def names(sample: Sample) -> list[str]:
        own = isinstance(sample, FileScan) and sample.pid == writer.pid
        return [Path(file.path).name for file in sample.files] if own else []

    with subprocess.Popen([sys.executable, "-c", WRITER], cwd=tmp_path, stdin=subprocess.DEVNULL) as writer:
        try:
            wait_until(lambda: one.tick(time.monotonic_ns()) and writer.pid in one.sampler._population.watched)
            watching = one.sampler._population.watched[writer.pid]
            wait_until(lambda: one.tick(time.monotonic_ns()) is not None and watching.activity.is_in_burst())
            traced = [sample for _ in range(10) for sample in _later(one)]
            watching.ingest(activity(writer.pid, "/somewhere/model.pt", 4 * MIB))
            trace.reads = [OSError(5, "gone")]
            failed = ticks(one, lambda so_far: any("model.pt" in names(s) for s in so_far))
        finally:
            writer.kill()

    scans = [sample for sample in traced if isinstance(sample, FileScan) and sample.pid == writer.pid]
    assert all(scan.mapped is not None for scan in scans)  # its memory grew: that may be a mapping
    assert any("model.pt" in names(sample) for sample in failed)
    assert not watching.traced.has_written_file_open  # nobody would tell that it was closed


def _later(desk: Desk) -> list[Sample]:
    time.sleep(0.02)
    return desk.tick(time.monotonic_ns())


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 1 << 40), st.booleans()), max_size=30))
def test_moved_bytes_are_never_negative_and_never_counted_twice(steps: list[tuple[str, int, bool]]) -> None:
    """Cumulative sessions, told again and again, closed and begun anew, in any order."""
    traced = TracedActivity()
    reached: dict[str, int] = {}
    expected = 0
    for session, count, closed in steps:
        expected += max(0, count - reached.get(session, 0))
        reached[session] = 0 if closed else count
        ended = 1 if closed else None
        traced.ingest(msgspec.structs.replace(ACTIVITY, session=session, bytes=count, path="/x", closed_ns=ended))

    assert traced.transferred_bytes == expected
    traced.consume_written()
    assert traced.transferred_bytes == 0


@pytest.mark.parametrize(
    "path", ["/dev/null", "pipe:[7]", "/memfd:x", "/x/y.so", "/a (deleted)", "", "\x1b]0;x\x07", None]
)
def test_what_is_no_data_file_is_not_asked_for(path: str | None) -> None:
    """Its bytes count, its name is left alone."""
    traced = TracedActivity()
    traced.ingest(msgspec.structs.replace(ACTIVITY, bytes=9 * MIB, path=path))

    assert traced.transferred_bytes == 9 * MIB
    assert traced.consume_written() == []


def test_an_older_recording_has_a_level_and_no_reason() -> None:
    """The header's new fields may be missing."""
    known = Header(
        uid="u", host="h", boot_id="b", kernel="k", ckptprof="0", level="poll", at_ns=1, wall_ns=2,
        ticks_per_second=100, page_size=4096,
    )  # fmt: skip
    old = msgspec.msgpack.decode(pack(known)[4:])
    del old["level_reason"], old["level_denied"]

    assert msgspec.convert(old, Header) == known
    assert (known.level_reason, known.level_denied) == ("", False)


@pytest.mark.root
@pytest.mark.namespaces
def test_in_a_namespace_of_pids_nothing_is_attached() -> None:
    """The programs would tell the host's pids, which are others' here: said, with the remedy."""
    look = "from ckptprof.service.sampler.tracing import namespace_problem as f"
    command = [sys.executable, "-c", f"{look}; from ckptprof_collectors.kernelfs import KernelFs; print(f(KernelFs()))"]
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", *command], capture_output=True, text=True, check=True
    )

    assert "hostPID: true" in done.stdout


def test_trifles_of_strangers_are_left_out(desk: Callable[..., Desk]) -> None:
    """A small file that a process wrote which does not train is told only in the family of a command.

    Who waits for a server to create it may begin a save.
    """
    trifle = activity(1, "/run/x.pid", 5, closed_ns=1)
    created, late = (FileLifeEvent(1, "created", 1, 1, 1, 1, 1, ms * 1_000_000, "/run/x.pid") for ms in (90, 100))
    seen = []
    for only_family in (False, True):
        one = desk(StandIn([[trifle, created, late]]), only_descendants=only_family)
        seen.append([s for s in one.tick(time.monotonic_ns()) if isinstance(s, FileActivity | FileLifeEvent)])

    assert seen == [[late], [trifle, created, late]]


def test_the_trace_knows_whose_trifles_are_wanted(desk: Callable[..., Desk], sleeper: subprocess.Popen[bytes]) -> None:
    """Those of the watched processes, said when these change; in the family of a command nothing is left out."""
    training = ProcessInfo(sleeper.pid, start_ticks(sleeper.pid), 1, 0, "python", "train.py", ("torch",), {}, None)
    begun = activity(sleeper.pid, "/ckpt/x", 2 * MIB)
    trace, of_family = StandIn([[begun], [], []]), StandIn([[begun]])
    one = desk(trace)
    for _ in range(2):
        one.tick(time.monotonic_ns())
    one.sampler._population.watched[sleeper.pid].info = training
    one.tick(time.monotonic_ns() + SELECT_INTERVAL_NS)
    desk(of_family, only_descendants=True).tick(time.monotonic_ns())

    said = [(processes.get(sleeper.pid), trifle_bytes) for processes, trifle_bytes in trace.attended]
    assert list(dict.fromkeys(said)) == [(FOLLOWED, 64 << 10), (TRAINS, 64 << 10)]
    assert of_family.attended == []


def test_who_reads_an_archive_is_followed_no_longer_than_its_budget_lasts() -> None:
    """The end of a larger file is reported anyway, that of a small one only of who is followed."""
    followed = True
    packer, logger = (activity(pid, f"/data/{size}", size) for pid, size in ((7, 2 * MIB), (8, 100)))
    trace = StandIn([[packer, logger]])
    tracing = Tracing("auto", lambda: trace, select.poll())
    one = SimpleNamespace(is_training=False, is_required=False, is_followed=lambda _: followed)
    watched: dict[int, Any] = {7: one, 8: one}
    assert tracing.filter_reported(tracing.read(0), watched) == [packer, logger]
    followed = False
    tracing.read(2 * SELECT_INTERVAL_NS)
    tracing.select_processes(watched, 0)

    tracing.close()

    assert [processes for processes, _ in trace.attended] == [{7: FOLLOWED, 8: FOLLOWED}, {7: WATCHED, 8: FOLLOWED}]


def test_who_is_watched_is_gone_over_when_that_changes() -> None:
    """And once a second, as who trains may; else a tick costs the same, however many there are."""
    looked = 0

    class Crowd(dict[int, Any]):
        def items(self) -> Any:
            nonlocal looked
            looked += 1
            return super().items()

        values = keys = __iter__ = None

    trace = StandIn([[] for _ in range(30)])
    tracing = Tracing("auto", lambda: trace, select.poll())
    crowd = Crowd((pid, SimpleNamespace(is_training=False, is_required=False, is_followed=bool)) for pid in range(100))
    for tick in range(20):
        tracing.read(tick)
        tracing.select_processes(crowd, 0)
    assert (looked, len(trace.attended)) == (1, 1)

    del crowd[3]
    tracing.select_processes(crowd, 0)
    crowd[200] = SimpleNamespace(is_training=True, is_required=False)
    tracing.select_processes(crowd, 0)
    tracing.read(2 * SELECT_INTERVAL_NS)
    tracing.select_processes(crowd, 0)

    tracing.close()

    assert looked == 4
    assert [len(processes) for processes, _ in trace.attended] == [100, 99, 100]


def test_of_a_process_that_was_joined_connections_are_told_and_nobody_elses(
    desk: Callable[..., Desk], sleeper: subprocess.Popen[bytes]
) -> None:
    """Whether or not it is known to train; the trace sees all of the host."""
    where = {"remote": "10.0.0.9", "port": 443, "local_port": 5000, "sockets": 1, "sent_bytes": MIB}
    rest = dict.fromkeys(("received_bytes", "sends", "receives", "parts", "parts_bytes", "answers", "answers_bytes"), 0)
    times = dict.fromkeys(("send_start_ns", "sent_ns", "receive_start_ns", "received_ns", "part_bytes", "tid"))
    mine, strange = (
        SocketTraffic(pid=pid, start_ticks=start_ticks(pid), **where, **rest, **times) for pid in (sleeper.pid, 1)
    )
    trace = StandIn()
    one = desk(trace, only_descendants=True, attaches=True)
    one.sampler._population.root_pid = sleeper.pid
    now_ns = time.monotonic_ns()
    for seconds in range(1, 4):
        one.tick(now_ns + seconds * 1_000_000_000)
    trace.reads = [[mine, strange]]

    told = [sample for sample in one.tick(now_ns + 4_000_000_000) if isinstance(sample, SocketTraffic)]

    assert trace.attended[-1] == ({sleeper.pid: TRAINS}, 0)
    assert told == [mine]


@pytest.fixture
def rank() -> Iterator[subprocess.Popen[bytes]]:
    """Return a process that trains, by its environment."""
    with subprocess.Popen(["sleep", LIFETIME], env={**os.environ, "RANK": "0"}) as process:
        yield process
        process.kill()


@pytest.mark.parametrize(
    ("who", "came", "bursts"),
    [("rank", MIB // 20, True), ("rank", MIB, False), ("sleeper", MIB // 20, False)],
    ids=["a-save", "gradients", "a-web-server"],
)
def test_who_trains_and_sends_much_is_looked_at_as_who_writes(
    desk: Callable[..., Desk], request: pytest.FixtureRequest, who: str, came: int, *, bursts: bool
) -> None:
    """Until the connections are read again; what is exchanged is sent at each step, and others send at all times."""
    sleeper = request.getfixturevalue(who)
    names = ("sends", "receives", "parts", "parts_bytes", "answers", "answers_bytes")
    now_ns = time.monotonic_ns()
    first = SocketTraffic(
        pid=sleeper.pid, start_ticks=start_ticks(sleeper.pid), remote="10.0.0.9", port=443, local_port=5000, sockets=1,
        sent_bytes=MIB, received_bytes=came, send_start_ns=now_ns, sent_ns=now_ns, receive_start_ns=None,
        received_ns=None,
        part_bytes=None, tid=sleeper.pid, **dict.fromkeys(names, 0),
    )  # fmt: skip
    trace = StandIn()
    one = desk(trace, only_descendants=True, attaches=True)
    one.sampler._population.root_pid = sleeper.pid
    for seconds in range(1, 4):
        one.tick(now_ns + seconds * 1_000_000_000)
    watching = one.sampler._population.watched[sleeper.pid]
    assert not watching.activity.is_in_burst()
    trace.reads = [[first], []]
    one.tick(now_ns + 4_000_000_000)
    one.tick(now_ns + 4_900_000_000)

    assert watching.activity.is_in_burst() is bursts
    assert watching.activity.is_urgent(now_ns + 4_900_000_000) is bursts
    one.tick(now_ns + 5_500_000_000)
    assert not watching.activity.is_in_burst()


def test_what_was_told_of_while_it_went_on_is_wanted_to_its_end(
    desk: Callable[..., Desk], sleeper: subprocess.Popen[bytes]
) -> None:
    """Also of a process that is not watched any more."""
    opened = activity(sleeper.pid, None, 5, writes=False)
    trace = StandIn([[activity(sleeper.pid, "/ckpt/x", 2 * MIB), opened], []])
    one = desk(trace)
    one.tick(time.monotonic_ns())
    population = one.sampler._population
    population._relax(population.watched[sleeper.pid])
    one.tick(time.monotonic_ns())

    assert sleeper.pid not in population.watched
    assert trace.attended[-1][0][sleeper.pid] == FOLLOWED


@pytest.mark.parametrize("by", ["a file", "trifles", "nothing"])
def test_a_shell_that_became_the_training_script_is_found_by_what_it_reads(desk: Callable[..., Desk], by: str) -> None:
    """Nobody reads the counters of those who are not watched while a trace tells of all that they move."""
    script = f"read line; exec {sys.executable} -c 'import time; time.sleep({LIFETIME})'"
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        pid, trace = process.pid, StandIn()
        one = desk(trace)
        watched, known = one.sampler._population.watched, one.sampler._population.known
        wait_until(lambda: one.tick(time.monotonic_ns()) is not None and pid in known)
        one.sampler._population._young.clear()  # it is a shell by now
        process.stdin.close()
        wait_until(lambda: Path(f"/proc/{pid}/cmdline").read_bytes().startswith(os.fsencode(sys.executable)))
        if by == "a file":
            trace.reads = [[activity(pid, "/usr/lib/libtorch.so", MIB, writes=False)]]
        elif by == "trifles":
            trace.read_trifles = {pid: 100_000}
        now_ns = time.monotonic_ns()
        for seconds in range(1, 4):
            one.tick(now_ns + seconds * 1_000_000_000)
        found = pid in watched
        process.kill()

    assert found == (by != "nothing")


def test_trifles_of_those_whom_training_forked_are_told(
    desk: Callable[..., Desk], sleeper: subprocess.Popen[bytes]
) -> None:
    """A child writes one small shard and ends before anybody can look at it; so does its own child."""
    training = ProcessInfo(sleeper.pid, start_ticks(sleeper.pid), 1, 0, "python", "train.py", ("torch",), {}, None)
    begun = activity(sleeper.pid, "/ckpt/x", 2 * MIB, closed_ns=1)
    created = FileLifeEvent(1, "created", 1 << 22, 1, 1, 1, 1, None, "/ckpt/step_1/shard_1.bin")
    shard = activity(1 << 22, "/ckpt/step_1/shard_1.bin", 5, closed_ns=1, parent_pid=sleeper.pid)
    deeper = activity((1 << 22) + 1, "/ckpt/step_1/shard_2.bin", 5, closed_ns=1, parent_pid=1 << 22)
    stranger = activity((1 << 22) + 2, "/ckpt/step_1/shard_3.bin", 5, closed_ns=1, parent_pid=1)
    again = activity(1 << 22, "/ckpt/step_1/shard_4.bin", 5, closed_ns=1, start_ticks=2, parent_pid=1)
    one = desk(StandIn([[begun], [created, shard, deeper, stranger, again]]))
    one.tick(time.monotonic_ns())
    one.sampler._population.watched[sleeper.pid].info = training

    told = [s for s in one.tick(time.monotonic_ns()) if isinstance(s, FileActivity | FileLifeEvent)]

    assert told == [created, shard, deeper]


def test_events_do_not_put_the_next_look_off(desk: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of a crowd of new files wakes the sampler before it is due."""
    one = desk(StandIn())
    dues: list[int] = []

    def woken(due_ns: int) -> None:
        dues.append(due_ns - time.monotonic_ns())
        one.sampler.stopping = len(dues) == 20

    monkeypatch.setattr(one.sampler, "_wait", woken)
    one.sampler.run()

    assert max(dues) <= 600_000_000


def test_a_mapping_is_looked_at_at_once(desk: Callable[..., Desk], sleeper: subprocess.Popen[bytes]) -> None:
    """A warm file is read through its mapping within some hundredths of a second: the burst begins with the mapping."""
    event = FileLifeEvent(
        1, "mapped", sleeper.pid, start_ticks(sleeper.pid), sleeper.pid, 1, 1, None, "/ckpt/model.safetensors"
    )
    one = desk(StandIn([[activity(sleeper.pid, "/ckpt/x", 2 * MIB, closed_ns=1)], [event]]))
    one.tick(time.monotonic_ns())
    state = one.sampler._population.watched[sleeper.pid].activity
    state.burst_since_ns, state.last_mappings_ns = None, 0

    one.tick(time.monotonic_ns())

    assert state.is_in_burst()
    assert state.last_mappings_ns > 0
