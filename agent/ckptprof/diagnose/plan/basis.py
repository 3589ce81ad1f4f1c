"""The input of a plan: given values take precedence over measured ones, measured over assumed ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import Enum

import msgspec

from ckptprof import figures
from ckptprof.diagnose.plan import field
from ckptprof.diagnose.restarts import JobRestarts, LivesOf, find_restarts
from ckptprof.errors import UsageError
from ckptprof.model import Checkpoint, Gap, Kind, Mode
from ckptprof.units import HOUR_SECONDS, NS, plural

_CENTURIES = 1e11  # seconds: 3,000 years
RESTART_SECONDS = 300.0  # to notice a failure, to be scheduled, to start: assumed, not measured
# Failures are assumed independent and equally likely at any time (exponential), so that their rates add up
MTTF_PER_GPU_SECONDS = field.SEED.gpu_hours * HOUR_SECONDS
# fp16 weights (2) and in fp32 their master copy and Adam's two moments (3 x 4): MLPerf Storage v2
BYTES_PER_PARAMETER = 14
_LEAST_RESTARTS = 3  # for a rate
LEAST_TIMED_RESTARTS = 2  # for how long one takes: one alone may be a repair by hand
_WORDS = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"), (1, ""))


class Origin(str, Enum):
    """The source of a figure."""

    GIVEN = "given"
    MEASURED = "measured"  # from recorded checkpoints
    ASSUMED = "assumed"
    DERIVED = "worked out"  # from other figures of the plan


class SourcedFigure(msgspec.Struct, frozen=True, kw_only=True):
    """A number in the base unit of its name (seconds, bytes, bytes per second), with its source."""

    value: float
    origin: Origin
    text: str = ""  # description of the source, for users


def is_measured(figure: SourcedFigure | None) -> bool:
    """Return True for figures from recorded checkpoints, not from options."""
    return figure is not None and figure.origin is Origin.MEASURED


class GivenFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The given values; None: not given."""

    parameters: float | None = None
    size_bytes: float | None = None
    gpus: int | None = None
    mttf_seconds: float | None = None
    mttf_per_gpu_seconds: float | None = None
    failures: int | None = None  # counted in
    failures_seconds: float | None = None
    cost_seconds: float | None = None  # how long a save blocks training
    duration_seconds: float | None = None  # until a save is written
    interval_seconds: float | None = None  # as it is today
    restart_seconds: float | None = None
    step_seconds: float | None = None
    write_bytes_per_second: float | None = None
    read_bytes_per_second: float | None = None
    free_bytes: float | None = None
    capacity_bytes: float | None = None  # of the drives
    keep: int | None = None
    notice_seconds: float | None = None  # from the signal until the job is killed
    gpu_hour_price: float | None = None


# field -> (its option, lowest and highest plausible value)
_RANGES: Mapping[str, tuple[str, float, float]] = {
    "parameters": ("--parameters", 1, 1e18),
    "size_bytes": ("--size", 1, 1e21),
    "gpus": ("--gpus", 1, 1e9),
    "mttf_seconds": ("--mttf", 1e-3, _CENTURIES),
    "mttf_per_gpu_seconds": ("--mttf-per-gpu", 1e-3, 1e16),
    "failures": ("--failures", 1, 1e12),
    "failures_seconds": ("--failures", 1e-3, _CENTURIES),
    "cost_seconds": ("--cost", 1e-6, _CENTURIES),
    "duration_seconds": ("--duration", 1e-6, _CENTURIES),
    "interval_seconds": ("--interval", 1e-6, _CENTURIES),
    "restart_seconds": ("--restart", 0, _CENTURIES),
    "step_seconds": ("--step-time", 1e-6, _CENTURIES),
    "write_bytes_per_second": ("--write", 1, 1e18),
    "read_bytes_per_second": ("--read", 1, 1e18),
    "free_bytes": ("--free", 0, 1e24),
    "capacity_bytes": ("--capacity", 1, 1e24),
    "keep": ("--keep", 1, 1e9),
    "notice_seconds": ("--grace", 1e-3, _CENTURIES),
    "gpu_hour_price": ("--gpu-hour", 1e-6, 1e12),
}
# Options that exclude each other
_EXCLUSIVE = (
    ("size_bytes", "parameters"),
    ("mttf_seconds", "mttf_per_gpu_seconds"),
    ("mttf_seconds", "failures"),
    ("failures", "mttf_per_gpu_seconds"),
    ("cost_seconds", "write_bytes_per_second"),
)


