"""The settings of the agent with their sources, as text and as JSON."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ckptprof.bounds import one_of
from ckptprof.report.clean import clean


class Setting(msgspec.Struct, frozen=True):
    """A setting with its value and where that comes from."""

    name: str  # as in the file
    value: str | float | bool | None
    source: Annotated[str, one_of("default", "file", "environment", "option")]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings, and whether the file of settings exists."""

    file: str  # the requested file of settings
    found: bool  # whether it is there
    settings: tuple[Setting, ...]


def render(shown: Settings, service_db: str | None = None) -> str:
    """Return a line for each setting, named as in the file, and one for the file.

    `service_db`: the database of the service, if it runs here and differs from `db`.
    """
    rows = []
    for one in shown.settings:
        value = str(one.value).lower() if isinstance(one.value, bool) else clean(str(one.value))
        rows.append((one.name, "none" if one.value is None else value, one.source))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"{name:{widths[0]}}  {value:{widths[1]}}  {source}\n" for name, value, source in rows]
    text = "".join(lines) + f"\nfile: {clean(shown.file)}{'' if shown.found else ' (not there)'}\n"
    if service_db is not None:
        text += f"db is that of an agent of yours; the service records to {clean(service_db)}\n"
    return text
