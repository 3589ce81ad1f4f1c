"""What a person sees while something takes long: on a terminal only, and gone afterwards."""

from __future__ import annotations

import io
import sys

import pytest
from tests.patience import wait_until

from ckptprof.service import progress_line
from ckptprof.service.progress_line import show_while_waiting


class Terminal(io.StringIO):
    """What a person looks at."""

    def isatty(self) -> bool:
        """Return that it is one."""
        return True


def test_what_takes_long_is_told_and_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once its time has come."""
    monkeypatch.setattr(progress_line, "WAITING_SECONDS", 0.01)
    monkeypatch.setattr(sys, "stderr", shown := Terminal())

    with show_while_waiting("reading \x1b[2J"):
        wait_until(shown.getvalue)

    assert shown.getvalue() == "\r\x1b[Kreading \\x1b[2J\r\x1b[K"


def test_what_is_quick_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is anything in a pipe."""
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    with show_while_waiting("reading"):
        pass
    monkeypatch.setattr(progress_line, "WAITING_SECONDS", 0.0)
    monkeypatch.setattr(sys, "stderr", piped := io.StringIO())
    with show_while_waiting("reading"):
        pass

    assert shown.getvalue() + piped.getvalue() == ""
