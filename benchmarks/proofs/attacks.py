"""What a user, a client, a foreign file or a broken host can do to the recorder, on a quiet and on a loaded host.

    LOAD=8 python benchmarks/proofs/attacks.py --only forks threads

Needs root, and takes 15 minutes at most. Two agents, at trace and at poll, watch this host while a job saves 25 MB
every two seconds; the attackers run as another user, one after the other, first alone and then beside LOAD busy
loops. A row shows harm where an operator would see it. An attack that did not reach its own count proves nothing, and
counts as harm. The exit code is 1 if there is harm.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":  # as a program it finds the rooms of the benchmarks only from here on
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import psutil

from figures import parser, show
from proofs import attackers, malice
from proofs.malice import MEMORY_BYTES, SCRAPE_SECONDS, USER, WINDOW_SECONDS, NotHereError
from proofs.proving import PYTHON, Live, Row, live, logged, place, saving, say

from bootedmachine import Machine, booted, copy_of_tree, install, until  # isort: skip - found by `proofs`

NEAR = 0.02  # of the bytes
TOLD_SECONDS = 30.0  # after the last of them at the latest
LATE_SECONDS = 0.1  # of a tick, on average
CPU_SECONDS = 15.0  # the hard budget: 25 % of a core in any minute
END_SECONDS = 5.0
LEVELS = ("trace", "poll")


@dataclass
class Watch:
    """What an agent used and was late within a while, and what it told of the saves of a job."""

    agent: Live
    began: float = field(default_factory=time.monotonic)
    most_bytes: int = 0

    def __post_init__(self) -> None:
        """Begin."""
        self._cpu_seconds = self._used()
        self._ticks, self._late = (
            self.agent.metric(f"sampler_{name}") for name in ("ticks_total", "lateness_seconds_total")
        )

    def _processes(self) -> list[psutil.Process]:
        assert self.agent.process is not None
        return [psutil.Process(self.agent.process.pid), self.agent.sampler()]

    def _used(self) -> list[float]:
        return [sum(one.cpu_times()[:2]) for one in self._processes()]

    def look(self) -> None:
        """Note how much memory they have now."""
        self.most_bytes = max(self.most_bytes, sum(one.memory_info().rss for one in self._processes()))

    def shares(self) -> list[float]:
        """Return how many percent of a core the recorder and the sampler used."""
        seconds = time.monotonic() - self.began
        return [100 * (now - before) / seconds for now, before in zip(self._used(), self._cpu_seconds, strict=True)]

    def lateness(self) -> float:
        """Return by how many seconds a tick was late in the mean."""
        ticks = self.agent.metric("sampler_ticks_total") - self._ticks
        return (self.agent.metric("sampler_lateness_seconds_total") - self._late) / max(1.0, ticks)


def told(agent: Live, truth: Path, since_ns: int) -> tuple[int, int, int, int]:
    """Return how many saves a job made from then on, of those told, told twice, and told with other bytes."""
    saves = {one["path"]: one for one in logged(truth) if one["start_ns"] >= since_ns}
    until = time.monotonic() + TOLD_SECONDS
    found: dict[str, list[int]] = {}
    while len(found) < len(saves) and time.monotonic() < until:
        time.sleep(3)
        found = {}
        for one in agent.saves():
            if one["path"] in saves:
                found.setdefault(one["path"], []).append(one["bytes"])
    near = [abs(sizes[0] / saves[path]["bytes"] - 1) <= NEAR for path, sizes in found.items()]
    return len(saves), len(found), sum(len(sizes) > 1 for sizes in found.values()), near.count(False)


@dataclass(frozen=True)
class Attack:
    """A row: `least` is the count that the attacker's first word must reach."""

    name: str
    harm: str
    program: str = ""
    least: int = 1
    is_root: bool = False
    judged: Callable[[Host], str] | None = None  # instead of the two agents; returns the harm


