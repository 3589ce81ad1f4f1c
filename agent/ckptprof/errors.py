"""The errors that ckptprof raises on purpose; `cli.main` prints them, in one place, and exits with their code."""

from __future__ import annotations


class CkptprofError(Exception):
    """Anything that a person should read as one clear line; `hint` says what to do next."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        """Keep the line and the hint apart."""
        super().__init__(message)
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
