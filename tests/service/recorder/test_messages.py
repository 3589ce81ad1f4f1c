"""The lines that the long-running commands say."""

from __future__ import annotations

from typing import Any

import pytest

from ckptprof.model import Checkpoint, Destination, Kind, Level, Mode, Pattern, Sent, Status
from ckptprof.service.recorder import messages

_SENT = Sent(destinations=(Destination(remote="10.0.0.9", port=443, bytes=100 << 20),))


def _checkpoint(**fields: Any) -> Checkpoint:
    values: dict[str, Any] = {
        "uid": "u", "kind": Kind.SAVE, "job": "train.py-7", "framework": None, "step": 7, "ranks": 1, "start_ns": 0,
        "end_ns": 2_000_000_000, "bytes": 100 << 20, "files": 1, "path": "/c/7.pt", "writers": (), "level": Level.POLL,
        "pattern": Pattern(class_=None), "limitations": (), "evidence": (), "confidence": 1.0,
    }  # fmt: skip
    return Checkpoint(**{**values, **fields})


@pytest.mark.parametrize(
    ("fields", "begin"),
    [
        ({}, "save of step 7 by train.py-7: 105 MB in 2.00 s (52.4 MB/s), /c/7.pt"),
        (
            {"mode": Mode.SYNC, "stall_ns": 2_100_000_000, "bytes": 0},
            "sync save of step 7 by train.py-7: 0 B in 2.00 s (0 B/s), training blocked for 2.10 s, /c/7.pt",
        ),
        ({"mode": Mode.ASYNC, "status": Status.INCOMPLETE}, "incomplete async save of step 7 by"),
        ({"kind": Kind.RESTORE, "cache": "cold", "step": None}, "restore (cold) by train.py-7"),
        (
            {"path": None, "sent": _SENT},
            "save of step 7 by train.py-7: 105 MB in 2.00 s (52.4 MB/s), object store 10.0.0.9:443",
        ),
        ({"kind": Kind.COPY, "step": None}, "copy of checkpoint files by train.py-7"),
    ],
)  # fmt: skip
def test_a_checkpoint_is_told_in_a_line(fields: dict[str, Any], begin: str) -> None:
    """With what matters most of it in front."""
    assert messages.summary_line(_checkpoint(**fields)).startswith(begin)


def test_a_line_stays_a_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the names are."""
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    messages.info(messages.summary_line(_checkpoint(job="\x1b[2J\n", path="/\n\udcff")))

    assert capsys.readouterr().err.count("\n") == 1
