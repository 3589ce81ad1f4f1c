"""Label values: names from the machine are cleaned and bounded in number."""

from __future__ import annotations

MAX_LABEL_CHARS = 128
UNKNOWN = "unknown"
OTHER = "other"  # the label value of everything above a cap


def clean(value: str) -> str:
    r"""Return a name from the machine as a label value: printable, encodable and at most MAX_LABEL_CHARS long.

    Control, bidirectional and unassigned characters and surrogates become `\xNN` or `\uNNNN`: otherwise one
    surrogate in a device name would fail the whole scrape with a UnicodeEncodeError.
    """
    value = value[:MAX_LABEL_CHARS]
    if value.isprintable():
        return value
    safe = "".join(
        char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode() for char in value
    )
    return safe[:MAX_LABEL_CHARS]


class Names:
    """A bounded set of label values: names after the first `cap` become `other`."""

    __slots__ = ("_cap", "_known", "refused")

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._known: dict[str, str] = {}
        self.refused = 0

    def admit(self, name: str) -> str:
        """Return the label value to use for `name`."""
        known = self._known.get(name)
        if known is not None:
            return known
        label = clean(name)
        if len(self._known) >= self._cap or label in self._known.values():
            self.refused += 1
            return OTHER
        self._known[name] = label
        return label
