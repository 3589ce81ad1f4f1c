"""Few descriptors, a clock that is set, interfaces that come and go: what the host does to an agent."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from livecommand import wait_until
from tests.kernel.filesystems import call
from tests.leftovers import own

from proofs.proving import Row, live, logged, place, saving

SIZE, SAVE_SECONDS, PAUSE_SECONDS = 16 << 20, 0.3, 0.7
_HOUR = 3600
_SECOND_NS = 1_000_000_000
NEAR_SECONDS = 0.25
LEVELS = ("poll", "trace")


def descriptors() -> list[Row]:
    """Start an agent that may open 64 files, at each level."""
    rows = []
    for level in LEVELS:
        with place() as work, live(work, level=level, prefix=("prlimit", "--nofile=64:64")) as agent:
            with saving(work, SIZE, SAVE_SECONDS, PAUSE_SECONDS) as truth:
                try:
                    agent.start()
                except RuntimeError:
                    code = agent.process.wait() if agent.process else -1
                    said = agent.said().splitlines()
                    clear = code > 0 and len(said) <= 4 and "Traceback" not in agent.said()
                    rows.append(_descriptor_row(level, f"it does not start, exit code {code}: {said[0]}", holds=clear))
                    continue
                time.sleep(10)
            time.sleep(4)
            code = agent.end()
            said_text = agent.said()
            found = {one["path"] for one in agent.saves()}
            saves = {one["path"] for one in logged(truth)[1:]}
        told = "limit of open files" in said_text
        restarted = said_text.count("starting another")
        seen = f"{len(saves & found)} of {len(saves)} saves told; the limit {'is' if told else 'is not'} named; "
        seen += f"{restarted} samplers lost; exit code {code}"
        holds = (told or saves <= found) and not restarted and code == 0 and "Traceback" not in said_text
        rows.append(_descriptor_row(level, seen, holds=holds))
    return rows


def _descriptor_row(level: str, seen: str, *, holds: bool) -> Row:
    promised = (
        "it sees less and names the limit, or says in a line that it cannot start; it does not die and start again"
    )
    return Row(f"descriptors: {level}", "RLIMIT_NOFILE is 64", promised, seen, holds)


def clock(count: int) -> list[Row]:
    """Set the wall clock of an agent ahead and back by an hour so many times in the middle of saves."""
    with place() as work:
        shim, offset = work / "clockshim.so", work / "offset"
        call("cc", "-shared", "-fPIC", "-O1", "-o", shim, Path(__file__).with_name("clockshim.c"))
        offset.write_bytes(struct.pack("q", 0))
        shimmed = {"LD_PRELOAD": str(shim), "CLOCK_OFFSET": str(offset)}
        with live(work, environment=shimmed) as agent, saving(work, 32 << 20, 1.0, 1.0) as truth:
            agent.start()
            time.sleep(6)
            for number in range(count):
                saves = len(logged(truth))
                wait_until(lambda saves=saves: len(logged(truth)) > saves)
                time.sleep(1.5)  # in the middle of a save
                with offset.open("r+b", buffering=0) as stream:
                    stream.write(struct.pack("q", (_HOUR, 0, -_HOUR, 0)[number % 4]))
            saves_made = logged(truth)[1:]
            time.sleep(6)
            code = agent.end()
            agent.environment.pop("LD_PRELOAD")
            report = agent.report()
            restarts = agent.said().count("starting another")
    told: dict[str, list[float]] = {}
    for one in report["checkpoints"]:
        if one["kind"] == "save":
            told.setdefault(one["path"], []).append((one["end_ns"] - one["start_ns"]) / _SECOND_NS)
    made = {one["path"]: (one["end_ns"] - one["start_ns"]) / _SECOND_NS for one in saves_made}
    unseen = [path for path in made if path not in told]
    twice = [path for path in made if len(told.get(path, ())) > 1]
    errors = [abs(told[path][0] - seconds) for path, seconds in made.items() if path in told]
    worst = max(errors, default=0.0)
    return [
        Row(
            "clock: steps of an hour",
            f"{count} steps of the agent's wall clock (a shim of clock_gettime), to and fro, in the middle of saves; "
            f"{len(made)} saves",
            f"each save is told once, its duration right within {NEAR_SECONDS} s; nothing is started again",
            f"{len(unseen)} not told, {len(twice)} told twice, durations wrong by at most {worst:.2f} s, "
            f"{restarts} samplers lost, exit code {code}",
            not unseen and not twice and worst < NEAR_SECONDS and not restarts and code == 0,
        )
    ]


_SCRAPE = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:{}/metrics', timeout=10).read().decode())"


def hotplugs(count: int) -> list[Row]:
    """Make and remove so many pairs of interfaces in a network of its own, in which the agent runs."""
    name = own("plugs")
    within = ("ip", "netns", "exec", name)
    call("ip", "netns", "add", name)
    try:
        call("ip", "-n", name, "link", "set", "lo", "up")
        with place() as work, live(work, level="poll", prefix=within) as agent:
            agent.start()

            def series() -> set[str]:
                page = subprocess.run(
                    [*within, sys.executable, "-c", _SCRAPE.format(agent.port)],
                    capture_output=True, text=True, check=True,
                ).stdout  # fmt: skip
                dropped = re.search(r'^ckptprof_series_dropped_total\{kind="network"\} (\S+)', page, re.MULTILINE)
                return {f"dropped {dropped[1]}" if dropped else ""} | {*re.findall(r'device="(plug\w+)"', page)}

            most, left = 0, 0
            together = 10
            for first in range(0, count, together):
                numbers = range(first, min(count, first + together))
                _batch(name, [f"link add plug{n}a type veth peer name plug{n}b" for n in numbers])
                most = max(most, len(series()) - 1)
                _batch(name, [f"link del plug{n}a" for n in numbers])
            began = time.monotonic()
            while len(series()) > 1 and time.monotonic() < began + 60:
                time.sleep(0.2)
            seconds = time.monotonic() - began
            left = len(series()) - 1
            _batch(name, ["link add pluglast type veth peer name pluglost"])
            came = _within(20, lambda: "pluglast" in series())
            dropped = next(one for one in series() if one.startswith("dropped"))
            code = agent.end()
            faults = agent.said().count("Traceback")
    finally:
        call("ip", "netns", "delete", name)
    return [
        Row(
            "hot-plugs",
            f"{count} pairs of veth made and removed, {together} at a time, in a network namespace",
            "the series of what is gone end after two reads; what comes later has its own",
            f"{most} series of such devices at most, {left} left {seconds:.1f} s after the last was removed; a new one "
            f"{'has' if came else 'has not'} its series; {dropped.removeprefix('dropped ')} dropped; exit code {code}",
            left == 0 and seconds < 5 and came and code == 0 and not faults and dropped == "dropped 0.0",
        )
    ]


def _batch(name: str, lines: list[str]) -> None:
    batch = ["ip", "-n", name, "-batch", "-"]
    path = {"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"}
    subprocess.run(batch, input="\n".join(lines), text=True, check=True, env=path, capture_output=True)


def _within(seconds: float, condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True