def check(given: GivenFigures) -> None:
    """Raise UsageError for an impossible value, or values that contradict each other."""
    for name, (option, lowest, highest) in _RANGES.items():
        value = getattr(given, name)
        if value is None or (lowest <= value <= highest and (value > 0 or not lowest)):
            continue
        if math.isnan(value) or value <= 0:
            why = "is not a number" if math.isnan(value) else "must be more than 0"
            raise UsageError(f"{option} {why}", hint="omit it if it is not known")
        why = f"too small: the minimum is {lowest:g}"
        if value > highest:
            why = f"too large: the maximum is {highest:g}"
        hint = "check its unit: the value shown is in seconds, bytes or bytes per second"
        raise UsageError(f"{option} {value:g} is {why}", hint=hint)
    for pair in _EXCLUSIVE:
        if all(getattr(given, name) is not None for name in pair):
            both = " and ".join(_RANGES[name][0] for name in pair)
            raise UsageError(f"{both} exclude each other", hint="give one of them")
    cost, duration = given.cost_seconds, given.duration_seconds
    if cost is not None and duration is not None and duration < cost:
        raise UsageError(
            f"a save that blocks training for {_exact_seconds(cost)} cannot be complete after "
            f"{_exact_seconds(duration)}",
            hint="omit --duration for a sync save; for an async save --cost is the time in which training waits",
        )


def check_mttf(mttf: float, cost: SourcedFigure | None, duration: SourcedFigure | None) -> None:
    """Raise UsageError if a save does not end before the next failure."""
    for figure, subject in ((cost, "a save blocks training for"), (duration, "a save takes")):
        if figure is not None and figure.value >= mttf:
            raise UsageError(
                f"{subject} {_exact_seconds(figure.value)}, but failures are only {_exact_seconds(mttf)} apart: "
                "most saves would never complete",
                hint="check --mttf, --gpus, --cost and --duration; otherwise save less data, or write faster",
            )


def _exact_seconds(value: float) -> str:
    return f"{value:,.6g} s"


class MeasuredFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of the recorded checkpoints of one job; None: not known."""

    job: str | None = None
    saves: int = 0  # complete ones
    costs: int = 0  # saves with a known stall
    other_jobs: int = 0  # jobs whose checkpoints were left out
    may_be_async: bool = False  # whether one of them may not be sync
    ranks: int | None = None
    size: SourcedFigure | None = None
    cost: SourcedFigure | None = None
    duration: SourcedFigure | None = None
    rate: SourcedFigure | None = None
    interval: SourcedFigure | None = None
    restore: SourcedFigure | None = None
    mttf: SourcedFigure | None = None  # between restarts
    restarts_seconds: tuple[float, ...] = ()  # without training, of each restart, without the restore
    unsaved_seconds: tuple[float, ...] = ()  # from the save that a restart went on from until the end; none: infinite
    files: int | None = None  # of a save at most; None: none was saved to files
    has_own_paths: bool = False  # whether each save has a path of its own
    whole_seconds: tuple[float, ...] = ()  # of each save, from when training stopped for it until it was complete


def measure(
    checkpoints: Sequence[Checkpoint], lives: LivesOf = lambda *_: (), gaps: Sequence[Gap] = ()
) -> MeasuredFigures | None:
    """Return the figures of the job with the newest complete save, None if there is no such save.

    `lives` and `gaps`: see find_restarts; without lives restarts are counted, but not timed.
    """
    saves = [c for c in figures.complete(checkpoints) if c.kind is Kind.SAVE and c.bytes > 0]
    if not saves:
        return None
    job = max(saves, key=lambda save: save.start_ns).job
    restarted = next((one for one in find_restarts(checkpoints, lives, gaps) if job in one.names), None)
    names = {job} if restarted is None else {job, *restarted.names}
    own = [save for save in saves if save.job in names]
    started = [c for c in checkpoints if c.kind is Kind.SAVE and c.job in names]
    restores = [c for c in figures.complete(checkpoints) if c.kind is Kind.RESTORE and c.job in names]
    paths = [save.path for save in own if save.path is not None]
    cost, costs = _blocked(own)
    many = plural(len(own), "save")
    return MeasuredFigures(
        job=job,
        saves=len(own),
        costs=costs,
        other_jobs=len({c.job for c in checkpoints if c.kind is not Kind.COPY} - names),
        may_be_async=any(save.mode is not Mode.SYNC for save in own),
        ranks=max((save.ranks for save in own if save.ranks), default=None),
        size=_median(figures.of_all(own, lambda one: float(one.bytes)), f"size of {many}"),
        cost=cost,
        duration=_median(figures.of_all(own, figures.duration_seconds), f"duration of {many}"),
        rate=_median(figures.of_all(own, figures.rate_bytes_per_second), f"rate of {many}"),
        interval=_median(figures.intervals_seconds(started), f"between {plural(len(started), 'save')}"),
        restore=_median(
            figures.of_all(restores, figures.duration_seconds), f"duration of {plural(len(restores), 'restore')}"
        ),
        mttf=_failures(restarted),
        restarts_seconds=_restarts(restarted),
        unsaved_seconds=_unsaved(restarted),
        files=max((save.files for save in own if save.path is not None), default=None),
        has_own_paths=len(set(paths)) == len(paths) > 1,
        whole_seconds=tuple(max(figures.duration_seconds(c), figures.stall_seconds(c) or 0.0) for c in own),
    )


def _failures(job: JobRestarts | None) -> SourcedFigure | None:
    """Return the seconds between restarts; None for less than three."""
    if job is None or len(job.restarts) < _LEAST_RESTARTS:
        return None
    number, span = len(job.restarts), job.observed_seconds
    text = f"{number:,} restarts in {span / HOUR_SECONDS:,.4g} h, planned ones included"
    return SourcedFigure(value=span / number, origin=Origin.MEASURED, text=text)


def _restarts(job: JobRestarts | None) -> tuple[float, ...]:
    """Return the seconds without training of each restart, without the restore, where the end of a process is known."""
    every = () if job is None else (one for one in job.restarts if not one.in_gap)
    return tuple(one.down_seconds - (one.restoring_seconds or 0.0) for one in every if one.down_seconds is not None)


def _unsaved(job: JobRestarts | None) -> tuple[float, ...]:
    every = () if job is None else (one for one in job.restarts if not one.in_gap)
    ends = [(one.ended_ns, one.saved_ns) for one in every if one.ended_ns is not None]
    return tuple(math.inf if saved_ns is None else (ended_ns - saved_ns) / NS for ended_ns, saved_ns in ends)


def _blocked(saves: Sequence[Checkpoint]) -> tuple[SourcedFigure | None, int]:
    """Return (median stall, number of saves it is from); without stalls the duration of sync saves."""
    stalls = figures.of_all(saves, figures.stall_seconds)
    if stalls:
        of = plural(len(saves), "save")
        of = of if len(stalls) == len(saves) else f"{len(stalls):,} of {of}"
        return _median(stalls, f"stall of {of}", least=0.0), len(stalls)
    blocking = figures.of_all([save for save in saves if save.mode is Mode.SYNC], figures.duration_seconds)
    figure = _median(blocking, f"duration of {plural(len(blocking), 'sync save')}")
    if figure is not None:
        figure = msgspec.structs.replace(figure, text=f"no stall observed: {figure.text}")
    return figure, len(blocking)


def _median(values: Sequence[float], subject: str, least: float | None = None) -> SourcedFigure | None:
    """Return the median with its description; None without values, or for 0 unless `least` is given."""
    value = figures.median(values) if values else 0.0
    if not value and least is None:
        return None
    text = f"median {subject}" if len(values) > 1 else subject  # one value alone is no median
    return SourcedFigure(value=value, origin=Origin.MEASURED, text=text)


class Basis(msgspec.Struct, frozen=True, kw_only=True):
    """The figures that a plan uses, under the names of `plan --json`; None: not known."""

    mttf: SourcedFigure = msgspec.field(name="mttf_seconds")  # between failures
    gpus: SourcedFigure | None
    size: SourcedFigure | None = msgspec.field(name="size_bytes")
    cost: SourcedFigure | None = msgspec.field(name="cost_seconds")  # how long a save blocks training
    duration: SourcedFigure | None = msgspec.field(
        name="duration_seconds"
    )  # until a save is written: its cost or longer
    restart: SourcedFigure = msgspec.field(name="restart_seconds")  # from a failure to the first step, less the restore
    restore: SourcedFigure | None = msgspec.field(name="restore_seconds")
    interval: SourcedFigure | None = msgspec.field(name="interval_today_seconds")  # as it is today
    step: SourcedFigure | None = msgspec.field(name="step_seconds")  # of training

    @property
    def background_seconds(self) -> float:
        """How long a save is still being written after training resumes; until then the previous save counts."""
        if self.cost is None or self.duration is None:
            return 0.0
        return max(0.0, self.duration.value - self.cost.value)

    @property
    def recovery_seconds(self) -> float:
        """From a failure until training resumes, including the work that an unfinished async save loses."""
        restore = 0.0 if self.restore is None else self.restore.value
        return self.restart.value + restore + self.background_seconds


def choose_basis(given: GivenFigures, measured: MeasuredFigures) -> Basis:
    """Choose the figures to plan with; raises UsageError if the failure rate is not known."""
    gpus = _given(given.gpus)
    if gpus is None and measured.ranks is not None:
        gpus = SourcedFigure(value=float(measured.ranks), origin=Origin.ASSUMED, text="one per observed rank")
    size = _given(given.size_bytes) or (measured.size if given.parameters is None else _of_parameters(given.parameters))
    cost, duration = _cost(given, measured, size)
    return Basis(
        mttf=_mttf(given, gpus, measured.mttf),
        gpus=gpus,
        size=size,
        cost=cost,
        duration=duration,
        restart=_given(given.restart_seconds) or _restart(measured.restarts_seconds),
        restore=_duration_at_rate(given.read_bytes_per_second, size, "at the speed given with --read")
        or measured.restore,
        interval=_given(given.interval_seconds) or measured.interval,
        step=_given(given.step_seconds),
    )


def _given(value: float | None) -> SourcedFigure | None:
    return None if value is None else SourcedFigure(value=float(value), origin=Origin.GIVEN)


def _restart(measured: Sequence[float]) -> SourcedFigure:
    many = plural(len(measured), "restart")
    if len(measured) >= LEAST_TIMED_RESTARTS:
        text = f"median of {many} until the first step, without the restore"
        return SourcedFigure(value=figures.median(measured), origin=Origin.MEASURED, text=text)
    text = "to notice, schedule and start; set your own with --restart"
    if measured:
        text += f"; {many} took {measured[0]:,.4g} s until the first step, without the restore"
    return SourcedFigure(value=RESTART_SECONDS, origin=Origin.ASSUMED, text=text)


def _of_parameters(number: float) -> SourcedFigure:
    factor, word = next(pair for pair in _WORDS if number >= pair[0])
    count_text = f"{number / factor:,.4g} {word}".strip()
    text = f"{count_text} parameters of {BYTES_PER_PARAMETER} bytes each: 2 of weights, 12 of optimizer, assumed"
    return SourcedFigure(value=number * BYTES_PER_PARAMETER, origin=Origin.DERIVED, text=text)


def _mttf(given: GivenFigures, gpus: SourcedFigure | None, measured: SourcedFigure | None) -> SourcedFigure:
    if given.mttf_seconds is not None:
        return SourcedFigure(value=given.mttf_seconds, origin=Origin.GIVEN)
    if given.failures is not None and given.failures_seconds is not None:
        text = f"{given.failures:,} in {given.failures_seconds / HOUR_SECONDS:,.4g} h"
        return SourcedFigure(value=given.failures_seconds / given.failures, origin=Origin.GIVEN, text=text)
    if measured is not None and given.mttf_per_gpu_seconds is None:
        return measured
    if gpus is None:
        raise UsageError(
            "the failure rate is unknown", hint="give --mttf 3h, --failures 12/30d, or the number of --gpus"
        )
    each, origin = given.mttf_per_gpu_seconds, Origin.DERIVED
    text = "as given"
    if each is None:
        each, origin, text = MTTF_PER_GPU_SECONDS, Origin.ASSUMED, "reported by Micron and Lightbits for 24,000 GPUs"
    return SourcedFigure(value=each / gpus.value, origin=origin, text=f"{each / HOUR_SECONDS:,.6g} h per GPU, {text}")


def _duration_at_rate(rate: float | None, size: SourcedFigure | None, text: str) -> SourcedFigure | None:
    if rate is None or size is None:
        return None
    return SourcedFigure(value=size.value / rate, origin=Origin.DERIVED, text=text)


def _cost(
    given: GivenFigures, measured: MeasuredFigures, size: SourcedFigure | None
) -> tuple[SourcedFigure | None, SourcedFigure | None]:
    duration = _given(given.duration_seconds)
    written = _duration_at_rate(given.write_bytes_per_second, size, "a sync save at the speed given with --write")
    cost = _given(given.cost_seconds) or written
    if cost is not None:
        text = "a sync save: written when training resumes"
        return cost, duration or SourcedFigure(value=cost.value, origin=Origin.ASSUMED, text=text)
    duration = duration or measured.duration
    if measured.cost is not None and measured.cost.value > (0.0 if duration is None else duration.value):
        duration = msgspec.structs.replace(measured.cost, text="as long as it blocks training")
    return measured.cost, duration
