"""Label values: every name from the machine is cleaned and counted before it enters a series."""

from __future__ import annotations

MAX_LABEL_CHARS = 128
UNKNOWN = "unknown"
OTHER = "other"  # the label value into which everything over a cap is folded


def clean(value: str) -> str:
    r"""Return a name from the machine as a label value: printable, encodable and at most MAX_LABEL_CHARS long.

    Control, bidirectional and unassigned characters and surrogates become `\xNN` or `\uNNNN`: one surrogate in a
    device's name would otherwise end in a UnicodeEncodeError and take the whole scrape with it.
    """
    value = value[:MAX_LABEL_CHARS]
    if value.isprintable():
        return value
    safe = "".join(
        char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode() for char in value
    )
    return safe[:MAX_LABEL_CHARS]


class Names:
    """A bounded set of label values: the first `cap` names keep theirs, every further one is `other`."""

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
