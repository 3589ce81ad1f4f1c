"""What a test may ask of the machine, and how those that need it get it for themselves, or one at a time.

A marker that names a requirement turns into a skip that says what is missing. CKPTPROF_REQUIRE=all turns every skip
into a failure (a comma list of markers: those only), so that a green run cannot come from skipping.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_randomly
from hypothesis import HealthCheck, settings
from tests.leftovers import own
from tests.machine import REQUIREMENTS, held, need, required

from ckptprof import units
from ckptprof.report import hints

# Where PYTHONDONTWRITEBYTECODE is set, each worker would compile all tests again, and each `ckptprof` its sources
sys.dont_write_bytecode = False
# DeepSpeed asks to be seeded before each test, for which it and PyTorch would be imported by every process of the suite
pytest_randomly.entrypoint_reseeds = []
# Hypothesis would fail an example that takes 0.2 s, or a test whose examples come slowly: a busy machine, most often
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

LOCKS = "CKPTPROF_TEST_LOCKS"  # the directory of the locks of `alone`
OUTCOMES = "CKPTPROF_TEST_OUTCOMES"  # the file into which tries.py wants a line for each test
LIVE = "live"  # the group of the tests that watch real jobs
# What stands in these rooms watches real jobs or a booted machine, and is scored (tries.py)
LIVE_ROOMS = ("benchmarks", "e2e", "service/commands", "systemd")
LIVE_GROUPS = (LIVE, "systemd")
BROWSER = "browser"  # the group of the tests that share one
GROUPED = tuple(f"@{group}" for group in (*LIVE_GROUPS, BROWSER))  # how pytest-xdist ends the names of a group's tests
AUTOGROUP = Path("/proc/self/autogroup")
WATCHES = pytest.StashKey[bool]()  # whether this run watches real jobs


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker that this file itself serves, and make room for its locks."""
    config.addinivalue_line("markers", "alone: looks at the whole host, so no other test runs beside it")
    config.addinivalue_line("markers", "live: watches real jobs on this kernel; given by where a test stands")
    _hand_on_no_deafness()
    # Each pytest that starts closes pytest-of-USER to others: in a place of its own it closes no other checkout's
    if "PYTEST_DEBUG_TEMPROOT" not in os.environ:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(_temporary_root())
    if not hasattr(config, "workerinput"):  # pytest-xdist's workers inherit the environment
        os.environ[LOCKS] = tempfile.mkdtemp(prefix=own("locks-"))
    elif _may_give_way():
        os.setsid()  # a session of its own, which gives way by itself


def _temporary_root() -> Path:
    """Return a folder for this checkout, by a short name: the path of a socket has 107 bytes."""
    checkout = hashlib.sha256(os.fsencode(Path(__file__).resolve())).hexdigest()[:4]
    root = Path(tempfile.gettempdir()) / f"ckpt-{checkout}-{os.getuid()}"
    root.mkdir(mode=0o711, exist_ok=True)
    return root


def _hand_on_no_deafness() -> None:
    """Keep what the tests start from ignoring signals, because `nohup make test &` ignores them.

    A signal that is ignored stays so in every child, and bash cannot even be told otherwise; one that has a handler
    does in a child what it does by default. This process goes on as if it ignored them.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tell the live tests from the deterministic ones, by where they stand and by their group."""
    rooms = (Path(__file__).parent / room for room in LIVE_ROOMS)
    if group_of(item) in LIVE_GROUPS or any(item.path.is_relative_to(room) for room in rooms):
        item.add_marker(LIVE)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put groups first, the largest in front, and what runs `alone` last: until then no worker waits for the other.

    With `--dist loadgroup` one worker does a whole group, so that another has all the rest to do meanwhile.
    """
    config.stash[WATCHES] = any(group_of(item) == LIVE for item in items)
    sizes = Counter(map(group_of, items))
    items.sort(key=lambda item: (_is_alone(item), -sizes[group_of(item)] if group_of(item) else 0))


def group_of(item: pytest.Item) -> str:
    """Return the name of the item's `xdist_group`; no two tests of one group run at the same time."""
    marker = item.get_closest_marker("xdist_group")
    return "" if marker is None else str(marker.args[0])


def _is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


