"""The table of system calls against the kernel's own headers, and the words that are made of what a look sees."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ckptprof_collectors.processes.syscalls import CALLS, RUNNING, UNKNOWN, canonical, classify

X86 = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
GENERIC = Path("/usr/include/asm-generic/unistd.h")


def header(path: Path) -> dict[str, int]:
    """Return the numbers by name; skip where the header is not installed."""
    if not path.exists():
        pytest.skip(f"no {path}")
    found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", path.read_text())
    return {name: int(number) for name, number in found}


def test_every_number_of_x86_64_is_that_of_the_header() -> None:
    """Newer calls than the header knows are left out."""
    known = header(X86)
    checked = {name for name in CALLS if name in known}

    assert len(checked) > 90
    assert {name: CALLS[name][0] for name in checked} == {name: known[name] for name in checked}


def test_every_number_of_arm64_is_that_of_the_generic_header() -> None:
    """Calls that arm64 has not are -1 in the table."""
    known = header(GENERIC)
    known["newfstatat"] = known.get("fstatat", known.get("newfstatat", -1))
    arm = {name: number for name, (_, number, _) in CALLS.items() if number >= 0 and name in known}

    assert len(arm) > 70
    assert arm == {name: known[name] for name in arm}


def test_numbers_are_unique() -> None:
    """No call hides another."""
    assert len({number for number, _, _ in CALLS.values()}) == len(CALLS)
    arm = [number for _, number, _ in CALLS.values() if number >= 0]
    assert len(set(arm)) == len(arm)


def test_a_number_of_arm64_becomes_that_of_x86_64() -> None:
    """A recording means the same on every machine."""
    assert canonical(82, "aarch64") == CALLS["fsync"][0]
    assert canonical(RUNNING, "aarch64") == RUNNING
    assert canonical(9999, "aarch64") == UNKNOWN
    assert canonical(74, "x86_64") == 74
    assert canonical(74, "s390x") == UNKNOWN


@pytest.mark.parametrize(
    ("state", "call", "wait", "word"),
    [
        ("R", RUNNING, "", "running"),
        ("D", RUNNING, "folio_wait_bit_common", "fault"),
        ("D", RUNNING, None, "fault"),
        ("S", RUNNING, None, "other"),
        ("D", 74, "jbd2_log_wait_commit", "sync"),
        ("S", 1, "balance_dirty_pages", "data"),
        ("S", 1, "pipe_write", "lock"),
        ("S", 0, "unix_stream_read_generic", "network"),
        ("S", 202, "futex_wait_queue", "lock"),
        ("S", 73, "flock_lock_inode_wait", "file-lock"),
        ("S", 61, "do_wait", "child"),
        ("S", None, "do_wait", "child"),
        ("S", 3, "request_wait_answer", "close"),
        ("S", 232, "ep_poll", "poll"),
        ("S", UNKNOWN, "whatever", "other"),
        ("D", None, "folio_wait_bit", "data"),
        ("S", None, "futex_wait_queue", "lock"),
        ("S", None, None, "unknown"),
        ("S", None, "\x1b[31mhostile", "unknown"),
        ("T", 1, "do_signal_stop", "stopped"),
        ("t", RUNNING, "ptrace_stop", "stopped"),
        ("D", 1, "__refrigerator", "stopped"),
        ("S", RUNNING, "do_freezer_trap", "stopped"),
    ],
)
def test_what_a_thread_is_in(state: str, call: int | None, wait: str | None, word: str) -> None:
    """A word of the closed list, of whatever was seen."""
    assert classify(state, call, wait) == word


def test_a_number_alone_has_a_word() -> None:
    """What is not in the table is other, what was not seen unknown."""
    assert [classify("S", call, None) for call in (1, 74, 3, 82, RUNNING, UNKNOWN, 10_000, None)] == [
        "data", "sync", "close", "rename", "other", "other", "other", "unknown"
    ]  # fmt: skip
