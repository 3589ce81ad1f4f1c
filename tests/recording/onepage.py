"""Whether the figures of a report agree with each other: one quantity has one value on a page, and a sum its parts."""

from __future__ import annotations

import re
from collections.abc import Iterator

WIDTH = 300  # at which no line of a report is wrapped
_SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
BYTES = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
_LENGTH = r"<?[\d.,]+ (?:ms|s|min|h|d)(?: \d\d (?:s|min|h))?"
_NEAR = 0.02  # three digits of each of two figures, and what is cut off a minute


def contradictions(text: str) -> list[str]:
    """Return what a reader could not reconcile, as sentences; `text` is a report of `WIDTH` cells."""
    return [*_shares(text), *_bar(text), *_answer(text), *_rows(text)]


def length(text: str) -> float:
    """Return the seconds of `1 min 30 s`, `86 ms` and the like."""
    words = text.replace("<", "").replace(",", "").replace("!", "").split()
    return sum(float(number) * _SECONDS[unit] for number, unit in zip(words[::2], words[1::2], strict=True))


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= _NEAR * max(one, other) + 0.01


def _blocked(text: str) -> list[tuple[str, str, str]]:
    found = re.findall(rf"(?m)^  Blocked +({_LENGTH}), (<?[\d.]+) % of a run of ({_LENGTH})", text)
    return [(held, run, share) for held, share, run in found]


def _shares(text: str) -> Iterator[str]:
    for held, run, share in _blocked(text):
        if not share.startswith("<") and not _near(length(held) / length(run), float(share) / 100):
            yield f"{held} of {run} is not {share} %"


def _bar(text: str) -> Iterator[str]:
    found = re.search(rf"(?m)^Run .*\n +({_LENGTH})(?: of [^:\n]+)?: (.*)$", text)
    if found is None:
        return
    run, parts = found[1], re.findall(rf"(\S) ([a-z ]+?) ({_LENGTH})", found[2])
    if not _near(sum(length(one) for *_, one in parts), length(run)):
        yield f"the parts of the bar are not {run}: {parts}"
    held = [one for _, name, one in parts if name == "blocked"]
    costs = [(one, whole) for one, whole, _ in _blocked(text)]
    if held and costs and (held[0], run) not in costs:
        yield f"the bar has {held[0]} of {run}, the costs {costs}"


def _answer(text: str) -> Iterator[str]:
    found = re.search(rf"(?m)^Answer .*: ({_LENGTH}|all) of the ({_LENGTH}) that training was blocked", text)
    if found is None:
        return
    whole = length(found[2])
    own = whole if found[1] == "all" else length(found[1])
    if own > whole + 0.01:
        yield f"{found[0]}: more than all"
    gain = re.search(rf"(?m)^Gain +(?:about|not known: at most) ({_LENGTH}) in .*?, of the ({_LENGTH}) blocked", text)
    if gain is not None and (length(gain[1]) > own + 0.01 or gain[2] != found[2]):
        yield f"{gain[0]}: more than was lost to it, or of another time than {found[0]}"
    every = re.findall(rf"(?m)^  Blocked +({_LENGTH})", text)
    if len(every) < 5 and not _near(sum(map(length, every)), whole):  # of more jobs only five are told
        yield f"the answer has {found[2]}, the costs of jobs {every}"


def _rows(text: str) -> Iterator[str]:
    head, *after = text.partition("\nID  ")[2].split("\n\n", 1)[0].splitlines() or [""]
    rows = [line for line in after if re.match(r" *\d+  ", line)]
    kinds = [kind for row in rows if (kind := re.search(r"  (incomplete save|save|restore)\??(?= )", row))]
    for title, name in (("Saves", "save"), ("Restores", "restore")):
        number = re.search(rf"(?m)^{title} +([\d,]+)", text)
        told = sum(kind[1].endswith(name) for kind in kinds)
        if number is not None and rows and int(number[1].replace(",", "")) != told:
            yield f"{number[1]} {title}, and {told} lines of them"
    if "RATE" not in head:
        return
    for row in rows:
        found = re.search(rf"  ({_LENGTH})!?  .*?  ([\d.]+) ([kMGT]?B)\*?  +([\d.]+) ([kMGT]?B)/s", row)
        if found is not None and not found[1].startswith("<") and length(found[1]) > 0.03:
            took = length(found[1])
            rate = float(found[2]) * BYTES[found[3]] / took
            if abs(rate - float(found[4]) * BYTES[found[5]]) > (0.03 + 0.006 / took) * rate:
                yield f"no rate of {found[2]} {found[3]} in {found[1]}: {found[4]} {found[5]}/s"