@pytest.fixture(autouse=True)
def _as_a_new_command() -> Iterator[None]:
    """Forget after each test what a command that it ran in this process has set for all that the command prints.

    Nor does a test see the width, or the database, that the caller's shell or another test has in the environment.
    """
    for name in ("COLUMNS", "LINES", "CKPTPROF_DB"):
        os.environ.pop(name, None)
    yield
    hints.set_databases()
    units.choose("decimal")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, or fail where skipping is forbidden, a test whose requirement this machine does not meet."""
    for name in REQUIREMENTS:
        for marker in item.iter_markers(name):
            need(name, *marker.args)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn every other skip into a failure too under CKPTPROF_REQUIRE=all; tell a job that broke from a failure."""
    report = yield
    if call.excinfo is not None and call.excinfo.typename == "JobBrokeError":
        report.user_properties.append(("broke", True))
    if report.skipped and not hasattr(report, "wasxfail") and required("all"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: {reason}, and CKPTPROF_REQUIRE=all forbids to skip"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Do the same for a module that skips itself while it is imported."""
    report = yield
    if report.skipped and required("all"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"{collector.nodeid}: {reason}, and CKPTPROF_REQUIRE=all forbids to skip"
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Let a test marked `alone` run beside no other test of any pytest-xdist worker.

    A lock shared by all workers is held shared by ordinary tests, exclusively by these; a second lock in front of it
    is held while waiting, so that a steady stream of ordinary tests cannot keep one waiting for ever. A group has
    a lock of its own. The others give way to the group of live tests. This wraps pytest-timeout's own hook: the time
    spent waiting is not the test's.
    """
    name = group_of(item)
    locks = Path(os.environ[LOCKS])
    with ExitStack() as held:
        if name:
            _lock(held, locks / f"group-{name}", fcntl.LOCK_EX)
        with ExitStack() as waiting:
            _lock(waiting, locks / "queue", fcntl.LOCK_EX)
            _lock(held, locks / "machine", fcntl.LOCK_EX if _is_alone(item) else fcntl.LOCK_SH)
        _give_way(to_live_tests=item.config.stash[WATCHES] and name != LIVE and not _is_alone(item))
        return (yield)


def _give_way(*, to_live_tests: bool) -> None:
    """Have this worker, and what its test starts, take a tenth of a CPU that others want, or as much as they again.

    A live test mostly waits, but what it measures suffers from a look that comes late.
    """
    if not _may_give_way():
        return
    nice = 10 if to_live_tests else 0
    os.setpriority(os.PRIO_PROCESS, 0, nice)
    if AUTOGROUP.exists():  # the kernel shares the CPUs among sessions first, and then within each
        AUTOGROUP.write_text(str(nice))


def _may_give_way() -> bool:
    """Return whether this is a worker that may take back what it gave: an ordinary user and Docker's root may not.

    Lowering niceness needs CAP_SYS_NICE (setpriority(2)); without CAP_SYS_ADMIN the kernel takes one write to an
    autogroup each 100 ms, of all hosts' users together (kernel/sched/autogroup.c).
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return False
    return held("SYS_ADMIN", "SYS_NICE")


def _lock(held: ExitStack, path: Path, kind: int) -> None:
    """Lock a file until the stack unwinds."""
    file = held.enter_context(path.open("a"))
    fcntl.flock(file, kind)
    held.callback(fcntl.flock, file, fcntl.LOCK_UN)  # a child that a test forked may still hold the descriptor


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the lock files; the process that started the workers does, when they have ended."""
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop(LOCKS), ignore_errors=True)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write down what came of each step of each test, if tries.py wants it; pytest-xdist's workers tell the first."""
    if OUTCOMES in os.environ and "PYTEST_XDIST_WORKER" not in os.environ:
        nodeid = report.nodeid.rpartition("@")[0] if report.nodeid.endswith(GROUPED) else report.nodeid
        broke = any(name == "broke" for name, _ in report.user_properties)
        told = {"id": nodeid, "step": report.when, "outcome": report.outcome, "broke": broke}
        line = json.dumps({**told, "text": report.longreprtext if report.failed else ""})
        with Path(os.environ[OUTCOMES]).open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what tests measured: `record_property("figure", LINE)`, of every worker."""
    reports = [report for key in ("passed", "failed") for report in terminalreporter.stats.get(key, [])]
    lines = [str(line) for report in reports for name, line in report.user_properties if name == "figure"]
    if lines:
        terminalreporter.section("figures")
        terminalreporter.write_line("\n".join(sorted(lines)))


@pytest.fixture
def make_reachable() -> Callable[[Path], None]:
    """Return what lets everybody pass into a directory below the temporary one, however deep pytest has put it."""

    def reachable(directory: Path) -> None:
        top = Path(tempfile.gettempdir())
        for place in (directory, *directory.parents):
            if place == top:
                return
            place.chmod(place.stat().st_mode | 0o055)

    return reachable


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no frame be late: those of a stage or a capture are of another time than this machine's."""
    monkeypatch.setattr("ckptprof.service.recorder.recorder.Recorder._record_lateness", lambda *_: None)
