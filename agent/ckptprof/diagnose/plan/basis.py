"""What a plan is worked out from: given before measured, and measured before assumed."""

from __future__ import annotations

import msgspec

from ckptprof.diagnose import tiers
from ckptprof.diagnose.plan import failures, sizes
from ckptprof.diagnose.plan.figures import Figure, Given, Measured, Origin
from ckptprof.errors import UsageError

RESTART_SECONDS = 300.0  # to notice a failure, to be scheduled, to start; measured nowhere, so say your own
_HOUR = 3600
_WORDS = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))


class Basis(msgspec.Struct, frozen=True, kw_only=True):
    """The figures that were settled on, under the names of `plan --json`; None: not known."""

    mttf: Figure = msgspec.field(name="mttf_seconds")  # between failures
    gpus: Figure | None
    gpus_per_node: int
    size: Figure | None = msgspec.field(name="size_bytes")
    cost: Figure | None = msgspec.field(name="cost_seconds")  # how long a save holds training
    duration: Figure | None = msgspec.field(name="duration_seconds")  # until a save is written: its cost or longer
    restart: Figure = msgspec.field(name="restart_seconds")  # from a failure until a restore begins
    restore: Figure | None = msgspec.field(name="restore_seconds")
    interval: Figure | None = msgspec.field(name="interval_today_seconds")  # as it is today
    step: Figure | None = msgspec.field(name="step_seconds")  # of training

    @property
    def background_seconds(self) -> float:
        """How long a save is still being written after training went on: until then the one before it counts."""
        if self.cost is None or self.duration is None:
            return 0.0
        return max(0.0, self.duration.value - self.cost.value)

    @property
    def recovery_seconds(self) -> float:
        """From a failure until training goes on, with the work that an unfinished async save did not keep."""
        restore = 0.0 if self.restore is None else self.restore.value
        return self.restart.value + restore + self.background_seconds


def settle(given: Given, measured: Measured | None) -> Basis:
    """Return the figures to plan with; raises UsageError if nothing says how often a failure comes."""
    gpus = _gpus(given, measured)
    size = _size(given, measured)
    cost, duration = _cost(given, measured, size)
    return Basis(
        mttf=_mttf(given, gpus),
        gpus=gpus,
        gpus_per_node=given.gpus_per_node or tiers.GPUS_PER_NODE,
        size=size,
        cost=cost,
        duration=duration,
        restart=_given(given.restart_seconds)
        or Figure(
            value=RESTART_SECONDS, origin=Origin.ASSUMED, text="notice, schedule, start; --restart says it better"
        ),
        restore=_restore(given, measured, size),
        interval=_given(given.interval_seconds) or (measured.interval if measured is not None else None),
        step=_given(given.step_seconds),
    )


def _given(value: float | None, text: str = "") -> Figure | None:
    return None if value is None else Figure(value=float(value), origin=Origin.GIVEN, text=text)


def _gpus(given: Given, measured: Measured | None) -> Figure | None:
    if given.gpus is not None or measured is None or measured.ranks is None:
        return _given(given.gpus)
    return Figure(value=float(measured.ranks), origin=Origin.ASSUMED, text="one for each rank that was seen")


def _mttf(given: Given, gpus: Figure | None) -> Figure:
    if given.mttf_seconds is not None:
        return Figure(value=given.mttf_seconds, origin=Origin.GIVEN)
    if given.failures is not None and given.failures_seconds is not None:
        value = failures.observed(given.failures, given.failures_seconds)
        return Figure(
            value=value, origin=Origin.GIVEN, text=f"{given.failures:,} in {given.failures_seconds / _HOUR:,.4g} h"
        )
    if gpus is None:
        raise UsageError(
            "how often a failure comes is not known", hint="give --mttf 3h, --failures 12/30d, or the number of --gpus"
        )
    each = given.mttf_per_gpu_seconds
    if each is not None:
        value = failures.of_cluster(each, int(gpus.value))
        return Figure(value=value, origin=Origin.DERIVED, text=f"{each / _HOUR:,.4g} h per GPU, as given")
    each = failures.MTTF_PER_GPU_SECONDS
    text = f"{each / _HOUR:,.0f} h per GPU, as Micron and Lightbits report of 24,000"
    return Figure(value=failures.of_cluster(each, int(gpus.value)), origin=Origin.ASSUMED, text=text)


def _size(given: Given, measured: Measured | None) -> Figure | None:
    if given.size_bytes is not None:
        return _given(given.size_bytes)
    if given.parameters is not None:
        each = given.bytes_per_parameter
        origin = "each, as given" if each is not None else "each: 2 of weights, 12 of optimizer, assumed"
        each = sizes.BYTES_PER_PARAMETER if each is None else each
        return Figure(
            value=sizes.from_parameters(given.parameters, each),
            origin=Origin.DERIVED,
            text=f"{_in_words(given.parameters)} parameters of {each:g} bytes {origin}",
        )
    return None if measured is None else measured.size


def _in_words(number: float) -> str:
    for factor, word in _WORDS:
        if number >= factor:
            return f"{number / factor:,.4g} {word}"
    return f"{number:,.0f}"


def _cost(given: Given, measured: Measured | None, size: Figure | None) -> tuple[Figure | None, Figure | None]:
    """Return what a save costs training, and how long it takes."""
    duration = _given(given.duration_seconds)
    if given.cost_seconds is not None:
        cost = Figure(value=given.cost_seconds, origin=Origin.GIVEN)
        return cost, duration or _like(cost)
    if given.write_bytes_per_second is not None and size is not None:
        spent = size.value / given.write_bytes_per_second
        cost = Figure(value=spent, origin=Origin.DERIVED, text="a sync save at the speed given with --write")
        return cost, duration or _like(cost)
    if measured is None:
        return None, duration
    duration = duration or measured.duration
    shortest = 0.0 if duration is None else duration.value
    if measured.cost is not None and measured.cost.value > shortest:
        duration = msgspec.structs.replace(measured.cost, text="as long as it blocks training")
    return measured.cost, duration


def _like(cost: Figure) -> Figure:
    return Figure(value=cost.value, origin=Origin.ASSUMED, text="a sync save, written when training goes on")


def _restore(given: Given, measured: Measured | None, size: Figure | None) -> Figure | None:
    if given.read_bytes_per_second is not None and size is not None:
        spent = size.value / given.read_bytes_per_second
        return Figure(value=spent, origin=Origin.DERIVED, text="at the speed given with --read")
    return None if measured is None else measured.restore
