"""How much a regular expression works for an input: a matcher that backtracks as CPython's does, and counts.

`worst` feeds a pattern with inputs made of itself and returns how its work grows when the input becomes twice as long:
2 is linear, 4 quadratic.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

if sys.version_info >= (3, 11):
    from re import _constants as ops
    from re import _parser as parser
else:
    import sre_constants as ops
    import sre_parse as parser

MOST_STEPS = 60_000
_SIZES = ((24, 48), (96, 192))  # the second where the first looks like more than linear
LINEAR = 2.6
_TAIL = "\x00"  # what hardly any pattern ends in
_UNBOUNDED = 40  # a repeat up to so often is a bound
_REPEATS = {ops.MAX_REPEAT, ops.MIN_REPEAT, *({ops.POSSESSIVE_REPEAT} if sys.version_info >= (3, 11) else ())}
_CATEGORIES = {
    ops.CATEGORY_DIGIT: r"\d", ops.CATEGORY_NOT_DIGIT: r"\D", ops.CATEGORY_SPACE: r"\s", ops.CATEGORY_NOT_SPACE: r"\S",
    ops.CATEGORY_WORD: r"\w", ops.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip
_CHARACTERS = "\x00 \n-./09:_az"
Go = Callable[[int], bool]


class TooMuchError(Exception):
    """The work is over MOST_STEPS."""


class Matcher:
    """Matches one pattern and counts its steps."""

    def __init__(self, pattern: str, flags: int) -> None:
        """Parse it, as `re` does."""
        self.tree = parser.parse(pattern, flags)
        self._flags = self.tree.state.flags
        self._steps = 0
        self._text = ""

    def steps(self, text: str, *, whole: bool) -> int:
        """Return how many it takes to match the whole text, or to find each match in it; raises TooMuchError."""
        self._steps, self._text = 0, text
        if whole:
            self.matches(text)
            return self._steps
        found: list[int] = []
        at = 0
        while at <= len(text):
            found.clear()
            if self._sequence(self.tree, 0, at, lambda end: found.append(end) or True) and found[0] > at:
                at = found[0]
            else:
                at += 1
        return self._steps

    def matches(self, text: str) -> bool:
        """Return whether it matches the whole text."""
        self._text = text
        return self._sequence(self.tree, 0, 0, len(text).__eq__)

    def _count(self) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise TooMuchError

    def _sequence(self, nodes: Any, index: int, at: int, go: Go) -> bool:
        if index == len(nodes):
            return go(at)
        return self._node(nodes[index], at, lambda end: self._sequence(nodes, index + 1, end, go))

    def _node(self, node: Any, at: int, go: Go) -> bool:
        self._count()
        op, argument = node
        if op in _REPEATS:
            return self._repeat(op, argument, at, go)
        if op is ops.SUBPATTERN:
            return self._sequence(argument[-1], 0, at, go)
        if op is ops.BRANCH:
            return any(self._sequence(branch, 0, at, go) for branch in argument[1])
        if op in (ops.ASSERT, ops.ASSERT_NOT):
            direction, inner = argument
            begin = at if direction > 0 else at - inner.getwidth()[0]
            found = begin >= 0 and self._sequence(inner, 0, begin, lambda end: direction > 0 or end == at)
            return found is (op is ops.ASSERT) and go(at)
        if op is ops.AT:
            return self._is_at(argument, at) and go(at)
        if op is ops.FAILURE:
            return False
        return at < len(self._text) and self._is(node, self._text[at]) and go(at + 1)

    def _repeat(self, op: Any, argument: Any, at: int, go: Go) -> bool:
        least, most, body = argument
        if (
            len(body) == 1
            and body.getwidth() == (1, 1)
            and body[0][0] in (ops.LITERAL, ops.NOT_LITERAL, ops.ANY, ops.IN)
        ):
            end = at
            while end < len(self._text) and end - at < most and self._is(body[0], self._text[end]):
                self._count()
                end += 1
            ends = range(at + least, end + 1)
            for one in ends if op is ops.MIN_REPEAT else reversed(ends):
                self._count()
                if go(one):
                    return True
            return False

        def again(done: int, here: int) -> bool:
            def more() -> bool:
                return done < most and self._sequence(
                    body, 0, here, lambda end: (end > here or done < least) and again(done + 1, end)
                )

            if done < least:
                return more()
            return go(here) or more() if op is ops.MIN_REPEAT else more() or go(here)

        return again(0, at)

    def _is_at(self, where: Any, at: int) -> bool:
        text, end = self._text, len(self._text)
        if where in (ops.AT_BEGINNING, ops.AT_BEGINNING_STRING):
            lines = where is ops.AT_BEGINNING and self._flags & re.MULTILINE
            return at == 0 or bool(lines and text[at - 1] == "\n")
        if where is ops.AT_END_STRING:
            return at == end
        if where is ops.AT_END:
            return at == end or text[at:] == "\n" or bool(self._flags & re.MULTILINE and text[at] == "\n")
        word = [0 <= one < end and re.match(r"\w", text[one]) is not None for one in (at - 1, at)]
        return (word[0] != word[1]) is (where is ops.AT_BOUNDARY)

    def _is(self, node: Any, character: str) -> bool:
        op, argument = node
        if op is ops.ANY:
            return character != "\n" or bool(self._flags & re.DOTALL)
        if op is ops.NOT_LITERAL:
            return not self._is((ops.LITERAL, argument), character)
        if op is ops.IN:
            negated = argument[0][0] is ops.NEGATE
            return any(self._is(one, character) for one in argument[negated:]) is not negated
        if op is ops.CATEGORY:
            return re.match(_CATEGORIES[argument], character) is not None
        cases = {character, character.lower(), character.upper()} if self._flags & re.IGNORECASE else {character}
        low, high = argument if op is ops.RANGE else (argument, argument)
        return any(low <= ord(one) <= high for one in cases if len(one) == 1)

    def word(self, nodes: Any) -> str:
        """Return a short text that a sequence matches, without regard to what it looks at around it."""
        return "".join(self._short(node) for node in nodes)

    def _short(self, node: Any) -> str:
        op, argument = node
        if op in _REPEATS:
            return self.word(argument[2]) * argument[0]
        if op is ops.SUBPATTERN:
            return self.word(argument[-1])
        if op is ops.BRANCH:
            return self.word(argument[1][0])
        if op in (ops.ASSERT, ops.ASSERT_NOT, ops.AT, ops.FAILURE):
            return ""
        if op is ops.LITERAL:
            return chr(argument)
        return next((one for one in _CHARACTERS[::-1] if self._is(node, one)), "a")

    def pumps(self, nodes: Any, before: str = "") -> Iterator[tuple[str, str]]:
        """Yield what leads to each repeat without a bound, and what it repeats."""
        for index, (op, argument) in enumerate(nodes):
            lead = before + self.word(nodes[:index])
            if op in _REPEATS:
                if argument[1] > _UNBOUNDED:
                    yield lead, self.word(argument[2])
                yield from self.pumps(argument[2], lead)
            elif op is ops.SUBPATTERN:
                yield from self.pumps(argument[-1], lead)
            elif op in (ops.ASSERT, ops.ASSERT_NOT):
                yield from self.pumps(argument[1], lead)
            elif op is ops.BRANCH:
                for branch in argument[1]:
                    yield from self.pumps(branch, lead)


def worst(pattern: str, flags: int = 0, *, whole: bool = False) -> tuple[float, str]:
    """Return how the work grows when the input doubles, and an input for which that is more than linear, if any."""
    matcher = Matcher(pattern, flags)
    found = list(matcher.pumps(matcher.tree))
    if not found:
        return 2.0, ""
    leads = {"", *(lead for lead, _ in found)}
    pumps = {*_CHARACTERS, *(pump for _, pump in found), *(lead + pump for lead, pump in found)} - {""}
    for lead in sorted(leads):
        for pump in sorted(pumps):
            if len(lead) + len(pump) < _SIZES[0][0]:
                growth = _growth(matcher, lead, pump, whole=whole)
                if growth > LINEAR:
                    return growth, f"{lead}({pump})*"
    return 2.0, ""


def _growth(matcher: Matcher, lead: str, pump: str, *, whole: bool) -> float:
    found = 0.0
    for sizes in _SIZES:
        try:
            small, large = (matcher.steps(lead + pump * (size // len(pump)) + _TAIL, whole=whole) for size in sizes)
        except TooMuchError:
            return 99.0
        found = large / small
        if found < LINEAR:
            break
    return found
