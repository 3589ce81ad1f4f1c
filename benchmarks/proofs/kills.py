"""kill -9 of the recorder or the sampler at random moments while a job saves, and what of its saves is stored."""

from __future__ import annotations

import random
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proofs.proving import Live, Row, live, logged, place, saving, say

SIZE, SAVE_SECONDS, PAUSE_SECONDS = 24 << 20, 0.8, 0.9
LOST_SECONDS = 2.0
NEAR = 0.02  # of the bytes: the same save
_SECOND_NS = 1_000_000_000


def prove(count: int) -> list[Row]:
    """Kill so many times, each process as often as the other."""
    chance = random.Random()  # noqa: S311 - data
    with place() as work, live(work) as agent, saving(work, SIZE, SAVE_SECONDS, PAUSE_SECONDS) as truth:
        agent.start()
        ready_ns = time.time_ns()
        kills: list[tuple[str, int, int]] = []
        corrupt = 0
        for number in range(count):
            time.sleep(chance.uniform(1.0, 8.0))
            whom = ("recorder", "sampler")[number % 2]
            at_ns = time.time_ns()
            corrupt += _kill(agent, whom)
            kills.append((whom, at_ns, time.time_ns()))
            if number % 10 == 9:
                say(f"kills: {number + 1} of {count}")
        time.sleep(12)
        saves = [one for one in logged(truth) if one["start_ns"] > ready_ns]
        code = agent.end()
        report = agent.report()
        corrupt += _integrity(agent.database)
    return _rows(kills, corrupt + (code != 0), saves, report)


def _kill(agent: Live, whom: str) -> int:
    """Kill one of them and wait until another watches; return 1 if the database is not whole."""
    assert agent.process is not None
    if whom == "sampler":
        sampler = agent.sampler()
        sampler.kill()
        frames = None
        until = time.monotonic() + 60
        while time.monotonic() < until:
            time.sleep(0.1)
            if not sampler.is_running() and agent.sampler().pid != sampler.pid:
                try:
                    now = agent.metric("recorder_frames_total")
                except OSError:
                    continue
                if frames is not None and now > frames:  # it tells what it sees
                    return 0
                frames = now
        raise RuntimeError(f"no other sampler: {agent.said()[-2000:]}")
    sampler = agent.sampler()
    agent.process.send_signal(signal.SIGKILL)
    agent.process.wait()
    bad = _integrity(agent.database)
    sampler.wait(30)  # its pipe is broken
    agent.start()
    return bad


def _integrity(database: Path) -> int:
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        return int(connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)])
    finally:
        connection.close()


def _rows(
    kills: Sequence[tuple[str, int, int]], corrupt: int, saves: Sequence[dict[str, Any]], report: dict[str, Any]
) -> list[Row]:
    told: dict[str, list[dict[str, Any]]] = {}
    for one in report["checkpoints"]:
        if one["kind"] == "save":
            told.setdefault(one["path"], []).append(one)
    seen: Counter[str] = Counter()
    before: dict[str, list[float]] = {"recorder": [], "sampler": []}
    after: list[dict[str, Any]] = []
    for save in saves:
        word = _judge(save, told.pop(save["path"], []), kills)
        seen[word] += 1
        if word in ("lost", "twice", "half"):
            say(f"kills: {save['path']}, which ended at {save['end_ns']}, is told {word}")
        if word == "lost":
            coming = [(at_ns - save["end_ns"], whom) for whom, at_ns, _ in kills if at_ns >= save["end_ns"]]
            if coming:
                before[min(coming)[1]].append(min(coming)[0] / _SECOND_NS)
            else:
                after.append(save)
    gaps = sum(gap["end_ns"] - gap["start_ns"] for gap in report["watched"]["gaps"]) / _SECOND_NS
    ways = Counter(whom for whom, _, _ in kills)
    done = f"{ways['recorder']} kills of the recorder and {ways['sampler']} of the sampler; {len(saves)} saves"
    away = [(ready_ns - at_ns) / _SECOND_NS for _, at_ns, ready_ns in kills]
    rows = [Row("kills: database", done, "0 corrupt", f"{corrupt} corrupt", corrupt == 0)]
    for whom, lost in before.items():
        seen_of = f"{len(lost)} saves lost that had ended before a kill"
        seen_of += f", the oldest {max(lost):.1f} s before it" if lost else ""
        promise = f"of what had ended before a kill at most the last {LOST_SECONDS:g} s are lost"
        holds = max(lost, default=0.0) <= LOST_SECONDS
        rows.append(Row(f"kills: lost with the {whom}", f"{ways[whom]} kills of it", promise, seen_of, holds))
    late = f"watching again after {sorted(away)[len(away) // 2]:.1f} s in the median, {max(away):.1f} s at most; "
    late += f"{seen['unwatched']} saves in these times not seen; {len(after)} of those after the last kill not seen"
    late += f"; {len(report['watched']['gaps'])} gaps of {gaps:.0f} s in all are told"
    rows.append(Row("kills: seen afterwards", done, "every save after the next is ready; the gap is told", late,
                    not after and bool(report["watched"]["gaps"])))  # fmt: skip
    invented = [path for path in told if "/job/ckpt_" not in path]
    doubles = f"{seen['twice']} told twice, {len(invented)} invented"
    rows.append(Row("kills: duplicates", done, "0 told twice, 0 invented", doubles, not invented and not seen["twice"]))
    halves = f"{seen['half']} saves told in part as complete, {seen['part']} in part and as incomplete, "
    halves += f"{seen['whole']} whole"
    rows.append(Row("kills: halves", done, "no part of a save is told as a complete one", halves, not seen["half"]))
    return rows


def _judge(save: dict[str, Any], rows: list[dict[str, Any]], kills: Sequence[tuple[str, int, int]]) -> str:
    """Return one word for what is told of a save."""
    if not rows:
        touched = any(at_ns < save["end_ns"] and save["start_ns"] < ready_ns for _, at_ns, ready_ns in kills)
        return "unwatched" if touched else "lost"
    if sum(one["bytes"] for one in rows) > save["bytes"] * (1 + NEAR):
        return "twice"
    parts = [one for one in rows if one["bytes"] < save["bytes"] * (1 - NEAR)]
    if any(one["status"] == "complete" for one in parts):
        return "half"
    return "part" if parts else "whole"
