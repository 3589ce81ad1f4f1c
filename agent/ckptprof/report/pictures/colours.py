"""The colour and the letter of each limit, the same in the terminal, on the page and in Grafana.

The colour is that of the family: storage orange, host (CPUs and memory) blue, job (its ranks and saves) violet, nothing
to blame grey. Families differ for colour-blind readers, too; contrast is 3:1 on light and dark backgrounds.
"""

from __future__ import annotations

from typing import NamedTuple

from ckptprof.report import certainty
from ckptprof.verdicts import InterimVerdict, Limit, Verdict

FAMILIES = {"storage": "orange", "host": "azure", "job": "violet", "other": "dim"}  # with the style of a terminal


class Swatch(NamedTuple):
    """The family of a limit, its letter in a bar, and its shade of the colour of the family."""

    family: str
    letter: str
    colour: str


OF_LIMIT: dict[Limit | None, Swatch] = {
    Limit.DEVICE: Swatch("storage", "D", "#b35025"),
    Limit.FLUSH: Swatch("storage", "F", "#c36031"),
    Limit.PAGE_CACHE: Swatch("storage", "P", "#b1521a"),
    Limit.NETWORK: Swatch("storage", "N", "#c16227"),
    Limit.SERVER: Swatch("storage", "V", "#af5408"),
    Limit.SMALL_IO: Swatch("storage", "O", "#bf651c"),
    Limit.METADATA: Swatch("storage", "M", "#ad5700"),
    Limit.CLEAN_UP: Swatch("storage", "L", "#bc670c"),
    Limit.CPU: Swatch("host", "C", "#098fbd"),
    Limit.SERIALIZE: Swatch("host", "Z", "#2f9acd"),
    Limit.STAGING: Swatch("host", "T", "#298cc2"),
    Limit.PAGE_FAULT: Swatch("host", "U", "#4297d2"),
    Limit.GATHER: Swatch("job", "G", "#8242e5"),
    Limit.STRAGGLER: Swatch("job", "S", "#8f4bed"),
    Limit.SINGLE_WRITER: Swatch("job", "W", "#8b3edf"),
    Limit.PREVIOUS_SAVE: Swatch("job", "B", "#9847e7"),
    Limit.NONE: Swatch("other", "-", "#6f6f6f"),
    Limit.UNCLEAR: Swatch("other", "?", "#747474"),
    None: Swatch("other", "x", "#797979"),
}


def css_class(limit: Limit | None) -> str:
    """Return the CSS class of a limit."""
    return f"limit-{'unexplained' if limit is None else limit.value}"


def lettered(limit: Limit | None, verdict: Verdict | InterimVerdict | None) -> str:
    """Return the letter and the name of a limit in a verdict."""
    return f"{OF_LIMIT[limit].letter} {certainty.account_name(limit, verdict)}"


def rules() -> str:
    """Return the CSS of all limits."""
    return "".join(
        f".{css_class(limit)}{{fill:{one.colour};stroke:{one.colour};background:{one.colour}}}\n"
        for limit, one in OF_LIMIT.items()
    )


def shown_limit(verdict: Verdict | InterimVerdict | None) -> Limit | None:
    """Return the limit that gives a checkpoint its colour: `unclear` for low confidence, None without a verdict."""
    if verdict is None:
        return None
    return verdict.limit if certainty.is_probable(verdict) else Limit.UNCLEAR


def terminal_style(limit: Limit | None) -> str:
    """Return the style of a limit in a terminal."""
    return FAMILIES[OF_LIMIT[limit].family]


def verdict_style(verdict: Verdict | InterimVerdict | None) -> str:
    """Return the style of a verdict in a terminal."""
    return terminal_style(shown_limit(verdict))


def verdict_class(verdict: Verdict | None) -> str:
    """Return the CSS class of a verdict; that of `unclear` for low confidence."""
    return css_class(shown_limit(verdict))


def short_limit(one: Verdict | None) -> str | None:
    """Return the limit of a verdict as in the legend, with the rate of a throttle, and a question mark if unclear."""
    return certainty.limit_name(one) if one and certainty.is_probable(one) else certainty.short_limit(one)
