"""`ckptprof replay`: a recording through the same recorder as live samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ckptprof.detect.describe.revisions import latest_revisions
from ckptprof.detect.pipeline import Detector
from ckptprof.detect.recognition import EventDecision
from ckptprof.errors import RecordingError
from ckptprof.model import Checkpoint, Report, Session, Watched
from ckptprof.recording import Header, read_file
from ckptprof.report import why
from ckptprof.report.summary import ordered
from ckptprof.service.recorder import messages
from ckptprof.service.recorder.deletions import Deletions
from ckptprof.service.recorder.diagnosing import Diagnosis, ceilings_of_database
from ckptprof.store.timeline import TimelineBuilder, Window
from ckptprof.store.writer import StoreWriter


@dataclass(frozen=True)
class ReplayResult:
    """Result of a replay."""

    report: Report
    rejected: tuple[str, ...]  # a line each, clean
    damage: RecordingError | None = None  # where reading failed: the report has the part before
    decisions: tuple[EventDecision, ...] = ()  # every decision, for `--why`

    @property
    def forgotten_count(self) -> int:
        """Number of events missing in `decisions`: the detector drops some if too many are decided at once."""
        return self.decisions[-1].number - len(self.decisions) if self.decisions else 0


def replay(path: Path, db: str | None, *, on_progress: Callable[[float], None] = lambda _: None) -> ReplayResult:
    """Replay a recording, and store its checkpoints if a database is given; raises RecordingError, StoreError.

    A truncated recording (a kill, a power loss) is used up to its end. `on_progress` is called with the share of the
    file read so far.
    """
    header, frames = read_file(path, on_progress=on_progress)
    detector, deletions = Detector(header), Deletions()
    timeline = TimelineBuilder() if db is not None else None
    checkpoints: list[Checkpoint] = []
    decisions: list[EventDecision] = []
    windows: list[Window] = []
    end_ns = header.wall_ns
    damage = None
    try:
        for number, frame in enumerate(frames, start=2):  # as lines of the file
            with _recording_errors(path, f"line {number}"):
                checkpoints += detector.ingest(frame)
                deletions.ingest(frame)
                decisions += _new_decisions(detector, decisions)
                end_ns = max(end_ns, frame.wall_ns)
                if timeline is not None:
                    timeline.feed(frame)
                    windows += timeline.consume(before_wall_ns=frame.wall_ns)
    except RecordingError as error:
        damage = RecordingError(str(error), hint=f"the part before that was used; {error.hint}")
    diagnosis = Diagnosis(ceilings=ceilings_of_database(db)) if db is not None else Diagnosis()
    try:
        with _recording_errors(path, "its end"):
            checkpoints += detector.finish()
    except RecordingError as error:
        damage = damage or error
    decisions += _new_decisions(detector, decisions)
    diagnosed = diagnosis.diagnose_all(latest_revisions(checkpoints))
    checkpoints = deletions.annotate(ordered(diagnosed))  # so that their ids have no gaps
    if timeline is not None and db is not None:
        windows += timeline.consume(before_wall_ns=None)
        checkpoints = _store(db, header, end_ns, checkpoints, windows)
    else:
        checkpoints = [
            msgspec.structs.replace(checkpoint, id=number) for number, checkpoint in enumerate(checkpoints, start=1)
        ]
    report = Report(
        host=header.host,
        watched=Watched(start_ns=header.wall_ns, end_ns=end_ns),
        checkpoints=tuple(checkpoints),
    )
    return ReplayResult(report, tuple(map(why.headline, detector.rejected)), damage, tuple(decisions))


@contextmanager
def _recording_errors(path: Path, location: str) -> Iterator[None]:
    """Turn any failure of detection into a RecordingError."""
    try:
        yield
    except Exception as error:
        raise RecordingError(
            f"{path}: {location} cannot be processed: {type(error).__name__}: {error}",
            hint="if ckptprof recorded it, please report this with the output under CKPTPROF_DEBUG=1",
        ) from error


def _store(
    db: str, header: Header, end_ns: int, checkpoints: list[Checkpoint], windows: list[Window]
) -> list[Checkpoint]:
    writer = StoreWriter(db)
    if writer.set_aside_path is not None:
        messages.warn(f"{writer.set_aside_reason}: retained as {writer.set_aside_path}, starting a new database")
    try:
        writer.start_session(
            Session(
                uid=header.uid,
                host=header.host,
                boot_id=header.boot_id,
                kernel=header.kernel,
                version=header.ckptprof,
                level=header.level,
                start_ns=header.wall_ns,
                end_ns=end_ns,
                clean=True,
            )
        )
        writer.add_windows(windows)
        return writer.add_checkpoints(checkpoints)
    finally:
        writer.close()


def _new_decisions(detector: Detector, known: list[EventDecision]) -> list[EventDecision]:
    last = known[-1].number if known else 0
    if not detector.decisions or detector.decisions[-1].number == last:
        return []
    return [decision for decision in detector.decisions if decision.number > last]
