"""Every kept input, and some hundred damaged ones that are the same each time, end in an answer or one clear line."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
CORPUS = HERE / "corpus"
# How many inputs are made of each: one to two seconds of CPU for each target, its imports among them
RUNS = {
    "arguments": 50, "bpf-object": 2000, "clients": 200, "config": 3000, "database": 60, "job": 100,
    "pipe": 3000, "recording": 80, "request": 1000, "ring": 1500, "sockets": 1500, "tree": 200,
}  # fmt: skip
MOST_BYTES = 300_000


def fuzz(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run fuzz.py."""
    command = [sys.executable, HERE / "fuzz.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("target", sorted(RUNS))
def test_damaged_input_is_borne(target: str, tmp_path: Path) -> None:
    """No other error than the documented one, no hang, no gigabyte, nothing written or started elsewhere."""
    done = fuzz(target, f"--runs={RUNS[target]}", f"--found={tmp_path}")

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{RUNS[target]} made" in done.stdout


def test_each_target_has_a_corpus_and_all_of_them_are_small() -> None:
    """The table, the folders and the runs of this file name the same targets."""
    sys.path.insert(0, str(HERE))
    try:
        targets = importlib.import_module("targets").TARGETS
    finally:
        sys.path.remove(str(HERE))

    assert set(targets) == set(RUNS) == {path.name for path in CORPUS.iterdir() if path.is_dir()}
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) < MOST_BYTES


LAWLESS = """
import os, sys
sys.path.insert(0, {here!r})
import fuzz, targets
def make(folder):
    def feed(data):
        {deed}
    return feed
targets.TARGETS["config"] = targets.Target(make, (ValueError,))
fuzz.EACH_SECONDS = {seconds}
sys.exit(fuzz.main())
"""


@pytest.mark.parametrize(
    ("deed", "told"),
    [
        ("raise KeyError('x')", "KeyError: 'x'"),
        ("raise ValueError('two\\nlines')", "no clear line"),
        ("open({elsewhere!r}, 'w')", "not in a test by damaged input"),
        ("os.system('true')", "not in a test by damaged input"),
        ("bytearray(3 << 30)", "MemoryError"),
        ("os.abort()", "exit -6"),
        ("while True: pass", "Timeout (0:00:02)!"),
    ],
)
def test_what_breaks_the_law_is_found(tmp_path: Path, deed: str, told: str) -> None:
    """Another error, no clear line, a file elsewhere, a program, gigabytes, a crash, a hang; the input is kept."""
    program = tmp_path / "lawless.py"
    elsewhere = tmp_path / "written"
    deed = deed.format(elsewhere=str(elsewhere))
    program.write_text(LAWLESS.format(here=str(HERE), deed=deed, seconds=2 if "Timeout" in told else 10**6))
    command = [sys.executable, program, "config", "--runs=1", f"--found={tmp_path / 'found'}"]

    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert done.returncode == 1
    assert told in done.stdout
    (found,) = (tmp_path / "found").iterdir()
    assert found.read_bytes() in {path.read_bytes() for path in (CORPUS / "config").iterdir()}
    assert f"Replay it: {sys.executable} {program} config {found}" in done.stdout
    assert not elsewhere.exists()


def test_a_file_is_replayed(tmp_path: Path) -> None:
    """What is borne is told so; the error of what is not is shown."""
    program = tmp_path / "lawless.py"
    program.write_text(LAWLESS.format(here=str(HERE), deed="data == b'good' or 1 / 0", seconds=10**6))
    for name in ("good", "bad"):
        (tmp_path / name).write_text(name)
    good, bad = (
        subprocess.run(
            [sys.executable, program, "config", tmp_path / name], capture_output=True, text=True, check=False
        )
        for name in ("good", "bad")
    )

    assert (good.returncode, bad.returncode) == (0, 1)
    assert good.stdout.endswith("good: borne\n")
    assert "ZeroDivisionError" in bad.stderr
