"""Making names printable, and fitting them in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ckptprof.encoding import encodable
from ckptprof.report.clean import clean, pad, shorten, shorten_end, width


def test_clean_writes_what_was_there() -> None:
    """Each kind of character that is not plainly visible is named by its code."""
    assert clean("a\x1b[31m\x7f\x9b\n") == "a\\x1b[31m\\x7f\\x9b\\x0a"
    assert clean("\u202eabc\u2028\udcff") == "\\u{202e}abc\\u{2028}\\u{dcff}"


def test_clean_leaves_text_alone() -> None:
    """Markup, quotes and letters of any script are no danger to a terminal."""
    assert clean("[/red] <b> 漢字 é 'x' \\xff") == "[/red] <b> 漢字 é 'x' \\xff"


@given(st.text())
def test_clean_is_printable_and_stable(text: str) -> None:
    """What was cleaned is printable or a space, and cleaning it again changes nothing."""
    cleaned = clean(text)

    assert cleaned == clean(cleaned)
    assert all(char.isprintable() or char.isspace() for char in cleaned)
    assert not set("\n\r\t\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029") & set(cleaned)


@given(st.text(alphabet=st.characters()), st.integers(0, 40))
def test_shorten_fits(text: str, limit: int) -> None:
    """However wide its characters are, a shortened name takes no more cells than it may."""
    assert width(shorten(clean(text), limit)) <= limit
    assert width(shorten_end(clean(text), limit)) <= limit


def test_shorten_keeps_the_end() -> None:
    """The end of a path tells checkpoints apart."""
    assert shorten("/mnt/scratch/run/step_000100.pt", 15) == "…step_000100.pt"
    assert shorten("/mnt/scratch/llama/run/step_000100.pt", 31) == "/mnt/scrat…a/run/step_000100.pt"
    assert shorten("short.pt", 15) == "short.pt"


def test_stacked_marks_are_cut() -> None:
    """A name of one cell and five hundred combining marks does not fill the screen upwards."""
    assert len(shorten("e" + "\u0301" * 500, 10)) <= 41


def test_wide_characters_count_twice() -> None:
    """A cell count that took them for one would break the columns."""
    assert width("漢字a") == 5
    assert pad("漢", 4) == "漢  "
    assert pad("漢", 4, right=True) == "  漢"


def test_surrogates_become_text() -> None:
    """JSON and UTF-8 have no place for them."""
    assert encodable("a\udcff") == "a\\udcff"
