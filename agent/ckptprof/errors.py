"""The errors that ckptprof raises on purpose; `cli.main` prints them, in one place, and exits with their code."""

from __future__ import annotations

LONGEST_LINE = 2000  # characters
_HALF = LONGEST_LINE // 2 - 2


class CkptprofError(Exception):
    """Anything that a person should read as one clear line; `hint` says what to do next."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        """Keep the line and the hint apart; what quotes lines, or megabytes, of a damaged file is one line."""
        line = message.replace("\n", "\\x0a")
        super().__init__(line if len(line) <= LONGEST_LINE else f"{line[:_HALF]}...{line[-_HALF:]}")
        self.hint = hint


class UsageError(CkptprofError):
    """The arguments make no sense."""

    exit_code = 2


class NothingFoundError(CkptprofError):
    """The question was fine and the answer is empty."""

    exit_code = 3


class PermissionDeniedError(CkptprofError):
    """This user may not see or write what was asked for."""

    exit_code = 5


class StoreError(CkptprofError):
    """The database is not there, is none, is newer, full, read-only or damaged."""

    exit_code = 6


class RecordingError(CkptprofError):
    """A recording that cannot be read."""
