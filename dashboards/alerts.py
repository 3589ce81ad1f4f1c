"""Prints the alert rules with the address of your runbooks: `python dashboards/alerts.py https://wiki.example.org/runbooks`.

It is the page that an Alertmanager's reader opens: wherever you serve docs/runbooks.md, with an anchor for each alert.
"""

from __future__ import annotations

import sys
from pathlib import Path

RULES = Path(__file__).resolve().parent / "rules" / "ckptprof.rules.yml"
HERE = "docs/runbooks.md"  # what the committed rules name: a path in this repository


def rules(address: str) -> str:
    """Return the rules, each with its section of the page at this address; raises ValueError if that is none."""
    if not address.startswith(("http://", "https://")) or any(c.isspace() or c in "'\"#" for c in address):
        raise ValueError(f"{address!r} is no address of a page: https://wiki.example.org/runbooks")
    text = RULES.read_text(encoding="utf-8").split("groups:\n", 1)[1]
    return "groups:\n" + text.replace(f"runbook_url: {HERE}#", f"runbook_url: {address}#")


def main() -> int:
    """Print them for the address on the command line."""
    try:
        (address,) = sys.argv[1:]
        sys.stdout.write(rules(address))
    except ValueError as error:
        sys.stderr.write(f"usage: python dashboards/alerts.py ADDRESS > ckptprof.rules.yml ({error})\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
