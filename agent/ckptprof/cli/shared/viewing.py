"""What one looks at on a screen: what goes on, or one checkpoint; told by keys, drawn again and again."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import msgspec

from ckptprof import figures
from ckptprof.cli import output
from ckptprof.cli.shared.screen import Screen
from ckptprof.model import Checkpoint
from ckptprof.report import show
from ckptprof.report.live.frame import Look, frame, moved
from ckptprof.report.live.state import State

LONGEST = "the last checkpoints by their duration: s puts the newest first"
FROZEN = "frozen: f goes on"
_LATELY = 30  # looks at a device that are drawn


class Source(Protocol):
    """Who tells what goes on."""

    def state(self, now_ns: int, /) -> State:
        """Return what goes on; raises StoreError."""

    def checkpoint(self, one: Checkpoint) -> Checkpoint | None:
        """Return all that is known of one of the last checkpoints; None if it is not kept any more."""


def look(width: int, height: int, *, colour: bool) -> Look:
    """Return how it is looked at on this terminal."""
    return Look(width, height, output.LocalZone(), colour=colour, unicode=output.is_unicode())


class Viewing:
    """Goes on until it is enough."""

    def __init__(
        self,
        screen: Screen,
        source: Source,
        interval: float,
        *,
        colour: bool,
        below: Callable[[int, int], list[str]] = lambda _width, _height: [],
    ) -> None:
        """`interval`: seconds between two looks; `below` returns what stands under it, for a screen of such a size."""
        self._screen = screen
        self._source = source
        self._interval = interval
        self._colour = colour
        self._below = below
        self._chosen: str | None = None  # the uid; None: the newest
        self._page: list[str] | None = None  # of the checkpoint that is shown
        self._top = 0  # line of it
        self._lately: dict[str, deque[float]] = {}  # bytes per second of each device, the newest last
        self._looked_ns: dict[str, int] = {}  # at each device, by the one who tells of it
        self._beneath: list[str] = []
        self._is_by_duration = False
        self._is_frozen = False
        self.is_over = False

    def run(self) -> None:
        """Look, draw and wait, again and again; raises StoreError."""
        told = self._told()
        due = time.monotonic() + self._interval
        while not self.is_over and self._screen.ended_by is None:
            last, notes = told.last, told.notes
            if self._is_by_duration:
                last, notes = tuple(sorted(last, key=figures.duration_ns, reverse=True)), (*notes, LONGEST)
            if self._is_frozen:
                notes = (*notes, FROZEN)
            state = msgspec.structs.replace(told, last=last, notes=notes)
            self._draw(state)
            for key in self._screen.wait(max(0.0, due - time.monotonic())):
                self._press(key, state)
            if time.monotonic() >= due:
                told = told if self._is_frozen else self._told()
                due = time.monotonic() + self._interval

    def _told(self) -> State:
        told = self._source.state(time.time_ns())
        lately = {one.name: self._lately.get(one.name) or deque[float](maxlen=_LATELY) for one in told.devices}
        for one in told.devices:
            speed = moved(one)
            if speed is not None and self._looked_ns.get(one.name) != one.at_ns:
                lately[one.name].append(speed)
        self._lately, self._looked_ns = lately, {one.name: one.at_ns for one in told.devices}
        return told

    def _draw(self, state: State) -> None:
        width, height = self._screen.size
        if self._page is not None:
            self._top = max(0, min(self._top, len(self._page) - height))
            self._screen.draw(self._page[self._top : self._top + height])
            return
        uids = [one.uid for one in state.last]
        chosen = self._chosen if self._chosen in uids else next(iter(uids), None)
        if not self._is_frozen:
            self._beneath = self._below(width, height)
        room = max(0, height - len(self._beneath))
        seen = replace(look(width, room, colour=self._colour), chosen=chosen, lately=self._lately)
        self._screen.draw([*frame(state, seen), *self._beneath][:height])

    def _press(self, key: str, state: State) -> None:
        if key == "quit":
            self.is_over = True
            return
        if self._page is not None:
            self._turn(key)
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

    def _turn(self, key: str) -> None:
        height = self._screen.size[1]
        step = {"up": -1, "down": 1, "page up": 1 - height, "page down": height - 1}.get(key)
        if step is None:
            self._page = None
        else:
            self._top += step
