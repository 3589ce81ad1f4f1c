"""The text of a metrics page, of which a scrape makes anew only what has changed since the one before.

prometheus_client renders a family, and renders it again when a series of it comes or goes. Until then only its numbers
are put in, and of what has not changed at all not even they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import NamedTuple

from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

_HEAD_LINES = 2  # HELP and TYPE: no family of ours has a UNIT

Encode = Callable[[Collector], bytes]


class Part(NamedTuple):
    """Families that are read off the same things."""

    state: object  # equal as long as nothing of them changes
    collect: Callable[[], Iterable[Metric]]


class Page:
    """A page in one format."""

    def __init__(self, encode: Encode, *, end: str = "") -> None:
        """`encode` renders what a collector yields, and puts `end` after it."""
        self._encode = encode
        self._end = end
        self._texts: dict[str, _Text] = {}
        self._parts: list[tuple[object, str]] = []  # as each was the last time, and its text

    def render(self, parts: Iterable[Part]) -> bytes:
        """Return the page; the parts come in the same order each time."""
        before = zip_longest(list(parts), self._parts)
        self._parts = [
            known if known is not None and known[0] == part.state else (part.state, self._text(part.collect()))
            for part, known in before
        ]
        return ("".join(text for _, text in self._parts) + self._end).encode()

    def _text(self, families: Iterable[Metric]) -> str:
        return "".join(map(self._family, families))

    def _family(self, family: Metric) -> str:
        known = self._texts.get(family.name)
        if known is None or not known.renew(family.samples):
            self._texts.pop(family.name, None)  # if it cannot be rendered, the next scrape tries again
            text = self._encode(_Alone(family)).decode().removesuffix(self._end)
            known = self._texts[family.name] = _Text(family.samples, text)
        return known.whole


class _Text:
    """The text of a family, in which other numbers are put as long as its series are the same."""

    __slots__ = ("_head", "_lines", "_samples", "_stems", "whole")

    def __init__(self, samples: list[Sample], whole: str) -> None:
        lines = whole.split("\n")[:-1]
        self._samples = samples
        self._head, self._lines = lines[:_HEAD_LINES], lines[_HEAD_LINES:]
        self._stems = list(map(_stem, self._lines, samples))
        self.whole = whole

    def renew(self, samples: list[Sample]) -> bool:
        """Take the newest samples; return False if more than numbers is new of them."""
        before, self._samples = self._samples, samples
        if samples == before:
            return True
        if len(samples) != len(before):
            return False
        for place, (new, old) in enumerate(zip(samples, before, strict=True)):
            if new == old:
                continue
            stem = self._stems[place]
            if stem is None or _series(new) != _series(old):
                return False
            self._lines[place] = stem + _number(new)
        self.whole = "\n".join([*self._head, *self._lines, ""])
        return True


def _number(sample: Sample) -> str:
    return f" {floatToGoString(sample.value)}"  # type: ignore[no-untyped-call]


def _stem(line: str, sample: Sample) -> str | None:
    """Return a line without its number; None if that is not all that is at its end."""
    stem = line.removesuffix(_number(sample))
    return stem if stem != line else None


def _series(sample: Sample) -> tuple[object, ...]:
    """Return all of a sample but its number."""
    return (*sample[:2], *sample[3:])


class _Alone(Collector):
    """A collector of one family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return (self._family,)
