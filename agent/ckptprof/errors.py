"""Errors with a message for users; `cli.main` prints them and exits with their code."""

from __future__ import annotations

LONGEST_LINE = 2000  # characters
_HALF = LONGEST_LINE // 2 - 2


class CkptprofError(Exception):
    """An error with a one-line message; `hint` names the next step."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        """Store message and hint; messages that quote damaged files are shortened to one line."""
        line = message.replace("\n", "\\x0a")
        super().__init__(line if len(line) <= LONGEST_LINE else f"{line[:_HALF]}...{line[-_HALF:]}")
        self.hint = hint


class UsageError(CkptprofError):
    """Invalid arguments."""

    exit_code = 2


class NothingFoundError(CkptprofError):
    """A valid query without results."""

    exit_code = 3


class PermissionDeniedError(CkptprofError):
    """This user lacks the permission to read or write."""

    exit_code = 5


class StoreError(CkptprofError):
    """The database is missing, invalid, newer, full, read-only or damaged."""

    exit_code = 6


class RecordingError(CkptprofError):
    """An unreadable recording."""
