"""The plan's arithmetic against every figure that the field has published, from givens to answer.

Micron and Lightbits (24,000 accelerators), SNIA (5 %), arXiv 2410.18124 and changlan.org (the availability formula),
Llama 3 (419 interruptions), MLPerf Storage v2 (sizes at 14 bytes per parameter), NVIDIA (tiers).
"""

from __future__ import annotations

import math

import pytest

from ckptprof.diagnose.plan import intervals
from ckptprof.diagnose.plan.basis import BYTES_PER_PARAMETER, MTTF_PER_GPU_SECONDS, GivenFigures
from ckptprof.diagnose.plan.checkpoint_plan import plan

MINUTE, HOUR, DAY = 60, 3600, 86_400
GIB = 1 << 30


def cut(value: float, digits: int) -> float:
    """Return a figure with so many digits and the rest cut off, as the source prints it."""
    scale = 10 ** (digits - 1 - math.floor(math.log10(value)))
    return math.floor(value * scale) / scale


def test_micron_24000_accelerators() -> None:
    """124 min between failures, a save every 6.2 min, 233 a day, 1.1 PB a day and 13 GB/s for 5 TB each."""
    made = plan(GivenFigures(gpus=24_000, size_bytes=5e12))
    (rule,) = (rule for rule in made.rules if rule.advised)

    assert made.basis.mttf.value / MINUTE == 124
    assert made.advice.interval_seconds / MINUTE == pytest.approx(6.2, abs=1e-12)
    assert rule.saves_per_day == 233
    assert made.traffic is not None
    assert made.traffic.bytes_per_day == 1.165e15  # 1.165 PB, printed as 1.1
    assert cut(made.traffic.bytes_per_day / 1e15, 2) == 1.1
    assert round(made.traffic.average_bytes_per_second / 1e9) == 13
    assert round(made.traffic.average_bytes_per_second / 1e9, 1) == 13.5


def test_what_the_average_hides() -> None:
    """To hold training for 5 % of 6.2 min at most, a sync save has 18.6 s: 269 GB/s, not 13."""
    made = plan(GivenFigures(gpus=24_000, size_bytes=5e12))

    assert made.traffic is not None
    assert made.traffic.burst_seconds == pytest.approx(18.6)
    assert round(made.traffic.burst_bytes_per_second / 1e9) == 269


def test_where_20_per_mttf_is_youngs_optimum() -> None:
    """Only for a save that costs 9.3 s; the plan says so where the cost is not known."""
    assert intervals.young(9.3, 124 * MINUTE) == pytest.approx(6.2 * MINUTE)
    assert "blocks training for 9.30 s" in plan(GivenFigures(gpus=24_000, size_bytes=5e12)).notes[0]


def test_largest_clusters_fail_within_half_an_hour() -> None:
    """By the same rate, those of 100,000 accelerators: under 30 min; 24,000 are every two hours or so."""
    assert plan(GivenFigures(gpus=100_000)).basis.mttf.value < 30 * MINUTE
    assert round(plan(GivenFigures(gpus=24_000)).basis.mttf.value / HOUR) == 2
    assert MTTF_PER_GPU_SECONDS / HOUR == 49_600


def test_llama_3() -> None:
    """419 interruptions in 54 days are one in 3 h, and on 16,384 GPUs within 3 % of Micron's rate."""
    made = plan(GivenFigures(failures=419, failures_seconds=54 * DAY, gpus=16_384))

    assert round(made.basis.mttf.value / HOUR) == 3
    assert made.basis.mttf.value * 16_384 == pytest.approx(MTTF_PER_GPU_SECONDS, rel=0.03)


def test_availability_example() -> None:
    """MTTF 6,000 s, recovery 600 s, save 10 s, step 15 s: every 24 steps (changlan.org)."""
    made = plan(GivenFigures(mttf_seconds=6000, restart_seconds=600, cost_seconds=10, step_seconds=15))

    assert made.advice.rule == "availability"
    assert made.advice.interval_seconds == pytest.approx(10 + math.sqrt(2 * 6600 * 10 + 100))
    assert made.advice.steps == 24


@pytest.mark.parametrize(
    ("billions", "published_gib"), [(8, 105), (70, 912), (405, 5290), (1380, 18_000)], ids=["8B", "70B", "405B", "1T"]
)
def test_mlperf_sizes_by_the_names_of_the_models(billions: float, published_gib: float) -> None:
    """Someone who types --parameters 405B is within 1 % of the published 105, 912, 5,290 and 18,000 GiB."""
    made = plan(GivenFigures(parameters=billions * 1e9, mttf_seconds=HOUR))

    assert made.basis.size is not None
    assert made.basis.size.value == billions * 14e9
    assert made.basis.size.value / GIB == pytest.approx(published_gib, rel=0.01)


def test_the_1t_model_is_of_1_38_trillion() -> None:
    """18 TB of MLPerf's at 14 bytes."""
    assert round(17_997 * GIB / BYTES_PER_PARAMETER / 1e12, 2) == 1.38


@pytest.mark.parametrize(
    ("name", "save", "restore"), [("Light", 1000, 750), ("Medium", 500, 375), ("High", 250, 187.5)]
)
def test_a_checkpoint_on_each_tier(name: str, save: float, restore: float) -> None:
    """6 TB of 8 GPUs: 6, 12 and 24 GB/s of writes, 8, 16 and 32 of reads, as in NVIDIA's table of a node."""
    (tier,) = (tier for tier in plan(GivenFigures(gpus=8, size_bytes=6e12)).tiers if tier.name == name)

    assert (tier.save_seconds, tier.restore_seconds) == (save, restore)


def test_both_rules_of_5_percent() -> None:
    """SNIA's is of the stall, Micron's of the interval: a save of 30 s at an MTTF of 124 min cannot have both."""
    made = plan(GivenFigures(gpus=24_000, cost_seconds=30))
    rules = {rule.name: rule for rule in made.rules}

    assert rules["5 % stall"].interval_seconds == 600
    assert rules["5 % stall"].stall_share == pytest.approx(0.05)
    assert rules["20 per MTTF"].stall_share == pytest.approx(30 / 372)
    assert rules["20 per MTTF"].interval_seconds / made.basis.mttf.value == pytest.approx(0.05)


def test_what_the_field_reports_is_told_beside_a_worse_plan() -> None:
    """12 % on average and up to 43 % of training in checkpoints (Maeng et al. 2021)."""
    made = plan(GivenFigures(mttf_seconds=2 * HOUR, cost_seconds=120))

    assert made.advice.stall_share is not None
    assert 0.05 < made.advice.stall_share < 0.12
    assert "12 %" not in made.notes[0]
    worse = plan(GivenFigures(mttf_seconds=2 * HOUR, cost_seconds=400))
    assert "12 % on average and up to 43 %" in worse.notes[0]
