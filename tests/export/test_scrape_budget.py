"""The budget of a scrape: at most 0.12 times the CPU of node_exporter's."""

from __future__ import annotations

import pytest
from tests.export import scrape_cost


@pytest.mark.node_exporter
@pytest.mark.slow
@pytest.mark.alone
def test_a_scrape_is_cheap_beside_node_exporter() -> None:
    """Rendering and serving a node of 28 devices stays inside the budget, which prometheus_client misses."""
    costs = scrape_cost.measure(rounds=3)
    assert costs["ckptprof"] <= 0.12 * costs["node_exporter"], costs
    assert costs["prometheus_client"] > 1.5 * costs["ckptprof"], "the reason of ADR 0003 is gone"
