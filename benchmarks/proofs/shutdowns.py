"""File systems that go down under the live store, and whether what it had acknowledged is there afterwards."""

from __future__ import annotations

import random
import select
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from tests.store.grounds import LOG_FLUSHED, LOG_LOST, ground

from contenders import ROOT
from proofs.proving import Row, live, place, saving, say

_COMMITTER = ROOT / "tests/store/committer.py"
KINDS = ("ext4", "xfs")


def prove(count: int) -> list[Row]:
    """Shut down so many times below a store, and a fifth as often below a whole agent."""
    return [_below_a_store(count), _below_an_agent(max(2, count // 5))]


def stored(database: Path) -> tuple[set[str], bool]:
    """Return the events of a database, and whether it is whole."""
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        whole = connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return {path for (path,) in connection.execute("SELECT uid FROM checkpoints")}, whole
    finally:
        connection.close()


def _below_a_store(count: int) -> Row:
    chance = random.Random(50)  # noqa: S311 - data
    lost = corrupt = late = 0
    acknowledged = dict.fromkeys(KINDS, 0)
    for kind in KINDS:
        with place() as work, ground(work, kind, work / "fs") as disk:
            database = disk.at / "x.db"
            for number in range(count // len(KINDS)):
                command = [sys.executable, str(_COMMITTER), str(database), str(acknowledged[kind])]
                with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0) as process:
                    assert process.stdout is not None
                    said = process.stdout.readline()
                    wait, until = chance.uniform(0.05, 0.6), time.monotonic()
                    until += wait
                    while (left := until - time.monotonic()) > 0:
                        if select.select([process.stdout], [], [], left)[0]:
                            said += process.stdout.read(1 << 16) or b""
                    before = len(said)
                    disk.shut_down((LOG_LOST, LOG_FLUSHED)[number % 3 == 2])
                    time.sleep(0.1)
                    process.kill()
                    said += process.stdout.read() or b""
                newest, meanwhile = (_newest(text, acknowledged[kind]) for text in (said[:before], said))
                disk.unmount()
                disk.mount()
                there, whole = stored(database)
                corrupt += not whole
                lost += sum(str(one) not in there for one in range(1, newest + 1))
                late += sum(str(one) not in there for one in range(newest + 1, meanwhile + 1))
                acknowledged[kind] = max([newest, *map(int, there)])
            say(f"shutdowns: {kind}: {acknowledged[kind]} events")
    return Row(
        "shutdowns: store",
        f"{count // 2} on ext4 and {count // 2} on XFS, two thirds with the log in memory lost; "
        f"{sum(acknowledged.values())} events acknowledged",
        "0 acknowledged events lost, 0 corrupt",
        f"{lost} lost, {corrupt} corrupt; {late} lost of those that were stored as it went down",
        lost + corrupt == 0,
    )


def _newest(said: bytes, known: int) -> int:
    """Return the last event that was acknowledged by then."""
    lines = said[: said.rfind(b"\n") + 1].split()[1:]
    return int(lines[-1]) if lines else known


def _below_an_agent(count: int) -> Row:
    lost = corrupt = unsaid = acknowledged = 0
    with place() as work, live(work) as agent, saving(work, 16 << 20, 0.2, 0.6):
        for number in range(count):
            with ground(work, KINDS[number % 2], work / "state") as disk:
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
    return Row(
        "shutdowns: agent",
        f"{count} below the folder of a running agent while a job saves; {acknowledged} events were stored before",
        "0 of them lost, 0 corrupt; the agent says that it does not store, and goes on",
        f"{lost} lost, {corrupt} corrupt, {unsaid} times not said",
        lost + corrupt + unsaid == 0,
    )
