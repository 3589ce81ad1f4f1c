"""A file that takes the inode of one that was deleted is another file: it keeps its own name."""

from __future__ import annotations

import pytest
from tests.detect.observed import observed

from ckptprof.detect.transfers.file_facts import FileFacts
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.detect.transfers.observed.openings import FileOpenings
from ckptprof.detect.transfers.observed.traced_books import TracedTransfers
from ckptprof_collectors.samples import FileFact

SECOND_NS = 1_000_000_000
OLD, NEW = "/run/checkpoint_0/model.safetensors", "/run/checkpoint_2/model.safetensors"
TEMPORARY = "/run/checkpoint_2/.tmpXq3f9a"


def fact(path: str, born_s: float, changed_s: float) -> FileFact:
    """Return what the file system says; wall and monotonic clock are the same here."""
    born, changed = round(born_s * SECOND_NS), round(changed_s * SECOND_NS)
    return FileFact(100, 1, 8, 7, path, 40 << 20, False, born, changed, changed, None, None)  # noqa: FBT003 - no folder


def written(path: str, start_s: float, end_s: float) -> Transfer:
    """Return a stream of one process that wrote the file."""
    start, end = round(start_s * SECOND_NS), round(end_s * SECOND_NS)
    return Transfer((100, 1), (8, 7), writes=True, path=path, first_ns=start, last_ns=end, before_ns=start)


def attached(book: FileFacts, stream: Transfer) -> Transfer:
    """Return the stream with what the book knows of it."""
    (one,) = book.apply([stream], [], 20 * SECOND_NS)
    return one


def test_a_look_from_before_gives_no_name() -> None:
    """The old file was looked at, deleted, and its inode given to the new one within half a second."""
    book = FileFacts(observed(), TracedTransfers(), FileOpenings())
    book.record(10 * SECOND_NS, fact(OLD, 5.0, 6.0))

    one = attached(book, written(NEW, 10.2, 10.4))

    assert (one.path, one.earlier_path, one.fact) == (NEW, None, None)


@pytest.mark.parametrize(("born_s", "path"), [(10.2, TEMPORARY), (5.0, OLD)])
def test_a_temporary_name_after_a_final_one_is_a_new_file_if_it_was_born_later(born_s: float, path: str) -> None:
    """Else it is but an earlier look at the file whose final name is known."""
    book = FileFacts(observed(), TracedTransfers(), FileOpenings())
    book.record(10 * SECOND_NS, fact(OLD, 5.0, 10.3))
    book.record(11 * SECOND_NS, fact(TEMPORARY, born_s, 10.4))

    one = attached(book, written(TEMPORARY, 10.2, 10.4))

    assert one.fact is not None
    assert one.fact.path == path


def test_a_look_from_after_gives_the_final_name() -> None:
    """As it must be, for files that are renamed when they are complete."""
    book = FileFacts(observed(), TracedTransfers(), FileOpenings())
    book.record(11 * SECOND_NS, fact(NEW, 10.2, 10.4))

    one = attached(book, written(TEMPORARY, 10.2, 10.4))

    assert (one.path, one.earlier_path) == (NEW, TEMPORARY)


def test_a_file_that_was_born_later_gives_no_name_to_the_one_before() -> None:
    """The old one was saved and rotated away while its save still waits to be judged."""
    book = FileFacts(observed(), TracedTransfers(), FileOpenings())
    book.record(12 * SECOND_NS, fact(NEW, 11.0, 11.5))

    one = attached(book, written(OLD, 10.2, 10.4))

    assert (one.path, one.earlier_path, one.fact) == (OLD, None, None)
