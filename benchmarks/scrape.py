"""CPU per scrape of /metrics in both of its formats against node_exporter, in turns of one run.

The measuring itself is in tests/export/scrape_cost.py. The goal is 0.35x node_exporter on a quiet machine.
"""

from __future__ import annotations

import sys

from contenders import ROOT
from figures import parser, show

sys.path.insert(0, str(ROOT))
from tests.export.scrape_cost import measure


def main() -> None:
    """Measure and print."""
    arguments = parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--scrapes", type=int, default=100)
    options = arguments.parse_args()
    costs = measure(options.rounds, options.scrapes)
    rows = [
        {"server": name, "cpu_ms_per_scrape": cost, "ratio": cost / costs["node_exporter"]}
        for name, cost in costs.items()
    ]
    show("scrape", rows, as_json=options.json)


if __name__ == "__main__":
    main()
