"""Interfaces that come and go, and the series of an agent."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable

from tests.kernel.filesystems import call
from tests.leftovers import own

from proofs.proving import Row, live, place

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
                if not most:  # else nothing would be seen to end
                    _within(20, lambda: len(series()) > 1)
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
            most > 0 and left == 0 and seconds < 5 and came and code == 0 and not faults and dropped == "dropped 0.0",
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