@dataclass
class Host:
    """The two agents, and what they have done since the row began."""

    work: Path
    agents: dict[str, Live]
    truth: Path
    loaded: bool = False
    machine: Machine | None = None
    slow: dict[str, float] = field(default_factory=dict)  # the slowest scrape of each

    def harm(self, attack: Attack) -> str:
        """Attack once; return what an operator sees of it, empty if nothing."""
        home = Path(tempfile.mkdtemp(prefix="attacker-", dir=self.work))
        os.chown(home, 0 if attack.is_root else USER, -1)
        ports, pids = [one.port for one in self.agents.values()], [one.pid for one in self.agents.values()]
        become = [] if attack.is_root else ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        command = [*become, PYTHON, "-c", attackers.HEAD + attack.program, str(WINDOW_SECONDS), str(ports), str(pids)]
        since_ns, over = time.time_ns(), threading.Event()
        watches = {level: Watch(agent) for level, agent in self.agents.items()}
        scrapers = [threading.Thread(target=self._scrape, args=(level, over)) for level in self.agents]
        for one in scrapers:
            one.start()
        with subprocess.Popen(command, cwd=home, stdout=subprocess.PIPE, text=True, start_new_session=True,
                              env={"RANK": "0", "PATH": os.environ["PATH"]}) as attacker:  # fmt: skip
            assert attacker.stdout is not None
            limit = time.monotonic() + 10 * WINDOW_SECONDS
            while not select.select([attacker.stdout], [], [], 0.3)[0] and time.monotonic() < limit:
                for watch in watches.values():
                    with contextlib.suppress(psutil.Error, RuntimeError):
                        watch.look()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(attacker.pid, signal.SIGKILL)
            count = attacker.stdout.read().strip()
        over.set()
        for one in scrapers:
            one.join()
        is_stopped = attack.program is attackers.STOPPED
        seen = {level: self._seen(level, watches[level], since_ns, is_stopped=is_stopped) for level in self.agents}
        found = [f"{level}: {text}" for level, text in seen.items() if text]
        shutil.rmtree(home, ignore_errors=True)
        found[:0] = did_not_run(count, attack.least // (5 if self.loaded else 1))
        say(f"{attack.name}: {count}: {'; '.join(found) or 'no harm'}")
        return "; ".join(found)

    def _scrape(self, level: str, over: threading.Event) -> None:
        self.slow[level] = 0.0
        while not over.wait(0.5):
            began = time.monotonic()
            with contextlib.suppress(OSError):
                self.agents[level].scrape()
            self.slow[level] = max(self.slow[level], time.monotonic() - began)

    def _seen(self, level: str, watch: Watch, since_ns: int, *, is_stopped: bool) -> str:
        """Return what is not as it should be of an agent; it is started again then, so that the next row is its own."""
        agent, found = self.agents[level], []
        try:
            cpu_seconds = sum(watch.shares()) * (time.monotonic() - watch.began) / 100
            made, seen, twice, wrong = told(agent, self.truth, since_ns)
            late = watch.lateness()
        except (OSError, psutil.Error, RuntimeError) as error:
            found.append(f"gone: {type(error).__name__}: {str(error)[-200:]}")
        else:
            checks = (
                (seen < made or not made, f"{seen} of {made} saves of the other user reported"),
                (bool(twice or wrong), f"{twice} saves twice, {wrong} with other bytes"),
                (cpu_seconds > CPU_SECONDS, f"{cpu_seconds:.0f} s of CPU"),
                (watch.most_bytes > MEMORY_BYTES, f"{watch.most_bytes >> 20} MiB"),
                (late > LATE_SECONDS, f"ticks {1000 * late:.0f} ms late on average"),
                (self.slow[level] > SCRAPE_SECONDS and not is_stopped, f"metrics after {self.slow[level]:.1f} s"),
                ("restarting the sampler" in agent.said(), "the sampler was replaced"),
            )
            found += [text for is_harm, text in checks if is_harm]
        if found:
            found += self.end(level)
            agent.log.unlink()
            agent.start()
            time.sleep(4)  # until it knows the job
        return ", ".join(found)

    def end(self, level: str) -> list[str]:
        """End an agent as systemd does; return what is not as it should be of its end and its database."""
        agent = self.agents[level]
        began = time.monotonic()
        code = agent.end()
        seconds = time.monotonic() - began
        with contextlib.closing(sqlite3.connect(f"file:{agent.database}?mode=ro", uri=True)) as database:
            whole = database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        checks = ((seconds > END_SECONDS, f"ends {seconds:.0f} s after SIGTERM"), (code != 0, f"exit code {code}"),
                  (not whole, "the database is damaged"), ("Traceback" in agent.said(), "a traceback"))  # fmt: skip
        return [text for is_harm, text in checks if is_harm]

    def database(self) -> Path:
        """Return a copy of a database with checkpoints in it."""
        copy = self.work / "copy.db"
        copy.unlink(missing_ok=True)
        limit = time.monotonic() + 60
        with contextlib.closing(sqlite3.connect(self.agents["poll"].database)) as own:
            while not own.execute("SELECT count(*) FROM checkpoints").fetchone()[0]:
                if time.monotonic() > limit:
                    raise RuntimeError("no checkpoint is stored")
                time.sleep(0.5)
            with contextlib.closing(sqlite3.connect(copy)) as other:
                own.backup(other)
        return copy

    def booted(self) -> Machine:
        """Return the machine with the service; NotHereError if this host cannot boot one."""
        if self.machine is None:
            raise NotHereError("needs systemd-nspawn and mmdebstrap")
        return self.machine


def did_not_run(count: str, least: int) -> list[str]:
    """Return what is wrong with the proof: by its own count the attacker did less than it was to, or said nothing."""
    number = count.partition(" ")[0]
    if number.isdecimal() and int(number) >= least:
        return []
    return [f"the attack did not run: {count or 'no count'}, at least {least} were wanted"]


_SAVES = "saves of another user lost or late; CPU, memory, metrics, lateness"
ATTACKS = (
    Attack("small-files", f"{_SAVES}; the end", attackers.SMALL_FILES, 20000),
    Attack("http-header", "metrics; the recorder's CPU", attackers.SLOW_HEADER, 8),
    Attack("group-flock", "the service does not start again", judged=malice.locks),
    Attack("group-readers", "nothing is stored", judged=malice.readers),
    Attack("hung-child", "no process is sampled again", judged=malice.hung_child),
    Attack("clients", "the scraper is kept out", attackers.HALF_OPEN, 100),
    Attack("foreign-databases", "time and memory of `report`", judged=malice.databases),
    Attack("rights", "what a hostile input could use", judged=malice.rights),
    Attack("forks", _SAVES, attackers.FORKS, 1000),
    Attack("bomb", _SAVES, attackers.BOMB, 1500),
    Attack("execs", _SAVES, attackers.EXECS, 1000),
    Attack("arguments", _SAVES, attackers.ARGUMENTS, 20),
    Attack("threads", _SAVES, attackers.THREADS, 2000),
    Attack("same-pid", f"{_SAVES}; saves of the wrong process", attackers.SAME_PID, 200, is_root=True),
    Attack("descriptors", _SAVES, attackers.DESCRIPTORS, 50000),
    Attack("100k-files", f"{_SAVES}; the end", attackers.FILES, 100000),
    Attack("mappings", _SAVES, attackers.MAPPINGS, 1000),
    Attack("io_uring", _SAVES, attackers.URING, 10000),
    Attack("namespaces", _SAVES, attackers.NAMESPACES, 20),
    Attack("renames", _SAVES, attackers.RENAMES, 5000),
    Attack("swaps", f"{_SAVES}; a hung look", attackers.SWAPS, 15),
    Attack("stopped", "saves lost, no end", attackers.STOPPED, 2, is_root=True),
    Attack("hostile-collector", "`ship` hangs, dies or never ships again", judged=malice.collectors),
    Attack("shared-tmp", "files of the caller overwritten; the command not run", judged=malice.shared_folder),
)  # fmt: skip
_COMMANDS = "tests/service/commands/test_agent_"
_ATTACKED = f"{_COMMANDS}attacked.py::test_"
# What a test, or benchmarks/reliability.py, tries: a row that names it, and is not tried once more here
ELSEWHERE = {
    "retention: one user pushes out others": "tests/store/test_retention.py::test_one_user_pushes_out_nobody_elses",
    "exposure": "tests/systemd/test_unit.py::test_the_page_states_the_exposure_that_systemd_prints",
    "hostile settings": "tests/fuzz/test_fuzz.py::test_damaged_input_is_borne",
    "disk full, read-only, EIO": "benchmarks/reliability.py --only disks",
    "clock jumps": "tests/recording/test_disturbances.py",
    "few descriptors": f"{_COMMANDS}disturbed.py::test_with_few_descriptors_it_polls_and_sees_saves",
    "kill -9": "benchmarks/reliability.py --only kills",
    "a mount that hangs": f"{_ATTACKED}a_folder_swapped_for_a_mount_that_hangs_stops_nobody",
    "links to files of root": f"{_ATTACKED}a_link_leads_to_nothing_that_its_user_may_not_see",
    "processes that hold their readers": f"{_ATTACKED}processes_that_hold_whoever_reads_of_them_stop_nobody",
}


@contextlib.contextmanager
def _host(work: Path, attacks: list[Attack]) -> Iterator[Host]:
    """Start the agents with the rights and the turn of the unit, the job, and the machine if a row needs one."""
    with contextlib.ExitStack() as stack:
        agents = {}
        for level in LEVELS:
            (work / level).mkdir()
            agents[level] = stack.enter_context(live(work / level, level=level, jobs=work, prefix=("nice", "-n", "-5")))
            agents[level].start()
        host = Host(work, agents, stack.enter_context(saving(work, 24 << 20, 0.5, 1.5)))
        needed = {malice.locks, malice.readers, malice.rights} & {one.judged for one in attacks}
        if needed and shutil.which("systemd-nspawn") and shutil.which("mmdebstrap"):
            tree = copy_of_tree(work)
            install(tree)
            host.machine = stack.enter_context(booted(tree))
            until("the service", lambda: host.booted().property("ActiveState") == "active")
        time.sleep(5)  # until the job is known
        yield host


def prove(_: float = 1.0, only: tuple[str, ...] = ()) -> list[Row]:
    """Attack in each way, first on a quiet host."""
    attacks = [one for one in ATTACKS if one.name in (only or [other.name for other in ATTACKS])]
    load, harms = int(os.environ.get("LOAD", "8")), {one.name: ["", ""] for one in attacks}
    with place() as work, _host(work, attacks) as host:
        for turn in range(2):
            host.loaded = bool(turn)
            burning = [subprocess.Popen([PYTHON, "-c", "while True: pass"]) for _ in range(load * turn)]
            try:
                for one in attacks:
                    harms[one.name][turn] = _tried(host, one)
            finally:
                for process in burning:
                    process.kill()
                    process.wait()
        ends = {level: host.end(level) for level in LEVELS}
    rows = [_row(one, *harms[one.name]) for one in attacks]
    said = "; ".join(f"{level}: {', '.join(found)}" for level, found in ends.items() if found)
    rows.append(Row("attack: end", "the end of both agents", "5 s, a whole database", said or "no harm", not said))
    return rows


def _tried(host: Host, attack: Attack) -> str:
    if attack.judged is None:
        return host.harm(attack)
    try:
        found = attack.judged(host)
    except NotHereError as error:
        found = f"skipped: {error}"
    except (AssertionError, RuntimeError, OSError, sqlite3.Error, subprocess.SubprocessError) as error:
        found = f"it could not be tried: {type(error).__name__}: {str(error)[-300:]}"
    say(f"{attack.name}: {found or 'no harm'}")
    return found


def _row(attack: Attack, quiet: str, loaded: str) -> Row:
    harm = [one for one in (quiet, loaded) if one and not one.startswith("skipped")]
    seen = f"quiet: {quiet or 'no harm'}; loaded: {loaded or 'no harm'}"
    return Row(f"attack: {attack.name}", attack.harm, "no harm", seen, not harm)


def main() -> int:
    """Print a row for each attack."""
    made = parser(__doc__)
    made.add_argument("--only", nargs="*", default=[], choices=[one.name for one in ATTACKS], metavar="NAME")
    options = made.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the agents have sessions of their own
    rows = prove(only=tuple(options.only))
    lines = [
        {"attack": row.proof.removeprefix("attack: "), "harm looked for": row.done, "seen": row.seen,
         "verdict": "no harm" if row.holds else "HARM"}
        for row in rows
    ]  # fmt: skip
    if not options.only:
        lines += [{"attack": name, "harm looked for": "", "seen": proof, "verdict": "tried there"}
                  for name, proof in ELSEWHERE.items()]  # fmt: skip
    show("attacks", lines, as_json=options.json)
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
