"""The signals: each a predicate on an event and what is known around it, with its name and its text."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ckptprof.detect.events.event import Event
from ckptprof.detect.events.signal import Found, Signal
from ckptprof.detect.events.signals import copies, fetches, names, passes, reads, sends, series, swaps, who

Answer = bool | str | Found | None  # a text is the detail that takes the place of {}


class _Check(NamedTuple):
    name: str
    holds: Callable[[Event], Answer]
    text: str = ""  # without one it is a mere condition of combinations: it weighs nothing, and is never shown


CHECKS: tuple[_Check, ...] = (
    _Check("name", names.named, "files are named as {} names them"),
    _Check("format", names.formatted, "its first bytes are those of {}"),
    _Check("step", names.has_step, "its name counts training: step {}"),
    _Check("word", names.has_word, "its name has a word for checkpoints"),
    _Check("runtime", who.runtime, "{}"),
    _Check("computes", who.computes, "its process computes between its writes"),
    _Check("tool", who.is_tool, "its process is a tool that copies, packs or fetches"),
    _Check("service", who.is_service, "its process is a tool that installs, builds, serves or logs"),
    _Check("renamed", who.renamed, "written under a temporary name, then renamed"),
    _Check("appends", who.appends, "it is appended to, as logs are"),
    _Check("random", who.random, "small writes here and there in its files, as databases do"),
    _Check("recurs", series.recurs, "the job wrote the like of it before ({})"),
    _Check("regular", series.regular, "it comes every {} s, with pauses between"),
    _Check("overwrites", series.overwrites, "it takes the place of what was written before"),
    _Check("rotates", series.rotates, "its job deletes older files of this kind"),
    _Check("resumed", series.resumed, "a later run of the same program went on from the last one"),
    _Check("shards", series.shards, "numbered pieces that only go on counting, as data sets do"),
    _Check("read-back", reads.read_back, "these files were seen being saved"),
    _Check("read-again", reads.read_again, "an earlier run of the same program wrote it"),
    _Check("resumes", reads.resumes, "it is the last of what that run wrote in even periods, and no other is read"),
    _Check("amid", reads.amid, "its process read it in the midst of a save, to average, merge, check or strip"),
    _Check("handed", reads.handed, "processes begun later hand it in to the one that trains, as samples are"),
    _Check("feeds", reads.feeds, "files of one shape in a row or again, as data sets are read"),
    _Check("data", names.is_data, "its name has a word for data sets or results"),
    _Check("place", names.is_placed, "it is in a place of caches, packages or databases"),
    _Check("foreign", names.is_foreign, "it is {}"),
    _Check("swapped", swaps.swapped, "its process reads it and writes it anew again and again, as what is swapped"),
    _Check("received", passes.received, "as much came in by the network at the same time"),
    _Check("downloaded", names.downloaded, "it is where, or named as, downloads are"),
    _Check("copies", copies.copies, "{}"),
    _Check("sent-on", passes.sent_on, "its process sent as much meanwhile to where object stores answer"),
    _Check("uploads", passes.uploads, "a thread of the process that wrote it read it from end to end, as uploads do"),
    _Check(
        "straight", passes.reads_even_pieces, "read from end to end in pieces of one size, as uploads and checks do"
    ),
    _Check("unkept", passes.unkept, "the memory of its process did not grow by what it read"),
    _Check("unseen", passes.unseen, "its process was over before anybody looked at it"),
    _Check("writes", lambda event: event.writes),
    _Check("reads", lambda event: not event.writes),
    _Check("trains", lambda event: event.trains),
    _Check("no-libraries", lambda event: event.world.lacks_ml_libraries(event.makers)),
    _Check("nobody-known", who.is_unknown),
    _Check("weak-name", lambda event: event.is_weak),
    _Check("mapped", lambda event: event.mostly(lambda part: part.is_mapped)),
)

OF_SENT = frozenset(("runtime", "tool", "service", "recurs", "regular", "writes"))  # the others are about files
CHECKS_OF_SENT: tuple[_Check, ...] = (
    *(check for check in CHECKS if check.name in OF_SENT),
    _Check("sent", sends.place, "it was sent to {}, where object stores answer"),
    _Check("parts", sends.parts, "it went in {}, each answered, as uploads of large objects do"),
    _Check("answered", sends.answered, "more came back than answers to uploads are"),
    _Check("from-files", sends.from_files, "its process read as much meanwhile, as who uploads files does"),
    _Check("beside-files", sends.beside_files, "its process wrote as much to files just before or meanwhile"),
    _Check("small", sends.small, "it is little of what its process has in memory, as far as that was seen"),
    _Check("fetched", sends.fetched, "as much came from there when its job began, and no more of it since"),
    _Check("as-large", sends.as_large, "its program saved as much before, to files or in an earlier run"),
)
CHECKS_OF_FETCHED: tuple[_Check, ...] = (
    *(check for check in CHECKS if check.name in ("runtime", "tool", "service")),
    _Check("came", sends.place, "it came from {}, where object stores answer"),
    _Check("answers", fetches.answers, "it came in {}, each asked for by a small request"),
    _Check("asked", fetches.asked, "its process sent more meanwhile than requests are"),
    _Check("to-files", fetches.to_files, "its process wrote as much to files meanwhile, as downloads do"),
    _Check("not-first", fetches.not_first, "its process had received as much before, or saved"),
    _Check("read-again", fetches.saved_before, "an earlier run of the same program saved as much"),
)


def signals_of(event: Event) -> tuple[Signal, ...]:
    """Return the signals that hold of an event."""
    checks = CHECKS
    if event.candidate.is_sent:
        checks = CHECKS_OF_SENT if event.writes else CHECKS_OF_FETCHED
    answers = ((check, check.holds(event)) for check in checks)
    return tuple(_signal(check, answer) for check, answer in answers if answer)


def _signal(check: _Check, answer: Answer) -> Signal:
    found = answer if isinstance(answer, Found) else Found(answer if isinstance(answer, str) else "")
    return Signal(check.name, found.row or check.name, check.text.replace("{}", found.detail), found.strength)
