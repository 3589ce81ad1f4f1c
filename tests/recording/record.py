"""Makes the corpus in tests/fixtures/streams: real jobs under the real sampler, and what each job says it did.

    python tests/recording/record.py [--level trace] [--again] NAME...

NAME is one of jobs.py, or a pattern like `work-*`. Both levels watch one run of a job; what is recorded at trace level
carries that in its name. What is recorded already is left alone unless --again is given. Afterwards `make captures`
says which captures show nothing that others do not: of some jobs none is kept. Only the job's own processes
and files are kept, and of the host what a verdict needs, without its names. It needs root, eBPF, and 3 GB of disk under
/var/tmp; for faults also what tests/e2e/faults needs.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ckptprof.recording import Frame, Header
from ckptprof.service.commands.replaying import Replayed, replay
from ckptprof.service.options import Wish

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests" / "e2e"), str(ROOT)]
from everyday.store import make_store  # noqa: E402 - found by the line above
from jobs import JOBS, Job  # noqa: E402
from labels import add, differences  # noqa: E402
from told import STREAMS, SUFFIX, ordered, told  # noqa: E402
from watched import LEVELS, Scrubber, Thinner, Watched, family, watch, write  # noqa: E402

GOLDEN = ROOT / "tests" / "golden" / "captures"
DISK = "/var/tmp"
TERSE_BYTES = 40_000
BIG_BYTES = 80_000
MAX_BYTES = 150_000  # of a capture that is kept
TENTH_NS = 10**8
MARGINS_NS = (10**9, 3 * 10**9)  # around events, in which all is kept


def make(name: str, job: Job, levels: Sequence[Wish], place: Path) -> dict[str, dict[str, Any]]:
    """Record one job; return the label of each capture."""
    folder, big, store = place / name, place / "big", place / "store"
    shutil.rmtree(folder, ignore_errors=True)
    for needed in (folder, place / "tmp", folder / "staging"):
        needed.mkdir(parents=True, exist_ok=True)
    if not big.exists():
        big.mkdir()
        (big / "step_500.pt").write_bytes(b"PK\x03\x04" + os.urandom(200 << 20))
    if "{store}" in job.command and not store.exists():
        make_store(store)
    truth = folder / "truth.jsonl"
    environment = {**os.environ, "TMPDIR": str(place / "tmp"), **dict(job.environment)}
    with contextlib.ExitStack() as stack:
        directory = folder
        if job.ground is not None:
            directory = stack.enter_context(job.ground()) / "run"
            directory.mkdir()
        words = {"python": sys.executable, "dir": directory, "truth": truth, "big": big, "store": store}
        if job.before is not None:
            subprocess.run(["sh", "-c", _filled(job.before, words)], check=True, env=environment, capture_output=True)
        command = f"sleep 0.5; {_filled(job.command, words)}; code=$?; sleep 0.5; exit $code"
        code, seen = watch(command, levels, environment)
        if code and not job.fails:
            raise RuntimeError(f"{name}: ended with {code}")
        events = [json.loads(line) for line in truth.read_text().splitlines()] if truth.exists() else []
        if job.interrupted:
            events.append(interrupted(directory, events))
    labels = {file_name(name, watched.level): keep(name, job, watched, directory, events) for watched in seen}
    shutil.rmtree(folder, ignore_errors=True)
    return labels


def _filled(command: str, words: dict[str, Any]) -> str:
    for word, value in words.items():
        command = command.replace(f"{{{word}}}", str(value))
    return command


def keep(name: str, job: Job, watched: Watched, place: Path, events: list[dict[str, Any]]) -> dict[str, Any]:
    """Write what one level saw of a job; return its label."""
    header, frames, level = watched.header, watched.frames, watched.level
    scrubber = Scrubber(family(frames, watched.root_pid), job.host)
    scrubber.know(frames, (str(place),))
    path = STREAMS / f"{file_name(name, level)}{SUFFIX}"
    replayed = write_lean(path, header, [scrubber.frame(frame) for frame in frames])
    seen = [msgspec.to_builtins(one) for one in ordered(replayed.report.checkpoints) if one.kind.value != "copy"]
    GOLDEN.mkdir(exist_ok=True)
    (GOLDEN / f"{file_name(name, level)}.txt").write_text(told(replayed), encoding="utf-8")
    label = {
        "kernel": header.kernel,
        "date": time.strftime("%Y-%m-%d", time.gmtime(header.wall_ns / 1e9)),
        "level": level,
        "command": job.command.replace(f"{ROOT}/", ""),
        "from": job.origin,
    }
    label |= {"events": strict(job, level, events)} if job.held else right(job, events)
    if live := _differs_from_live(header, frames, seen):
        label["live"] = live
    if not job.held or (not events and seen):
        label.setdefault("truth", label.pop("events", []))
        label["told_otherwise"] = differences(label, seen)
    return label


def write_lean(path: Path, header: Header, frames: list[Frame]) -> Replayed:
    """Write a recording as thin as it tells the same, and a big one as thin as it tells the same events."""
    write(path, header, frames)
    best = whole = replay(path, None)
    spans = tuple((one.start_ns, one.end_ns) for one in whole.report.checkpoints)
    for least_bytes, terse, same in ((0, False, essence), (TERSE_BYTES, True, essence), (BIG_BYTES, True, events_of)):
        if path.stat().st_size < least_bytes:
            break
        for margin_ns in MARGINS_NS:
            thinner, before = Thinner(spans, margin_ns, terse=terse), path.read_bytes()
            write(path, header, [thinner.frame(frame) for frame in frames])
            lean = replay(path, None)
            if same(lean) == same(whole):
                best = lean
                break
            path.write_bytes(before)
    return best


def events_of(replayed: Replayed) -> list[tuple[Any, ...]]:
    """Return what was done, by a recording."""
    return [(one.kind, one.path, one.step, one.status) for one in ordered(replayed.report.checkpoints)]


def essence(replayed: Replayed) -> list[tuple[Any, ...]]:
    """Return what must not get lost of a recording."""
    told_of = [
        (one.mode, one.files, one.bytes, one.verdict and one.verdict.limit, round((one.stall_ns or 0) / TENTH_NS))
        for one in ordered(replayed.report.checkpoints)
    ]
    return [*events_of(replayed), *told_of, (len(replayed.rejected),)]


def strict(job: Job, level: Wish, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the label of one of the first recordings, which test_corpus.py holds in all that is told."""
    for event in events:
        event["framework"] = job.framework
        if "status" in event and event["status"] != "complete":
            continue
        if not (job.mapped and event["kind"] == "restore"):
            event["class"] = "sequential-large"
        elif level == "poll":
            event["class"] = None  # at trace level it depends on how much was read before it was mapped
    return events


