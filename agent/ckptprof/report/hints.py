"""Commands quoted in a text, completed with the database that the text is about."""

from __future__ import annotations

import re
import shlex

from ckptprof.report.clean import clean

PATH = "PATH"  # of a record that is still to be made
_COMMAND = re.compile(r"`(ckptprof) (report|list|show|plan|run|agent|doctor)\b((?:(?!--db|--help)[^`])*)`")
_dbs: tuple[str, ...] = ()


def set_databases(*dbs: str) -> None:
    """Set the databases for commands that are quoted from now on; none: the default."""
    global _dbs  # noqa: PLW0603 - one question of one program, as its units are
    _dbs = dbs


def with_databases(text: str) -> str:
    """Add `--db` to the commands in a text, but those for help, if databases are set."""
    return _COMMAND.sub(_with_db, text) if _dbs else text


def _with_db(found: re.Match[str]) -> str:
    program, name, rest = found.groups()
    own, separator, handed_on = rest.partition(" -- ")
    named = "".join(f" --db {clean(shlex.quote(db))}" for db in _dbs)
    return f"`{program} {name}{own}{named}{separator}{handed_on}`"
