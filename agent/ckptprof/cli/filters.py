"""Options that select checkpoints, and the formats of times."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Annotated

import typer

from ckptprof.cli import options
from ckptprof.errors import UsageError
from ckptprof.model import CheckpointQuery, Kind

_FORMS = "2h, 30m, 7d, now, today, yesterday, 10:30, 2026-03-20, 2026-03-20T10:30:00+01:00, or seconds since 1970"

Since = Annotated[
    str | None, options.option("--since", "TIME", f"Only checkpoints that ended after this time: {_FORMS}.")
]
Until = Annotated[str | None, options.option("--until", "TIME", "Only checkpoints that started before this time.")]
Job = Annotated[
    str | None,
    options.option(
        "--job", "NAME", "Only checkpoints of this job; * and ? stand for any text.", parser=options.text("--job")
    ),
]
KindOption = Annotated[
    Kind | None,
    typer.Option(
        "--kind",
        help="Only checkpoints of this kind. Default: saves and restores, no copies of checkpoint files.",
        case_sensitive=False,
        show_default=False,
    ),
]
Limit = Annotated[
    int | None,
    options.option("--limit", "N", "Only the newest N checkpoints.", parser=options.whole_number("--limit", least=1)),
]

_NS = 1_000_000_000
_AGO = re.compile(r"(?:\d+(?:\.\d+)?(?:s|m|min|h|d|w))+\Z", re.ASCII)
_AGO_PART = re.compile(r"(\d+(?:\.\d+)?)(s|min|m|h|d|w)", re.ASCII)
_UNIT_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_EPOCH = re.compile(r"(\d{9,11})(?:\.(\d{1,9}))?\Z", re.ASCII)  # 1973 to 5138: a shorter number is probably a mistake
_CLOCK = re.compile(r"\d{1,2}:\d{2}(?::\d{2})?\Z", re.ASCII)
_ISO = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2}(?::\d{2})?)(?:[.,](\d{1,9}))? ?(Z|[+-]\d{2}:?\d{2})?)?\Z",
    re.ASCII | re.IGNORECASE,
)


def query(  # one for each option
    since: str | None, until: str | None, job: str | None, kind: Kind | None, limit: int | None, *, now_ns: int
) -> CheckpointQuery:
    """Build a query from the options; raises UsageError."""
    since_ns = None if since is None else moment(since, now_ns=now_ns, option="--since")
    until_ns = None if until is None else moment(until, now_ns=now_ns, option="--until")
    if since_ns is not None and until_ns is not None and since_ns >= until_ns:
        raise UsageError(f"--since {since} is not before --until {until}")
    return CheckpointQuery(since_ns=since_ns, until_ns=until_ns, job=job, kind=kind, limit=limit)


def moment(text: str, *, now_ns: int, option: str) -> int:
    """Parse a time into epoch nanoseconds, local time unless it has an offset; raises UsageError."""
    try:
        found = _parse(text.strip(), now_ns)
    except OverflowError:
        raise UsageError(f"{option} {text!r} is out of range", hint=f"write {_FORMS}") from None
    except (ValueError, OSError):  # the 30th of February
        found = None
    if found is None:
        raise UsageError(f"{option} {text!r} is not a time", hint=f"write {_FORMS}")
    return found


def _parse(text: str, now_ns: int) -> int | None:
    word = text.lower()
    if word == "now":
        return now_ns
    if word in ("today", "yesterday"):
        day = _local(now_ns).date() - timedelta(days=int(word == "yesterday"))
        return _epoch_ns(datetime.combine(day, datetime.min.time()))
    if _AGO.match(word):
        parts = _AGO_PART.findall(word)
        return now_ns - round(sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts) * _NS)
    if epoch := _EPOCH.match(text):
        return int(epoch[1]) * _NS + _fraction_ns(epoch[2])
    if _CLOCK.match(text):
        clock = datetime.strptime(text, "%H:%M:%S" if text.count(":") == 2 else "%H:%M").time()  # noqa: DTZ007 # local
        return _epoch_ns(datetime.combine(_local(now_ns).date(), clock))
    if iso := _ISO.match(text):
        return _iso(*iso.groups())
    return None


def _iso(day: str, clock: str | None, fraction: str | None, offset: str | None) -> int:
    if clock is not None and clock.count(":") == 1:
        clock += ":00"
    text, form = f"{day} {clock or '00:00:00'}", "%Y-%m-%d %H:%M:%S"
    if offset is not None:
        text, form = f"{text} {offset.upper()}", f"{form} %z"
    return _epoch_ns(datetime.strptime(text, form)) + _fraction_ns(fraction)  # noqa: DTZ007 # local without an offset


def _fraction_ns(digits: str | None) -> int:
    return int((digits or "0").ljust(9, "0"))


def _epoch_ns(when: datetime) -> int:
    """Return epoch nanoseconds; a datetime without a zone is local. Raises OverflowError."""
    try:
        return round(when.timestamp()) * _NS
    except (ValueError, OSError) as error:  # the year 0 or 10000 elsewhere
        raise OverflowError(str(error)) from error


def _local(at_ns: int) -> datetime:
    return datetime.fromtimestamp(at_ns // _NS).astimezone()  # made aware at once
