"""Files are asked about until they are written, no longer, and never too many or too often."""

from __future__ import annotations

from ckptprof.service.sampler.flushing import MAX_FILES, MAX_PROCESSES, PATIENCE_NS, PERIOD_NS, WritebackQuestions
from ckptprof_collectors.samples import FileFact

SECOND_NS = 1_000_000_000


def fact(unwritten: int | None, *, inode: int = 7, pid: int = 100, path: str = "/ckpt/a.pt", size: int = 1 << 20,
         missing: bool = False) -> FileFact:  # fmt: skip
    """Return what is told of a file."""
    return FileFact(
        pid, pid * 10, 2049, inode, path, size, is_directory=False, birth_ns=None, modified_ns=1, changed_ns=1,
        accessed_ns=None, magic=None, is_missing=missing, unwritten_bytes=unwritten,
    )  # fmt: skip


def test_a_dirty_file_is_asked_about_once_a_second_until_it_is_clean() -> None:
    """Of its process, by its newest name, for its pages only."""
    flushing = WritebackQuestions()
    flushing.ingest(0, fact(4096))
    flushing.ingest(0, fact(4096, path="/ckpt/b.pt"))
    (question,) = flushing.questions(0, 0)

    assert (question.pid, question.start_ticks, question.view) == (100, 1000, (100, 1000))
    assert question.files == (b"/ckpt/b.pt",)
    assert (question.folders, question.read_contents, question.count_unwritten) == ((), False, True)
    assert flushing.questions(PERIOD_NS - 1, 0) == []
    assert flushing.questions(PERIOD_NS, 0)
    flushing.ingest(PERIOD_NS, fact(0))
    assert flushing.questions(3 * PERIOD_NS, 0) == []
    assert len(flushing) == 0


def test_a_file_is_queried_again_once_anything_was_written_back() -> None:
    """While the host writes nothing back no file gets clean: then only now and then, as a file may be deleted."""
    flushing = WritebackQuestions()
    flushing.ingest(0, fact(4096))
    asked = [bool(flushing.questions(second * SECOND_NS, 0, 7 if second < 3 else 8)) for second in range(10)]

    assert [second for second, one in enumerate(asked) if one] == [0, 3, 8]


def test_what_does_not_tell_is_not_asked_about() -> None:
    """A file system or a kernel that cannot count; a file that is clean already."""
    flushing = WritebackQuestions()
    flushing.ingest(0, fact(None))
    flushing.ingest(0, fact(0))

    assert flushing.questions(0, 0) == []


def test_a_file_that_is_gone_is_forgotten() -> None:
    """By its path: nothing else is known of it."""
    flushing = WritebackQuestions()
    flushing.ingest(0, fact(4096))
    flushing.ingest(0, fact(None, inode=0, missing=True))

    assert len(flushing) == 0


def test_nobody_is_asked_for_ever() -> None:
    """A file that is always written to is left alone after a while."""
    flushing = WritebackQuestions()
    for second in range(200):
        flushing.ingest(second * SECOND_NS, fact(4096, size=(1 << 20) + second))
        if flushing.questions(second * SECOND_NS, 0) == []:
            break

    assert PATIENCE_NS // SECOND_NS - 1 <= second <= PATIENCE_NS // SECOND_NS + 2


def test_of_many_files_the_largest_are_followed() -> None:
    """And of many processes the first."""
    flushing = WritebackQuestions()
    for inode in range(1000):
        flushing.ingest(0, fact(4096, inode=inode, size=inode, path=f"/ckpt/{inode}"))
    (question,) = flushing.questions(0, 0)

    assert len(question.files) == MAX_FILES
    assert b"/ckpt/999" in question.files
    assert b"/ckpt/1" not in question.files
    for pid in range(1000):
        flushing.ingest(0, fact(4096, pid=pid))
    assert len(flushing.questions(2 * PERIOD_NS, 0)) <= MAX_PROCESSES


def test_what_costs_much_is_asked_seldom() -> None:
    """A twentieth of a core at most goes into counting pages."""
    flushing = WritebackQuestions()
    flushing.ingest(0, fact(4096))
    assert flushing.questions(0, 0)
    assert flushing.questions(SECOND_NS, SECOND_NS)

    assert flushing.questions(20 * SECOND_NS, SECOND_NS) == []
    assert flushing.questions(21 * SECOND_NS, SECOND_NS)


def test_a_file_that_many_are_told_of_is_asked_for_once() -> None:
    """Each of 64 ranks is told of the files of all of them: 64 questions a second, and not 4,096."""
    flushing = WritebackQuestions()
    for pid in range(1, 65):
        for inode in range(64):
            flushing.ingest(0, fact(4096, pid=pid, inode=inode, path=f"/ckpt/{inode}"))

    assert len(flushing) == 64
    assert sum(len(question.files) for question in flushing.questions(0, 0)) == 64


def test_who_does_not_answer_is_not_asked_again_first() -> None:
    """A process that wrote a file has ended, and nobody can enter its root: the one that it wrote for is asked."""
    flushing = WritebackQuestions()
    flushing.ingest(0, fact(4096, pid=1, path="/in/container/a.pt"))
    flushing.ingest(0, fact(4096, pid=2, path="/a.pt"))
    asked = [flushing.questions(0, 0), flushing.questions(PERIOD_NS, 0)]

    assert [[(question.pid, question.files) for question in one] for one in asked] == [
        [(1, (b"/in/container/a.pt",))],
        [(2, (b"/a.pt",))],
    ]


def test_a_file_that_is_gone_for_one_is_asked_of_the_other() -> None:
    """It may have another name there."""
    flushing = WritebackQuestions()
    flushing.ingest(0, fact(4096, pid=1, path="/a.tmp"))
    flushing.ingest(0, fact(4096, pid=2, path="/a.pt"))
    flushing.ingest(0, fact(None, pid=1, path="/a.tmp", missing=True))
    (question,) = flushing.questions(0, 0)

    assert (question.pid, question.files) == (2, (b"/a.pt",))


def test_who_was_told_of_a_file_whose_pages_others_had_counted_can_be_asked_for_it() -> None:
    """Its pages are counted once for all who look into its folder."""
    flushing = WritebackQuestions()
    flushing.ingest(0, fact(4096, pid=1))
    flushing.ingest(0, fact(None, pid=2))
    asked = [flushing.questions(0, 0), flushing.questions(PERIOD_NS, 0)]

    assert [question.pid for one in asked for question in one] == [1, 2]


def test_those_who_ended_do_not_keep_the_places_of_those_who_live() -> None:
    """Four are told of a file and end; the fifth is told of it at each of its looks."""
    flushing, asked = WritebackQuestions(), []
    for pid in range(1, 5):
        flushing.ingest(0, fact(4096, pid=pid))
    for second in range(10):
        asked += [question.pid for question in flushing.questions(second * SECOND_NS, 0)]
        flushing.ingest(second * SECOND_NS, fact(None, pid=5))

    assert asked[:4] == [1, 2, 3, 4]
    assert set(asked[4:]) == {5}


def test_of_two_files_under_one_name_the_newer_is_asked_for() -> None:
    """A save that was replaced by another: its number says nothing of its age."""
    flushing = WritebackQuestions()
    flushing.ingest(0, fact(4096, inode=50))
    flushing.ingest(SECOND_NS, fact(4096, inode=20))
    (question,) = flushing.questions(2 * SECOND_NS, 0)

    assert question.keys == {b"/ckpt/a.pt": (2049, 20)}
