"""The settings of the agent with their sources, as text and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ckptprof.report.clean import clean

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Setting:
    """One setting; `source` is default, file, environment or option."""

    name: str
    value: str | float | bool | None
    source: str


@dataclass(frozen=True)
class Settings:
    """All of them, and the file that was read if it was there."""

    file: str
    found: bool
    settings: tuple[Setting, ...]
    service_db: str | None = None  # where the service records, if it runs here and that is another place than `db`


def document(shown: Settings) -> dict[str, Any]:
    """Return the JSON document."""
    settings = [asdict(one) for one in shown.settings]
    return {"schema_version": SCHEMA_VERSION, "file": shown.file, "found": shown.found, "settings": settings}


def render(shown: Settings) -> str:
    """Return a line for each setting, named as in the file, and one for the file."""
    rows = [(one.name, _text(one.value), one.source) for one in shown.settings]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"{name:{widths[0]}}  {value:{widths[1]}}  {source}\n" for name, value, source in rows]
    text = "".join(lines) + f"\nfile: {clean(shown.file)}{'' if shown.found else ' (not there)'}\n"
    if shown.service_db is not None:
        text += f"db is that of an agent of yours; the service records to {clean(shown.service_db)}\n"
    return text


def _text(value: str | float | bool | None) -> str:  # noqa: FBT001 - a value to show
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else clean(str(value))
