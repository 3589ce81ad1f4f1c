"""Where output goes."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from ckptprof.cli import output
from ckptprof.report.pictures.chart import ASCII_BLOCKS, BLOCKS


class Terminal(io.TextIOWrapper):
    """A stream that says it is a terminal."""

    def __init__(self, encoding: str = "utf-8") -> None:
        """Write into memory."""
        super().__init__(io.BytesIO(), encoding=encoding)

    def isatty(self) -> bool:
        """Return True."""
        return True

    def written(self) -> bytes:
        """Return what arrived."""
        self.flush()
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue()


@pytest.mark.parametrize(
    ("environment", "tty", "off", "expected"),
    [
        ({}, True, False, True),
        ({}, False, False, False),
        ({}, True, True, False),
        ({"NO_COLOR": "1"}, True, False, False),
        ({"NO_COLOR": ""}, True, False, True),
        ({"CLICOLOR_FORCE": "1"}, False, False, True),
        ({"CLICOLOR_FORCE": "0"}, False, False, False),
        ({"NO_COLOR": "1", "CLICOLOR_FORCE": "1"}, True, False, False),
        ({"CLICOLOR_FORCE": "1"}, False, True, False),
        ({"TERM": "dumb"}, True, False, False),
    ],
)
def test_colour_decision(
    environment: dict[str, str],
    tty: bool,  # noqa: FBT001 # a table of cases
    off: bool,  # noqa: FBT001 # likewise
    expected: bool,  # noqa: FBT001 # likewise
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The option, no-color.org and the terminal, in this order."""
    for name in ("NO_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stream = Terminal() if tty else io.StringIO()

    assert expected is output.use_colour(stream, off=off)


@pytest.mark.parametrize(("columns", "expected"), [("80", 80), ("200", 200), ("10", 40)])
def test_width_follows_columns(columns: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Down to a width that something still fits into."""
    monkeypatch.setenv("COLUMNS", columns)

    assert expected == output.terminal_width()


def test_text_arrives_in_any_encoding() -> None:
    """Nothing that was cleaned can stop the output, on a terminal of 1968 either."""
    streams = [Terminal("utf-8"), Terminal("ascii"), Terminal("latin-1")]
    for stream in streams:
        output.write("│▇ é 漢 …\n", stream)

    assert [stream.written() for stream in streams] == [
        "│▇ é 漢 …\n".encode(),
        b"|# \\xe9 \\u6f22 ~\n",
        b"|# \xe9 \\u6f22 ~\n",
    ]


def test_blocks_follow_the_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Charts are drawn with what the terminal has."""
    monkeypatch.setattr("sys.stdout", Terminal("utf-8"))
    assert output.blocks() == BLOCKS
    monkeypatch.setattr("sys.stdout", Terminal("ascii"))
    assert output.blocks() == ASCII_BLOCKS


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Live where the clock changes."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_local_zone_has_the_offset_of_the_instant(berlin: None) -> None:
    """Winter and summer, and the hour that comes twice."""
    zone = output.LocalZone()
    times = [datetime.fromtimestamp(at, zone) for at in (1_774_000_800, 1_782_000_000, 1_792_886_400, 1_792_890_000)]

    assert [when.utcoffset() for when in times] == [timedelta(hours=hours) for hours in (1, 2, 2, 1)]
    assert times[2].hour == times[3].hour == 2
    assert zone.utcoffset(datetime(2026, 7, 1)) == timedelta(hours=2)  # noqa: DTZ001 # local is what it is about
