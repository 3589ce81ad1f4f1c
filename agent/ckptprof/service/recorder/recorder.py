"""The recorder: turns the frames of a sampler into checkpoints, timelines and metrics, and stores them."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from ckptprof.detect.describe.revisions import latest_revisions
from ckptprof.detect.events.decision_table import Hypothesis
from ckptprof.detect.events.deferred import PendingEvent
from ckptprof.detect.pipeline import Detector
from ckptprof.detect.recognition import EventDecision
from ckptprof.detect.world.starvation import DESCRIPTIONS, FAR_BEHIND_NS
from ckptprof.export.recorder_health import RecorderHealth
from ckptprof.model import HUNG, Checkpoint, Kind, Session
from ckptprof.recording import Header
from ckptprof.report.live.state import State, underway, with_usual_bytes
from ckptprof.service.recorder import messages
from ckptprof.service.recorder.deletions import Deletions
from ckptprof.service.recorder.diagnosing import Diagnosis
from ckptprof.service.recorder.split_checkpoints import SplitCheckpoints
from ckptprof.service.recorder.writerthread import WriterThread
from ckptprof.store.timeline import TimelineBuilder
from ckptprof_collectors.abandoned import ABANDONED
from ckptprof_collectors.process_facts import own_memory_bytes
from ckptprof_collectors.samples import CollectorFault, Frame, SamplerHealth, Unavailable

if TYPE_CHECKING:  # `run` has no metrics page, and prometheus_client costs 50 ms and 10 MB
    from ckptprof.export.metrics import Metrics


_Reported = TypeVar("_Reported", Checkpoint, PendingEvent)
LATE_NS = 1_000_000_000
BEHIND_NS = 10_000_000_000  # then a warning
_LATE = "checkpoints are reported late"
SESSION_SECONDS = 10.0
HEALTH_SECONDS = 4.5  # the sampler makes its own every five
_PENDING_INTERVAL_NS = 750_000_000  # between two stored states: a killed process loses no more
_PENDING_SHARE = 0.05  # of a core at most
_PENDING_TIMEOUT_SECONDS = 0.5  # at most at once: frames wait during it


class GuardedDetector:
    """A detector that restarts after each fault; `complain` gets each fault, `faults` counts them."""

    def __init__(
        self,
        header: Header,
        *,
        saved_paths: tuple[str, ...],
        complain: Callable[[str], None],
        before: GuardedDetector | None = None,
    ) -> None:
        """`saved_paths`: of earlier sessions; `before`: the detection that this one continues."""
        self._header = header
        self._saved_paths = saved_paths
        self._complain = complain
        earlier = None if before is None else before.detector
        self.detector: Detector = Detector(header, saved_paths=saved_paths, before=earlier)
        self._previous_forgotten_bytes = 0
        self.faults = 0

    @property
    def forgotten_bytes(self) -> int:
        """Bytes that it forgot early because its budget was full."""
        return self._previous_forgotten_bytes + self.detector.forgotten_bytes

    def run(self, step: Callable[[Detector], list[_Reported]]) -> list[_Reported]:
        """Return the result of a step of the detector, empty after a fault."""
        try:
            return step(self.detector)
        except Exception as error:  # noqa: BLE001 - sampling, timelines and metrics must continue after any fault here
            self.faults += 1
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{PurePath(place.filename).name}:{place.lineno}"
            self._complain(
                f"detection failed: {type(error).__name__} at {where}: {error}; "
                "checkpoints in progress are lost, detection restarts"
            )
            self._previous_forgotten_bytes = self.forgotten_bytes
            self.detector = Detector(self._header, saved_paths=self._saved_paths)
            return []


class LiveScreen(Protocol):
    """A live screen on our terminal, which redirects the streams of the command."""

    @property
    def streams(self) -> Mapping[int, int]:
        """Our descriptors by their number in the command."""

    @property
    def is_wanted(self) -> bool:
        """Whether it is shown."""

    def put(self, state: State) -> None:
        """Show a state; returns at once."""


class Recorder:
    """Ingests the messages of consecutive samplers; never blocks."""

    def __init__(  # noqa: PLR0913 - consumers of its results, and facts of the host
        self,
        writer: WriterThread | None,
        metrics: Metrics | None,
        *,
        saved_paths: tuple[str, ...] = (),
        truncated: Iterable[Checkpoint] = (),
        pending: Sequence[PendingEvent] | None = None,
        report: Callable[[Checkpoint], None] = lambda _: None,
        complain: Callable[[str], None] = lambda _: None,
        diagnosis: Diagnosis | None = None,
        live: LiveScreen | None = None,
        latest: Callable[[], tuple[Checkpoint, ...]] = tuple,
    ) -> None:
        """`report` is called once with each checkpoint, `complain` with each limitation.

        `truncated`: saves cut by the end of the session before; their continuations are reported as revisions.
        `pending`: events not reported before; None: no later session continues this one, so everything is reported.
        `live` gets the unfinished saves, and the `latest` checkpoints, the newest first.
        """
        self._writer = writer
        self._metrics = metrics
        self._saved_paths = saved_paths
        self._report = report
        self._complain = complain
        self._diagnosis = diagnosis if diagnosis is not None else Diagnosis(complain)
        self._live = live
        self._latest = latest
        self._split = SplitCheckpoints(truncated)
        self._unreported = pending
        self._stores_pending = pending is not None
        self._has_pending = bool(pending) or not self._stores_pending  # of a killed predecessor
        self._pending_due_ns = 0  # CLOCK_MONOTONIC
        self._pending_cost_ns = 0  # CPU time of the last one
        self._shown_count = 0  # unfinished saves shown last
        self._detector: GuardedDetector | None = None
        self._previous: GuardedDetector | None = None  # the same, or that of the previous session
        self._timeline = TimelineBuilder()
        self._deletions = Deletions()
        self.session: Session | None = None  # the current or the last one
        self._session_stored = self._health_made = -math.inf  # CLOCK_MONOTONIC, in seconds
        self.frames = 0
        self.late_frames = 0
        self._late_ns = 0  # delay of the last frame
        self._evaluating_ns: int | None = None  # time of the frame in evaluation; None: it waits for one
        self._most_behind_ns = 0  # since it fell behind; 0: it is not behind
        self._previous_faults = 0  # of the detection, in earlier sessions
        self._previous_forgotten_bytes = 0
        self._omitted_events = 0
        self.dropped_frames = 0
        self.checkpoints: list[Checkpoint] = []  # for the final report of `run`
        self.keep_checkpoints = False

    def ingest(self, message: Header | Frame) -> None:
        """Ingest one message of the sampler."""
        if isinstance(message, Header):
            self._start_session(message)
        else:
            self._ingest_frame(message)

    def _start_session(self, header: Header) -> None:
        self.end(clean=False)
        if self._metrics is not None:
            self._metrics.level(header.level)
        self._detector = self._previous = GuardedDetector(
            header, saved_paths=self._saved_paths, complain=self._complain, before=self._previous
        )
        self.session = Session(
            uid=header.uid, host=header.host, boot_id=header.boot_id, kernel=header.kernel, version=header.ckptprof,
            level=header.level, start_ns=header.wall_ns, end_ns=header.wall_ns, clean=False,
        )  # fmt: skip
        self._store_session()
        if self._unreported:
            unreported, self._unreported = self._unreported, None
            adopted = self._detector.run(lambda detector: detector.adopt_pending(unreported))
            self._emit(adopted, self._detector.run(Detector.pending))

    def _ingest_frame(self, frame: Frame) -> None:
        if self._detector is None or self.session is None:
            return
        self.frames += 1
        self._record_lateness(frame.at_ns, time.monotonic_ns())
        self._evaluating_ns = frame.at_ns
        reported = self._detector.run(lambda detector: detector.ingest(frame, self._most_behind_ns))
        self._emit(reported, self._due_pending(self._detector, frame.at_ns, at_once=bool(reported)))
        self._evaluating_ns = None
        self._timeline.feed(frame)
        self._deletions.ingest(frame)
        if self._metrics is not None:
            self._metrics.observe(frame)
        for sample in frame.samples:
            if isinstance(sample, Unavailable | CollectorFault):
                self._complain(f"not monitored: {sample.collector} ({sample.reason})")
            elif isinstance(sample, SamplerHealth):
                self.dropped_frames = sample.dropped_frames
        end_ns = max(frame.wall_ns, self.session.end_ns)
        self.session = msgspec.structs.replace(self.session, end_ns=end_ns, dropped_frames=self.dropped_frames)

    def _record_lateness(self, at_ns: int, now_ns: int) -> None:
        """Record the delay of a frame; say once that it is long, that it is very long, and that this is over."""
        self._late_ns = max(0, now_ns - at_ns)
        self.late_frames += self._late_ns > LATE_NS
        before_ns, seconds = self._most_behind_ns, self._late_ns // 1_000_000_000
        if self._late_ns <= LATE_NS and before_ns:
            self._most_behind_ns = 0
            messages.info(f"the recorder has caught up: it was up to {before_ns // 1_000_000_000} s behind")
        elif before_ns or self._late_ns >= BEHIND_NS:
            self._most_behind_ns = max(before_ns, self._late_ns)
        if self._late_ns >= FAR_BEHIND_NS > before_ns:
            messages.warn(f"the recorder is {seconds} s behind: until it has caught up it leaves out {DESCRIPTIONS}")
        elif self._late_ns >= BEHIND_NS and not before_ns:
            messages.warn(f"the recorder is {seconds} s behind: {_LATE}")

    @property
    def behind_seconds(self) -> float:
        """Delay between a frame and its evaluation, which may still be in progress; any thread may read it."""
        at_ns = self._evaluating_ns
        return max(self._late_ns, 0 if at_ns is None else time.monotonic_ns() - at_ns) / 1e9

    @property
    def is_behind(self) -> bool:
        """Whether checkpoints are reported late."""
        return self.behind_seconds * 1e9 >= BEHIND_NS

    @property
    def health(self) -> str:
        """`ok`, or by how much it is behind."""
        return f"{self.behind_seconds:.0f} s behind: {_LATE}" if self.is_behind else "ok"

    @property
    def rejected(self) -> list[EventDecision]:
        """Recent events classified as no checkpoint."""
        return [] if self._previous is None else self._previous.detector.rejected

    def _due_pending(self, detector: GuardedDetector, at_ns: int, *, at_once: bool) -> list[PendingEvent] | None:
        """Return the unreported events if they are due to be stored: about once a second, later if that is costly."""
        is_watched = self._live is not None and self._live.is_wanted
        if not (self._stores_pending or self._writer or is_watched) or not (at_once or at_ns >= self._pending_due_ns):
            return None
        start_ns = time.thread_time_ns()
        pending = detector.run(lambda one: one.pending(deadline_in(_PENDING_TIMEOUT_SECONDS), closely=is_watched))
        self._omitted_events += detector.detector.omitted_event_count
        last_ns, self._pending_cost_ns = self._pending_cost_ns, time.thread_time_ns() - start_ns
        cost_ns = min(last_ns, self._pending_cost_ns)  # a single outlier may be garbage collection or a loaded host
        self._pending_due_ns = at_ns + max(_PENDING_INTERVAL_NS, round(cost_ns / _PENDING_SHARE))
        if is_watched and len(detector.detector.underway) > self._shown_count:
            self._show()  # a new one at once
        if not self._stores_pending and self._writer is None:
            return None
        had_pending, self._has_pending = self._has_pending, bool(pending)
        return pending if pending or had_pending else None

    def _emit(self, checkpoints: list[Checkpoint], pending: list[PendingEvent] | None) -> None:
        if not checkpoints and pending is None:
            return
        checkpoints = self._deletions.annotate(self._split.join_parts(self._diagnosis.diagnose_all(checkpoints)))
        if self._writer is not None:
            self._writer.put_checkpoints(checkpoints, pending)
        if self.keep_checkpoints:
            self.checkpoints = latest_revisions([*self.checkpoints, *checkpoints])
        for checkpoint in checkpoints:
            if self._metrics is not None:
                self._metrics.checkpoint(checkpoint)  # counts once; a revision adds its difference
            if checkpoint.revision == 0 or (checkpoint.kind is Kind.COPY and checkpoint.risks):
                self._report(checkpoint)

    def housekeeping(self, now_wall_ns: int, *, sampler_restarts: int = 0, samplers_stuck: int = 0) -> None:
        """Store and publish what is due; call it about once a second."""
        now = time.monotonic()
        if self._writer is not None:
            if windows := self._timeline.consume(before_wall_ns=now_wall_ns):
                self._writer.put_windows(windows)
            if now - self._session_stored > SESSION_SECONDS:
                self._store_session()
        ABANDONED.remove_ended()
        if self._metrics is not None and now - self._health_made > HEALTH_SECONDS:
            self._health_made = now
            self._metrics.recorder(self._health(sampler_restarts, samplers_stuck))
        self._show()

    def _show(self) -> None:
        if self._live is None or not self._live.is_wanted or self._detector is None or self.session is None:
            return
        detector = self._detector.detector
        unfinished = self._diagnosis.diagnose_unfinished(detector.underway)
        self._shown_count = len(unfinished)
        last = self._latest()
        saves = tuple(underway(one, detector.writing) for one in sorted(unfinished, key=lambda one: one.start_ns))
        self._live.put(
            State(
                at_ns=time.time_ns(),
                host=self.session.host,
                level=self.session.level,
                since_ns=self.session.start_ns,
                dropped_frames=self.dropped_frames,
                underway=with_usual_bytes(saves, last),
                last=last,
            )
        )

    def end(self, *, clean: bool, hurried: Callable[[], bool] = lambda: False) -> None:
        """Process the remaining events and store everything: the sampler has ended.

        Events not processed once `hurried` is true are left to the next session, and this one is not clean.
        """
        if self._detector is None or self.session is None:
            return
        reported, pending, clean = self._finish_detection(self._detector, clean=clean, hurried=hurried)
        self._emit(reported, pending)
        if self._writer is not None:
            self._writer.put_windows(self._timeline.consume(before_wall_ns=None))
        self.session = msgspec.structs.replace(self.session, dropped_frames=self.dropped_frames, clean=clean)
        self._store_session()
        self._previous_faults += self._detector.faults
        self._previous_forgotten_bytes += self._detector.forgotten_bytes
        self._detector = None
        self._timeline = TimelineBuilder()

    def _finish_detection(
        self, detector: GuardedDetector, *, clean: bool, hurried: Callable[[], bool]
    ) -> tuple[list[Checkpoint], list[PendingEvent] | None, bool]:
        if not self._stores_pending:
            return detector.run(Detector.finish), [], clean
        reported = detector.run(lambda one: one.pause(hurried))
        clean = clean and not hurried()
        pending = detector.run(lambda one: one.pending(deadline_in(_PENDING_TIMEOUT_SECONDS)))
        if clean:
            reported += detector.run(Detector.finish)
            pending = [one for one in pending if one.if_alone in (Hypothesis.DATA, Hypothesis.NOTHING)]
        return reported, pending, clean

    def _store_session(self) -> None:
        self._session_stored = time.monotonic()
        if self._writer is not None and self.session is not None:
            self._writer.put_deletions(self._deletions.consume())
            self._writer.put_session(self.session)

    def _health(self, sampler_restarts: int = 0, samplers_stuck: int = 0) -> RecorderHealth:
        writer, guarded = self._writer, self._detector
        underway_now = guarded.detector.underway if guarded else []
        return RecorderHealth(
            frames=self.frames,
            dropped_frames=self.dropped_frames + (writer.dropped_windows if writer else 0) + self._timeline.dropped,
            late_frames=self.late_frames,
            behind_seconds=lambda: self.behind_seconds,
            detection_faults=self._previous_faults + (guarded.faults if guarded else 0) + self._diagnosis.faults,
            detection_memory_bytes=guarded.detector.retained_bytes if guarded else None,
            detection_forgotten_bytes=self._previous_forgotten_bytes + (guarded.forgotten_bytes if guarded else 0),
            left_out_events=self._omitted_events,
            store_errors=writer.store_errors if writer else None,
            damaged_databases=writer.damaged_databases if writer else None,
            store_bytes=writer.size_bytes() if writer else None,
            store_log_bytes=writer.log_bytes() if writer else None,
            store_queue=writer.queued if writer else None,
            sampler_restarts=sampler_restarts,
            samplers_stuck=samplers_stuck,
            abandoned=ABANDONED.count(),
            cpu_seconds=time.process_time(),
            resident_bytes=own_memory_bytes(),
            hung_saves=len([one for one in underway_now if any(why.name == HUNG for why in one.evidence)]),
            bursts_active=int(guarded.detector.active) if guarded else 0,
        )


def deadline_in(seconds: float) -> Callable[[], bool]:
    """Return a function that is true once so many seconds have passed."""
    until = time.monotonic() + seconds
    return lambda: time.monotonic() > until
