"""The page as one text: the template with its style and script, and a policy that allows only these two."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from datetime import tzinfo
from importlib.resources import files
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from ckptprof import __version__, units
from ckptprof.model import Checkpoint, Report
from ckptprof.report.html.rates import CounterSeries
from ckptprof.report.pictures import colours

if TYPE_CHECKING:
    from ckptprof.report.comparison import Comparison

_HERE = "ckptprof.report.html"
_NAMES = ("ID", "PID", "P50", "P99")


def render(report: Report, counted: Iterable[CounterSeries], others: Sequence[Checkpoint] = (), *, zone: tzinfo) -> str:
    """Return the HTML page of a report; for a single checkpoint with streams, that of `show`."""
    from ckptprof.report.html.content import page_of  # noqa: PLC0415 # each page needs its own only

    return _laid_out("page.html.j2", page_of(report, counted, zone, others))


def render_difference(comparison: Comparison, *, zone: tzinfo) -> str:
    """Return the HTML page of a comparison of two runs."""
    from ckptprof.report.html.difference import difference_of  # noqa: PLC0415 # as above

    return _laid_out("diff.html.j2", difference_of(comparison, zone))


def _laid_out(template: str, page: object) -> str:
    environment = Environment(
        loader=PackageLoader(_HERE, ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters |= {"coded": _coded, "heading": _heading, "percent": units.percent}
    style, script = (files(_HERE).joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    style += colours.rules()
    return environment.get_template(template).render(
        page=page,
        version=__version__,
        not_seen=units.NOT_OBSERVED,
        style=Markup(style),  # noqa: S704 # ours
        script=Markup(script),  # noqa: S704 # ours
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


def _coded(text: str) -> Markup:
    """Format text between backticks as code; a backtick without a partner stays."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    return Markup().join(Markup("<code>{}</code>").format(one) if i % 2 else one for i, one in enumerate(parts))


def _heading(title: str) -> str:
    return title if title in _NAMES or not title.isupper() else title.capitalize()


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
