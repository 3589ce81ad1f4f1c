"""`ckptprof replay`: a recording through the same recorder as live samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ckptprof.detect.describe.revisions import newest
from ckptprof.detect.pipeline import Detector
from ckptprof.detect.recognition import Judged
from ckptprof.errors import RecordingError
from ckptprof.model import Checkpoint, Report, Session, Watched
from ckptprof.recording import Header, read_file
from ckptprof.report import why
from ckptprof.report.summary import ordered
from ckptprof.service.recorder import messages
from ckptprof.service.recorder.diagnosing import Diagnosis, ceilings_beside
from ckptprof.store.timeline import TimelineBuilder, Window
from ckptprof.store.writer import StoreWriter


@dataclass(frozen=True)
class Replayed:
    """Result of a replay."""

    report: Report
    rejected: tuple[str, ...]  # a line each, clean
    damage: RecordingError | None = None  # where reading failed: the report has the part before
    judged: tuple[Judged, ...] = ()  # every decision, for `--why`

    @property
    def unexplained(self) -> int:
        """Number of events missing in `judged`: the detector forgets some if too many are decided at once."""
        return self.judged[-1].number - len(self.judged) if self.judged else 0


def replay(path: Path, db: str | None, *, told: Callable[[float], None] = lambda _: None) -> Replayed:
    """Replay a recording, and store its checkpoints if a database is given; raises RecordingError, StoreError.

    A truncated recording (a kill, a power loss) is used up to its end. `told` is called with the share of the file read
    so far.
    """
    header, frames = read_file(path, told=told)
    detector = Detector(header)
    timeline = TimelineBuilder() if db is not None else None
    checkpoints: list[Checkpoint] = []
    judged: list[Judged] = []
    windows: list[Window] = []
    end_ns = header.wall_ns
    damage = None
    try:
        for number, frame in enumerate(frames, start=2):  # as lines of the file
            with _judging(path, f"line {number}"):
                checkpoints += detector.feed(frame)
                judged += _new(detector, judged)
                end_ns = max(end_ns, frame.wall_ns)
                if timeline is not None:
                    timeline.feed(frame)
                    windows += timeline.take(before_wall_ns=frame.wall_ns)
    except RecordingError as error:
        damage = RecordingError(str(error), hint=f"the part before that was used; {error.hint}")
    diagnosis = Diagnosis(ceilings=ceilings_beside(db)) if db is not None else Diagnosis()
    try:
        with _judging(path, "its end"):
            checkpoints += detector.finish()
    except RecordingError as error:
        damage = damage or error
    judged += _new(detector, judged)
    checkpoints = ordered(diagnosis.take(newest(checkpoints)))  # so that their ids do not jump
    if timeline is not None and db is not None:
        windows += timeline.take(before_wall_ns=None)
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
    return Replayed(report, tuple(map(why.headline, detector.rejected)), damage, tuple(judged))


@contextmanager
def _judging(path: Path, what: str) -> Iterator[None]:
    """Turn any failure of detection into a RecordingError."""
    try:
        yield
    except Exception as error:
        raise RecordingError(
            f"{path}: {what} cannot be processed: {type(error).__name__}: {error}",
            hint="if ckptprof recorded it, please report this with the output under CKPTPROF_DEBUG=1",
        ) from error


def _store(
    db: str, header: Header, end_ns: int, checkpoints: list[Checkpoint], windows: list[Window]
) -> list[Checkpoint]:
    writer = StoreWriter(db)
    if writer.moved_aside is not None:
        messages.warn(f"{writer.why_aside}: retained as {writer.moved_aside}, starting a new database")
    try:
        writer.begin_session(
            Session(
                uid=header.uid, host=header.host, boot_id=header.boot_id, kernel=header.kernel,
                version=header.ckptprof, level=header.level, start_ns=header.wall_ns, end_ns=end_ns, clean=True,
            )
        )  # fmt: skip
        writer.add_windows(windows)
        return writer.add_checkpoints(checkpoints)
    finally:
        writer.close()


def _new(detector: Detector, before: list[Judged]) -> list[Judged]:
    last = before[-1].number if before else 0
    if not detector.judged or detector.judged[-1].number == last:
        return []
    return [judged for judged in detector.judged if judged.number > last]
