"""The page as one text: the template, with its style and script in it, and a policy that allows these two alone."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from datetime import tzinfo

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ckptprof import __version__, units
from ckptprof.model import Report
from ckptprof.report.html import colours
from ckptprof.report.html.content import page_of
from ckptprof.report.html.rates import Counted

_HERE = "ckptprof.report.html"


def render(report: Report, counted: Iterable[Counted], *, zone: tzinfo) -> str:
    """Return the HTML page of a report; of a single checkpoint, with its streams, that of `show`."""
    loader = PackageLoader(_HERE, "")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    style = _source(environment, "page.css") + colours.rules()
    script = _source(environment, "page.js")
    return environment.get_template("page.html.j2").render(
        page=page_of(report, counted, zone),
        version=__version__,
        not_seen=units.NOT_SEEN,
        style=Markup(style),  # noqa: S704 # ours
        script=Markup(script),  # noqa: S704 # ours
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


def _source(environment: Environment, name: str) -> str:
    loader = environment.loader
    assert loader is not None  # noqa: S101 # given above
    return loader.get_source(environment, name)[0]


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
