"""What a plan is worked out from: given before measured, and measured before assumed."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ckptprof import figures
from ckptprof.diagnose.plan.figures import Figure, Given, Origin
from ckptprof.errors import UsageError
from ckptprof.model import Checkpoint, Kind, Mode
from ckptprof.units import plural

RESTART_SECONDS = 300.0  # to notice a failure, to be scheduled, to start; measured nowhere, so say your own
# Micron and Lightbits: 24,000 accelerators fail every 124 min, so each of them every 49,600 h. Llama 3 (419
# interruptions of 16,384 GPUs in 54 days) comes to 50,676 h: two sources within 3 %. Failures are taken for independent
# and as likely at any time (exponential), so that their rates add up.
MTTF_PER_GPU_SECONDS = 24_000 * 124 * 60.0
# fp16 weights (2) and in fp32 their master copy and Adam's two moments (3 x 4): MLPerf Storage v2
BYTES_PER_PARAMETER = 14
_HOUR = 3600
_WORDS = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"), (1, ""))


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What the recorded checkpoints of one job tell; None: they do not."""

    job: str | None = None
    saves: int = 0  # complete ones
    costs: int = 0  # of which it is known for how long they blocked training
    other_jobs: int = 0  # whose checkpoints were left out
    beside_training: bool = False  # whether one of them is not known to be sync
    ranks: int | None = None
    size: Figure | None = None
    cost: Figure | None = None
    duration: Figure | None = None
    rate: Figure | None = None
    interval: Figure | None = None
    restore: Figure | None = None


def measure(checkpoints: Sequence[Checkpoint]) -> Measured | None:
    """Return what the job of the newest complete save shows, None if there is no such save."""
    saves = [c for c in figures.complete(checkpoints) if c.kind is Kind.SAVE and c.bytes > 0]
    if not saves:
        return None
    job = max(saves, key=lambda save: save.start_ns).job
    own = [save for save in saves if save.job == job]
    begun = [c for c in checkpoints if c.kind is Kind.SAVE and c.job == job]
    restores = [c for c in figures.complete(checkpoints) if c.kind is Kind.RESTORE and c.job == job]
    cost, costs = _blocked(own)
    many = plural(len(own), "save")
    return Measured(
        job=job,
        saves=len(own),
        costs=costs,
        other_jobs=len({c.job for c in checkpoints if c.kind is not Kind.COPY} - {job}),
        beside_training=any(save.mode is not Mode.SYNC for save in own),
        ranks=max((save.ranks for save in own if save.ranks), default=None),
        size=_median(figures.of_all(own, figures.size_bytes), f"size of {many}"),
        cost=cost,
        duration=_median(figures.of_all(own, figures.duration_seconds), f"duration of {many}"),
        rate=_median(figures.of_all(own, figures.rate_bytes_per_second), f"rate of {many}"),
        interval=_median(figures.intervals_seconds(begun), f"between {plural(len(begun), 'save')}"),
        restore=_median(
            figures.of_all(restores, figures.duration_seconds), f"duration of {plural(len(restores), 'restore')}"
        ),
    )


def _blocked(saves: Sequence[Checkpoint]) -> tuple[Figure | None, int]:
    """Return the median stall; where none was seen, how long sync saves took, which block training; and of how many."""
    stalls = figures.of_all(saves, figures.stall_seconds)
    if stalls:
        of = plural(len(saves), "save")
        of = of if len(stalls) == len(saves) else f"{len(stalls):,} of {of}"
        return _median(stalls, f"stall of {of}", least=0.0), len(stalls)
    blocking = figures.of_all([save for save in saves if save.mode is Mode.SYNC], figures.duration_seconds)
    figure = _median(blocking, f"duration of {plural(len(blocking), 'sync save')}")
    if figure is not None:
        figure = msgspec.structs.replace(figure, text=f"no stall was seen: {figure.text}")
    return figure, len(blocking)