def right(job: Job, events: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what is right of a job: its own log, or what is known of it."""
    known = {"kind": "save", "framework": job.framework, "mode": job.mode}
    logged = [known | {name: value for name, value in one.items() if value is not None} for one in events]
    truth = [{name: value for name, value in one.items() if value is not None} for one in job.expected or logged]
    truth.sort(key=lambda one: one.get("start_ns", 0))
    if job.limits:  # whole pages written past the page cache end before the format does: no status is right
        for event in truth:
            event.pop("status", None)
        for event in truth[job.skip :]:
            event["limits"] = list(job.limits)
    return {"truth": truth}


def interrupted(folder: Path, events: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the label of a save that its job never logged: the newest thing in its folder."""
    known = {event["path"] for event in events}
    (path,) = [str(entry) for entry in (folder / "job").iterdir() if str(entry) not in known]
    return {"kind": "save", "path": path, "step": int(re.sub(r"\D", "", Path(path).stem)), "status": "incomplete"}


def _differs_from_live(header: Header, frames: list[Frame], seen: list[dict[str, Any]]) -> list[str]:
    """Return the kind, path and step of what all that was seen tells, if that is something else."""
    with tempfile.TemporaryDirectory(dir=DISK) as folder:
        path = Path(folder) / f"live{SUFFIX}"
        write(path, header, frames)
        live = [one for one in replay(path, None).report.checkpoints if one.kind.value != "copy"]
    told_live = sorted(f"{one.kind.value} {one.path} {one.step}" for one in live)
    return [] if told_live == sorted(f"{one['kind']} {one['path']} {one['step']}" for one in seen) else told_live


def file_name(name: str, level: Wish) -> str:
    """Return the name of a recording."""
    return f"{name}.trace" if level == "trace" else name


def is_kept(file: str, label: dict[str, Any]) -> bool:
    """Say what a capture is like; take away one that is too big, and return False."""
    path = STREAMS / f"{file}{SUFFIX}"
    size = path.stat().st_size
    print(f"{file}: {size} bytes", *label.get("told_otherwise", ()), *label.get("live", ()), sep="\n  ", flush=True)  # noqa: T201
    if size <= MAX_BYTES:
        return True
    path.unlink()
    (GOLDEN / f"{file}.txt").unlink()
    print("  left out: too big")  # noqa: T201
    return False


def main(patterns: list[str], levels: Sequence[Wish], *, again: bool) -> int:
    """Record the named jobs; return how many failed."""
    names = [name for name in JOBS if any(fnmatch.fnmatch(name, one) for one in patterns)]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="corpus-", dir=DISK, ignore_cleanup_errors=True) as place:
        Path(place).chmod(0o755)
        for name in names:
            missing = [one for one in levels if again or not (STREAMS / f"{file_name(name, one)}{SUFFIX}").exists()]
            if not missing:
                continue
            try:
                labels = make(name, JOBS[name], missing, Path(place))
            except Exception as error:  # noqa: BLE001 - the others are recorded all the same
                failed += 1
                print(f"{name}: {error!r}", flush=True)  # noqa: T201 - a tool
                continue
            add({file: label for file, label in labels.items() if is_kept(file, label)})
    return failed


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--level", choices=LEVELS, action="append")
    arguments.add_argument("--again", action="store_true", help="also what is recorded already")
    arguments.add_argument("names", nargs="+", metavar="NAME")
    options = arguments.parse_args()
    raise SystemExit(1 if main(options.names, options.level or LEVELS, again=options.again) else 0)
