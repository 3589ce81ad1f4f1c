"""What a framework's entry says. To add one: a new file with a `FRAMEWORK` and its name in `table.FRAMEWORKS`."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Framework:
    """How one framework names its files.

    Patterns are matched against the end of the path with `re.search`; a named group `step` or `rank` is read as that.
    A pattern of `unit` matches the folder that holds one whole checkpoint.
    """

    name: str
    files: tuple[re.Pattern[str], ...]  # a file of it, recognised beyond doubt
    unit: tuple[re.Pattern[str], ...] = ()  # the folder of one checkpoint
    commit: tuple[re.Pattern[str], ...] = ()  # the file whose appearance completes it
    temporary: tuple[re.Pattern[str], ...] = ()  # names that become others


def patterns(*expressions: str) -> tuple[re.Pattern[str], ...]:
    """Compile the expressions of an entry."""
    return tuple(re.compile(expression) for expression in expressions)
