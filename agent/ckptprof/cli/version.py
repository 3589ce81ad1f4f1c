"""Print the version."""

from __future__ import annotations

import platform
import sys

from ckptprof import __version__
from ckptprof.cli import options

EXAMPLES = """
ckptprof version
# With those of Python and of the kernel
ckptprof version --json
"""


def command(*, json: options.Json = False) -> None:
    """Print the version."""
    if not json:
        sys.stdout.write(f"ckptprof {__version__}\n")
        return
    import json as codec  # noqa: PLC0415 # not needed for the plain line

    document = {
        "schema_version": 1,
        "version": __version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
    }
    sys.stdout.write(codec.dumps(document, indent=2) + "\n")