def _median(values: Sequence[float], what: str, least: float | None = None) -> Figure | None:
    """Return the median with what it is of; None without values, or if it is nothing, unless that is the `least`."""
    value = figures.median(values) if values else 0.0
    if not value and least is None:
        return None
    text = f"median {what}" if len(values) > 1 else what  # one value alone is no median
    return Figure(value=value, origin=Origin.MEASURED, text=text)


class Basis(msgspec.Struct, frozen=True, kw_only=True):
    """The figures that were settled on, under the names of `plan --json`; None: not known."""

    mttf: Figure = msgspec.field(name="mttf_seconds")  # between failures
    gpus: Figure | None
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


def settle(given: Given, measured: Measured) -> Basis:
    """Return the figures to plan with; raises UsageError if nothing says how often a failure comes."""
    gpus = _given(given.gpus)
    if gpus is None and measured.ranks is not None:
        gpus = Figure(value=float(measured.ranks), origin=Origin.ASSUMED, text="one for each rank that was seen")
    size = _given(given.size_bytes) or (measured.size if given.parameters is None else _of_parameters(given.parameters))
    restart = Figure(
        value=RESTART_SECONDS, origin=Origin.ASSUMED, text="notice, schedule, start; --restart says it better"
    )
    cost, duration = _cost(given, measured, size)
    return Basis(
        mttf=_mttf(given, gpus),
        gpus=gpus,
        size=size,
        cost=cost,
        duration=duration,
        restart=_given(given.restart_seconds) or restart,
        restore=_at(given.read_bytes_per_second, size, "at the speed given with --read") or measured.restore,
        interval=_given(given.interval_seconds) or measured.interval,
        step=_given(given.step_seconds),
    )


def _given(value: float | None) -> Figure | None:
    return None if value is None else Figure(value=float(value), origin=Origin.GIVEN)


def _of_parameters(number: float) -> Figure:
    factor, word = next(pair for pair in _WORDS if number >= pair[0])
    told = f"{number / factor:,.4g} {word}".strip()
    text = f"{told} parameters of {BYTES_PER_PARAMETER} bytes each: 2 of weights, 12 of optimizer, assumed"
    return Figure(value=number * BYTES_PER_PARAMETER, origin=Origin.DERIVED, text=text)


def _mttf(given: Given, gpus: Figure | None) -> Figure:
    if given.mttf_seconds is not None:
        return Figure(value=given.mttf_seconds, origin=Origin.GIVEN)
    if given.failures is not None and given.failures_seconds is not None:
        text = f"{given.failures:,} in {given.failures_seconds / _HOUR:,.4g} h"
        return Figure(value=given.failures_seconds / given.failures, origin=Origin.GIVEN, text=text)
    if gpus is None:
        raise UsageError(
            "how often a failure comes is not known", hint="give --mttf 3h, --failures 12/30d, or the number of --gpus"
        )
    each, origin = given.mttf_per_gpu_seconds, Origin.DERIVED
    text = "as given"
    if each is None:
        each, origin, text = MTTF_PER_GPU_SECONDS, Origin.ASSUMED, "as Micron and Lightbits report of 24,000"
    return Figure(value=each / gpus.value, origin=origin, text=f"{each / _HOUR:,.6g} h per GPU, {text}")


def _at(rate: float | None, size: Figure | None, text: str) -> Figure | None:
    if rate is None or size is None:
        return None
    return Figure(value=size.value / rate, origin=Origin.DERIVED, text=text)


def _cost(given: Given, measured: Measured, size: Figure | None) -> tuple[Figure | None, Figure | None]:
    """Return what a save costs training, and how long it takes."""
    duration = _given(given.duration_seconds)
    written = _at(given.write_bytes_per_second, size, "a sync save at the speed given with --write")
    cost = _given(given.cost_seconds) or written
    if cost is not None:
        text = "a sync save, written when training goes on"
        return cost, duration or Figure(value=cost.value, origin=Origin.ASSUMED, text=text)
    duration = duration or measured.duration
    if measured.cost is not None and measured.cost.value > (0.0 if duration is None else duration.value):
        duration = msgspec.structs.replace(measured.cost, text="as long as it blocks training")
    return measured.cost, duration
