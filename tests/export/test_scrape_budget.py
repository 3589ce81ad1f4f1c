"""The budget of a scrape: at most 0.35 times the CPU of node_exporter's."""

from __future__ import annotations

import pytest
from tests.export import scrape_cost

BUDGET = 0.35


@pytest.mark.node_exporter
@pytest.mark.slow
@pytest.mark.alone
def test_a_scrape_is_cheap_beside_node_exporter() -> None:
    """A node of 28 devices stays inside the budget, in the format that Prometheus asks for and in plain text."""
    costs = scrape_cost.measure(rounds=3)
    for form in scrape_cost.ACCEPTED:
        assert costs[f"ckptprof ({form})"] <= BUDGET * costs["node_exporter"], costs
