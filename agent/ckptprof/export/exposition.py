"""Prometheus' text format 0.0.4, written from label bytes that are joined once per series.

Why not prometheus_client: docs/adr/0003-own-metrics-rendering.md. The tests hold the output against its parser and
against `promtool check metrics`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_LABEL_CHARS = 128
OTHER = "other"  # the label value into which everything over a cap is folded

WHOLE = b"%d\n"
THOUSANDTHS = b"%.3f\n"
MILLIONTHS = b"%.6f\n"

S = TypeVar("S")
Number = int | float


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


def label_bytes(pairs: Sequence[tuple[str, str]]) -> bytes:
    """Return `{name="value",...}` with every value cleaned and escaped, or nothing for no pairs."""
    if not pairs:
        return b""
    escaped = (f'{name}="{clean(value)}"' if _plain(value) else f'{name}="{_escape(value)}"' for name, value in pairs)
    return f"{{{','.join(escaped)}}}".encode()


def _plain(value: str) -> bool:
    return "\\" not in value and '"' not in value and value.isprintable()


def _escape(value: str) -> str:
    return clean(value).replace("\\", r"\\").replace('"', r"\"")


def header(name: str, kind: str, text: str) -> bytes:
    """Return the HELP and TYPE lines of a family."""
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n".encode()


class Column(Generic[S]):
    """One family that is read off a sample: how it is called, and which number of the sample it is.

    `value` returns None for what could not be seen: then there is no series, never a zero.
    """

    __slots__ = ("format", "header", "is_counter", "name", "value")

    def __init__(
        self, name: str, text: str, value: Callable[[S], Number | None], *, kind: str = "counter", form: bytes = WHOLE
    ) -> None:
        """Join the family's header once."""
        self.name = f"ckptprof_{name}"
        self.header = header(self.name, kind, text)
        self.is_counter = kind == "counter"
        self.value = value
        self.format = form

    def prefix(self, labels: bytes) -> bytes:
        """Return a line of this family up to its value."""
        return self.name.encode() + labels + b" "


def render_scalars(columns: Sequence[Column[S]], sample: S, out: list[bytes]) -> None:
    """Append families that have one series without labels."""
    for column in columns:
        value = column.value(sample)
        if value is not None:
            out += (column.header, column.prefix(b""), column.format % value)


class Labelled:
    """A family whose label values are few and known to be bounded by the caller."""

    __slots__ = ("_format", "_header", "_labels", "_name", "_prefixes", "_values")

    def __init__(self, name: str, text: str, labels: tuple[str, ...], *, kind: str, form: bytes = WHOLE) -> None:
        """Start without a series."""
        self._name = f"ckptprof_{name}"
        self._header = header(self._name, kind, text)
        self._labels = labels
        self._format = form
        self._values: dict[tuple[str, ...], Number] = {}
        self._prefixes: dict[tuple[str, ...], bytes] = {}

    def set(self, value: Number, *labels: str) -> None:
        """Set one series."""
        if labels not in self._prefixes:
            joined = label_bytes(tuple(zip(self._labels, labels, strict=True)))
            self._prefixes[labels] = self._name.encode() + joined + b" "
        self._values[labels] = value

    def add(self, amount: Number, *labels: str) -> None:
        """Add to one series."""
        self.set(self._values.get(labels, 0) + amount, *labels)

    def clear(self, *first: str) -> None:
        """Drop the series whose first labels are these."""
        for labels in [labels for labels in self._values if labels[: len(first)] == first]:
            del self._values[labels], self._prefixes[labels]

    def render(self, out: list[bytes]) -> None:
        """Append the family; nothing while it has no series."""
        if self._values:
            out.append(self._header)
            out += [self._prefixes[labels] + self._format % value for labels, value in self._values.items()]


class Histogram:
    """A histogram with one label and fixed buckets."""

    __slots__ = ("_bounds", "_header", "_label", "_name", "_series")

    def __init__(self, name: str, text: str, label: str, bounds: tuple[float, ...]) -> None:
        """Start without a series."""
        self._name = f"ckptprof_{name}"
        self._header = header(self._name, "histogram", text)
        self._label = label
        self._bounds = bounds
        self._series: dict[str, tuple[list[int], list[float]]] = {}  # label -> counts per bucket, [sum]

    def ensure(self, label: str) -> tuple[list[int], list[float]]:
        """Show a series from the start, at zero: a rate would miss the first event of one that appears with it."""
        return self._series.setdefault(label, ([0] * (len(self._bounds) + 1), [0.0]))

    def observe(self, value: float, label: str) -> None:
        """Count one event."""
        counts, total = self.ensure(label)
        counts[bisect_left(self._bounds, value)] += 1
        total[0] += value

    def render(self, out: list[bytes]) -> None:
        """Append the buckets (cumulative), the sum and the count."""
        out.append(self._header)
        for label, (counts, total) in self._series.items():
            running = 0
            for bound, count in zip((*self._bounds, float("inf")), counts, strict=True):
                running += count
                edge = "+Inf" if bound == float("inf") else f"{bound:g}"
                labels = label_bytes(((self._label, label), ("le", edge)))
                out.append(b"%s_bucket%s %d\n" % (self._name.encode(), labels, running))
            labels = label_bytes(((self._label, label),))
            out.append(b"%s_sum%s %.6f\n" % (self._name.encode(), labels, total[0]))
            out.append(b"%s_count%s %d\n" % (self._name.encode(), labels, running))


class Names:
    """A bounded set of label values: the first `cap` names keep theirs, every further one is `other`."""

    __slots__ = ("_cap", "_known", "refused")

    def __init__(self, cap: int) -> None:
        """Start empty."""
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
