"""One colour for each limit, the same on the page and in Grafana: contrast 3:1 on light and dark backgrounds."""

from __future__ import annotations

from ckptprof.report import certainty
from ckptprof.verdicts import Limit, Verdict

OF_LIMIT: dict[Limit | None, str] = {
    Limit.GATHER: "#da1f1f",
    Limit.STAGING: "#648be9",
    Limit.SERIALIZE: "#4f7b12",
    Limit.CPU: "#a8652a",
    Limit.PAGE_CACHE: "#e64ed3",
    Limit.FLUSH: "#127e6c",
    Limit.DEVICE: "#cb7b1d",
    Limit.NETWORK: "#7853e6",
    Limit.SERVER: "#1da417",
    Limit.SMALL_IO: "#d61f5c",
    Limit.METADATA: "#1f95dc",
    Limit.STRAGGLER: "#6d7511",
    Limit.SINGLE_WRITER: "#cc60e8",
    Limit.PREVIOUS_SAVE: "#128049",
    Limit.CLEAN_UP: "#e56848",
    Limit.PAGE_FAULT: "#5460e7",
    Limit.NONE: "#808080",
    Limit.UNCLEAR: "#8a7f6a",
    None: "#6f7a86",
}


def css_class(limit: Limit | None) -> str:
    """Return the CSS class of a limit."""
    return f"limit-{'unexplained' if limit is None else limit.value}"


def rules() -> str:
    """Return the CSS of all limits."""
    return "".join(
        f".{css_class(limit)}{{fill:{colour};stroke:{colour};background:{colour}}}\n"
        for limit, colour in OF_LIMIT.items()
    )


def verdict_class(verdict: Verdict | None) -> str:
    """Return the CSS class of a verdict; that of `unclear` for low confidence."""
    if verdict is None:
        return css_class(None)
    return css_class(verdict.limit if certainty.is_probable(verdict) else Limit.UNCLEAR)


def short_limit(verdict: Verdict | None) -> str | None:
    """Return the limit of a verdict as in the legend, with a question mark if it is unclear."""
    text = certainty.short_limit(verdict)
    return text and text.replace(Limit.NONE.value, certainty.NOT_SLOW)
