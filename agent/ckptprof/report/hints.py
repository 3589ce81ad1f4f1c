"""The commands that a text names, as they are to be typed: about the record that the text is about."""

from __future__ import annotations

import re
import shlex

from ckptprof.report.clean import clean

PATH = "PATH"  # of a record that is still to be made
_ASKING = re.compile(r"`(ckptprof) (report|list|show|plan|run|agent|doctor)\b([^`]*)`")
_db: str | None = None


def about(db: str | None) -> None:
    """Let each command that is named from now on ask this database; None: the one that it asks by itself."""
    global _db  # noqa: PLW0603 - one question of one program, as its units are
    _db = db


def typed(text: str) -> str:
    """Return a text with its commands as they are to be typed: with `--db` where that was given."""
    return text if _db is None else _ASKING.sub(_with_db, text)


def _with_db(found: re.Match[str]) -> str:
    program, name, rest = found.groups()
    if "--db" in rest or _db is None:
        return found[0]
    own, separator, handed_on = rest.partition(" -- ")
    return f"`{program} {name}{own} --db {clean(shlex.quote(_db))}{separator}{handed_on}`"
