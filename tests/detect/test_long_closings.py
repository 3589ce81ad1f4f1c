"""A save ends when close(2) returns: NFS, FUSE and S3 send there what was written, for as long as it takes."""

from __future__ import annotations

from tests.detect.stage import SECOND_NS, Stage, play
from tests.detect.tracer import activity, life, mono

from ckptprof.model import Checkpoint
from ckptprof_collectors.samples import Frame, Sample, ThreadLook

CLOSE = 3


def met_in_close(at_s: float) -> ThreadLook:
    """Return a look at the writer, asleep in close(2)."""
    return ThreadLook(
        pid=100, start_ticks=1000, tid=100, comm="python3", on_cpu_ns=SECOND_NS, waited_ns=0, user_ticks=50,
        system_ticks=50, major_faults=0, block_delay_ticks=None, state="S", call=CLOSE, wait=None, at_ns=mono(at_s),
    )  # fmt: skip


def seen(*samples: tuple[float, Sample], until_s: float = 30.0) -> list[Checkpoint]:
    """Return the checkpoints of a trainer of whom the trace and looks tell."""
    stage = Stage(trace=True, poll=False)
    stage.process()
    frames = []
    before_ns = 0
    for frame in stage.frames(until_s):
        more = tuple(sample for at_s, sample in samples if before_ns < mono(at_s) <= frame.at_ns)
        frames.append(Frame(frame.at_ns, frame.wall_ns, (*frame.read, "trace"), (*frame.samples, *more)))
        before_ns = frame.at_ns
    return play(stage.header(), frames)


def seconds(save: Checkpoint) -> float:
    """Return how long it took."""
    return (save.end_ns - save.start_ns) / SECOND_NS


def test_a_closing_that_takes_longer_than_judgement_waits_is_of_the_save() -> None:
    """Written within 0.02 s, sent within nine seconds of close(2): one save of nine seconds."""
    written = activity(start_s=2.0, end_s=2.02, closed_ns=mono(2.03))
    looks = [(at, met_in_close(at)) for at in (2.1 + 0.2 * number for number in range(45))]

    saves = seen((2.05, written), *looks, (11.05, life("closed-written", 11.03, duration_s=9.0)))

    assert [round(seconds(save), 2) for save in saves if save.revision == 0] == [9.03]


def test_a_closing_that_began_late_is_not() -> None:
    """A file that was left open for three seconds was complete before, however long its closing took then."""
    written = activity(start_s=2.0, end_s=2.02, closed_ns=mono(5.0))

    (save,) = seen((5.02, written), (6.02, life("closed-written", 6.0, duration_s=1.0)))

    assert seconds(save) < 0.1


def test_an_earlier_closing_holds_nothing_up() -> None:
    """Who was met in close(2) only while it lasted is judged as soon as any other."""
    written = activity(start_s=2.0, end_s=2.02, closed_ns=mono(2.03))

    (save,) = seen((2.05, written), (2.06, met_in_close(2.06)), (2.1, life("closed-written", 2.08, duration_s=0.05)))

    assert round(seconds(save), 2) == 0.08
