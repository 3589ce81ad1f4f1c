"""Print the version."""

from __future__ import annotations

import platform
import sys
from typing import Annotated

import typer

from ckptprof import __version__
from ckptprof.cli import options
from ckptprof.errors import UsageError

EXAMPLES = """
ckptprof version
# With the versions of Python and the kernel
ckptprof version --json
# The JSON Schema of the report document
ckptprof version --schema report
"""


def command(
    *,
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="DOCUMENT", help="Print the JSON Schema of a command's --json: report, plan, fleet-cost ..."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Print the version."""
    if not json and schema is None:
        sys.stdout.write(f"ckptprof {__version__}\n")
        return
    import json as codec  # noqa: PLC0415 # not needed for plain text

    if schema is not None:
        from ckptprof.cli.shared import schemas  # noqa: PLC0415 # imports all that has a document

        if schema not in schemas.DOCUMENTS:
            raise UsageError(f"no document {schema!r}", hint=f"one of {', '.join(schemas.DOCUMENTS)}")
        sys.stdout.write(codec.dumps(schemas.schema(schema), indent=1) + "\n")
        return
    document = {
        "schema_version": 1,
        "version": __version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
    }
    sys.stdout.write(codec.dumps(document, indent=2) + "\n")
