"""The live view: the current state or one checkpoint, controlled by keys and redrawn periodically."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from ckptprof import figures
from ckptprof.cli import output
from ckptprof.cli.shared.screen import Screen
from ckptprof.model import Point
from ckptprof.report import show
from ckptprof.report.live.frame import ScreenOptions, frame, total_rate
from ckptprof.report.live.state import State

if TYPE_CHECKING:
    from ckptprof.service.live.following import LiveReader

LONGEST = "sorted by duration: s sorts by time"
FROZEN = "frozen: f resumes"
_RECENT_SAMPLES = 600  # samples per device in the chart


def screen_options(width: int, height: int, *, colour: bool) -> ScreenOptions:
    """Return the screen options for this terminal."""
    return ScreenOptions(width, height, output.LocalZone(), colour=colour, unicode=output.is_unicode())


class LiveView:
    """Draws states of a source until `q` or a signal."""

    def __init__(self, screen: Screen, source: LiveReader, interval: float, *, colour: bool) -> None:
        """`interval`: seconds between samples."""
        self._screen = screen
        self._source = source
        self._interval = interval
        self._colour = colour
        self._chosen: str | None = None  # the uid; None: the newest
        self._page: list[str] | None = None  # of the checkpoint that is shown
        self._top = 0  # line of it
        self._recent: dict[str, deque[Point]] = {}  # bytes of each device, the newest last
        self._sampled_ns: dict[str, int] = {}  # time of the last sample of each device
        self._is_by_duration = False
        self._is_frozen = False
        self._has_ended = False

    def run(self) -> None:
        """Poll, draw and handle keys until the end; raises StoreError."""
        polled = self._poll()
        due = time.monotonic() + self._interval
        while not self._has_ended and self._screen.ended_by is None:
            last, notes = polled.last, polled.notes
            if self._is_by_duration:
                last, notes = tuple(sorted(last, key=figures.duration_ns, reverse=True)), (*notes, LONGEST)
            if self._is_frozen:
                notes = (*notes, FROZEN)
            state = msgspec.structs.replace(polled, last=last, notes=notes)
            self._draw(state)
            for key in self._screen.wait(max(0.0, due - time.monotonic())):
                self._press(key, state)
            if time.monotonic() >= due:
                polled = polled if self._is_frozen else self._poll()
                due = time.monotonic() + self._interval

    def _poll(self) -> State:
        state = self._source.state(time.time_ns())
        recent = {one.name: self._recent.get(one.name) or deque[Point](maxlen=_RECENT_SAMPLES) for one in state.devices}
        for one in state.devices:
            speed, before_ns = total_rate(one), self._sampled_ns.get(one.name, one.at_ns)
            if speed is not None and before_ns < one.at_ns:
                recent[one.name].append(Point(before_ns, one.at_ns, round(speed * (one.at_ns - before_ns) / 1e9)))
        self._recent, self._sampled_ns = recent, {one.name: one.at_ns for one in state.devices}
        return state

    def _draw(self, state: State) -> None:
        width, height = self._screen.size
        if self._page is not None:
            self._top = max(0, min(self._top, len(self._page) - height))
            self._screen.draw(self._page[self._top : self._top + height])
            return
        uids = [one.uid for one in state.last]
        chosen = self._chosen if self._chosen in uids else next(iter(uids), None)
        screen = replace(screen_options(width, height, colour=self._colour), chosen=chosen, recent=self._recent)
        self._screen.draw(frame(state, screen)[:height])

    def _press(self, key: str, state: State) -> None:
        if key == "quit":
            self._has_ended = True
            return
        if self._page is not None:
            self._scroll(key)
            return
        uids = [one.uid for one in state.last]
        place = uids.index(self._chosen) if self._chosen in uids else 0
        step = {"up": -1, "down": 1, "page up": -10, "page down": 10}.get(key)
        if key == "sort":
            self._is_by_duration = not self._is_by_duration
        elif key == "freeze":
            self._is_frozen = not self._is_frozen
        elif uids and step is not None:
            self._chosen = uids[max(0, min(len(uids) - 1, place + step))]
        elif uids and key == "enter" and (found := self._source.checkpoint(state.last[place])) is not None:
            width, zone = self._screen.size[0], output.LocalZone()
            text = show.render(found, width=width, colour=self._colour, zone=zone, blocks=output.blocks())
            self._page, self._top = text.splitlines(), 0

    def _scroll(self, key: str) -> None:
        height = self._screen.size[1]
        step = {"up": -1, "down": 1, "page up": 1 - height, "page down": height - 1}.get(key)
        if step is None:
            self._page = None
        else:
            self._top += step
