"""Train for real under ckptprof, restart once, then hold ckptprof's report against the training script's own log.

Ends with 1 if ckptprof missed an event of the log or invented one. `make demo` calls it in an environment of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from truth import compare, read_log, table

EXAMPLES = Path(__file__).resolve().parent


def ckptprof() -> str:
    """Return the path of the command in this environment, else on PATH."""
    beside = Path(sys.executable).with_name("ckptprof")
    found = str(beside) if beside.exists() else shutil.which("ckptprof")
    if found is None:
        raise SystemExit("ckptprof is not installed: run `make demo`, or `pip install .` first")
    return found


def call(*command: str) -> None:
    """Show a command and run it; raises SystemExit with its exit code if it fails."""
    print(f"\n$ {shlex.join(command)}", flush=True)
    code = subprocess.run(command, check=False).returncode  # noqa: S603 - a demo runs programs
    if code:
        raise SystemExit(code)


def ask(*command: str) -> dict[str, Any]:
    """Return the JSON document that a command prints; code 3, nothing found, is an answer too."""
    result = subprocess.run(command, check=False, stdout=subprocess.PIPE)  # noqa: S603 - a demo runs programs
    if result.returncode not in (0, 3):
        raise SystemExit(result.returncode)
    document: dict[str, Any] = json.loads(result.stdout or b'{"checkpoints": []}')
    return document


def forget(directory: Path) -> None:
    """Drop the files from the page cache: a job that restarts after a failure seldom finds them in memory."""
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb") as stream:
                os.fsync(stream.fileno())  # a dirty page cannot be dropped
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def own_directory(work: Path | None) -> Path:
    """Make a new directory in `work`, or where temporary files go: what is there already is never touched."""
    try:
        if work is not None:
            work.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="ckptprof-demo-", dir=work)).resolve()
    except OSError as error:
        raise SystemExit(f"no directory to work in: {error}") from error


def demo(options: argparse.Namespace, directory: Path) -> bool:
    """Run the job twice and compare; return whether all was found and nothing invented."""
    database, truth = str(directory / "ckptprof.db"), directory / "truth.jsonl"
    job = [sys.executable, str(EXAMPLES / f"train_{options.framework}.py"), "--dir", str(directory / "checkpoints")]
    job += ["--truth", str(truth), "--size-mb", str(options.size_mb), "--interval", str(options.interval)]
    if options.format:
        job += ["--format", options.format]
    watch = [ckptprof(), "run", "--db", database, "--"]
    print("A job trains and saves, without any change for ckptprof.")
    fault = [] if options.framework != "numpy" or options.format else ["--slow-save", str(options.saves - 1)]
    print(
        "A fault is planted: its last save but one is compressed by zlib. See whether ckptprof names it." * bool(fault)
    )
    call(*watch, *job, "--saves", str(options.saves), *fault)
    forget(directory / "checkpoints")
    print("\nThe job restarts, restores and continues.")
    call(*watch, *job, "--resume", "--saves", "2")
    return tell(directory, database, truth)


def tell(directory: Path, database: str, truth: Path) -> bool:
    """Report both runs and compare; True if every checkpoint was found and none invented."""
    print("\nThe record of both runs:")
    call(ckptprof(), "report", "--no-pager", "--db", database)
    seen = ask(ckptprof(), "report", "--json", "--db", database)["checkpoints"]
    comparison = compare(read_log(truth), seen)
    print("\nThe training script's own log, compared with ckptprof:\n")
    print(table(comparison))
    say_what_next(directory, seen)
    return comparison.faithful


def say_what_next(directory: Path, seen: list[dict[str, Any]]) -> None:
    """Print commands for further reports, ready to paste."""
    of_database = ["--db", str(directory / "ckptprof.db")]
    print(f"\nThe recording is in {directory}. To show it again, and its longest checkpoint:\n")
    print(shlex.join([ckptprof(), "report", *of_database]))
    if seen:
        longest = max(seen, key=lambda one: int(one["end_ns"]) - int(one["start_ns"]))
        print(shlex.join([ckptprof(), "show", str(longest["id"]), *of_database]))
        page = directory / "report.html"
        subprocess.run(  # noqa: S603 # the command of this environment
            [ckptprof(), "report", "--html", page, *of_database], check=True, stdout=subprocess.DEVNULL
        )
        print(f"\nThe same report for a browser:\n\n{page}")


def main() -> None:
    """Parse the command line, run, and retain the recording; the checkpoints only with --work."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--framework", choices=("numpy", "torch"), default="numpy")
    parser.add_argument("--format", help="npz, npy or safetensors; with torch: torch, dcp or safetensors")
    parser.add_argument("--saves", type=int, default=4, help="saves of the first run; the second saves twice")
    parser.add_argument("--size-mb", type=float, default=128)
    parser.add_argument("--interval", type=float, default=2.0, help="seconds of training between saves")
    parser.add_argument("--work", type=Path, help="store checkpoints and database in a new directory in here")
    options = parser.parse_args()
    directory = own_directory(options.work)
    try:
        good = demo(options, directory)
    finally:
        if options.work is None:  # hundreds of megabytes, in memory where /tmp is
            shutil.rmtree(directory / "checkpoints", ignore_errors=True)
    if not good:
        print("\nckptprof missed or invented a checkpoint: please report this bug.", file=sys.stderr)
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
