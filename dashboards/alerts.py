"""Prints the alert rules with the address of your runbooks: `python dashboards/alerts.py https://wiki.example.org/runbooks`.

Alerts link to this page: your copy of docs/runbooks.md, with an anchor for each alert.
"""

from __future__ import annotations

import sys
from pathlib import Path

RULES = Path(__file__).resolve().parent / "rules" / "ckptprof.rules.yml"
HERE = "docs/runbooks.md"  # in the committed rules: a path in this repository


def rules(address: str) -> str:
    """Return the rules with links to the page at this address; raises ValueError for an invalid address."""
    if not address.startswith(("http://", "https://")) or any(c.isspace() or c in "'\"#" for c in address):
        raise ValueError(f"{address!r} is not the address of a page: https://wiki.example.org/runbooks")
    text = RULES.read_text(encoding="utf-8").split("groups:\n", 1)[1]
    return "groups:\n" + text.replace(f"runbook_url: {HERE}#", f"runbook_url: {address}#")


def main() -> int:
    """Print the rules for the address on the command line."""
    try:
        (address,) = sys.argv[1:]
        sys.stdout.write(rules(address))
    except ValueError as error:
        sys.stderr.write(f"usage: python dashboards/alerts.py ADDRESS > ckptprof.rules.yml ({error})\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
