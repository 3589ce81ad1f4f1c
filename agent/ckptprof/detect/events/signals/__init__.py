"""The signals: each a predicate on an event in its context, with a name and a text."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ckptprof.detect.events.event import Event
from ckptprof.detect.events.signal import Found, Signal
from ckptprof.detect.events.signals import copies, fetches, names, passes, reads, sends, series, swaps, who

Answer = bool | str | Found | None  # a text replaces {}


class _Check(NamedTuple):
    name: str
    holds: Callable[[Event], Answer]
    text: str = ""  # empty: only a condition of combinations, without weight, never shown


CHECKS: tuple[_Check, ...] = (
    _Check("name", names.named, "files are named as {} names them"),
    _Check("format", names.formatted, "its first bytes are those of {}"),
    _Check("step", names.has_step, "its name has a training step: {}"),
    _Check("word", names.has_word, "its name has a word for checkpoints"),
    _Check("runtime", who.runtime, "{}"),
    _Check("computes", who.computes, "its process computes between its writes"),
    _Check("tool", who.is_tool, "its process is a tool that copies, packs or fetches"),
    _Check("service", who.is_service, "its process is a tool that installs, builds, serves or logs"),
    _Check("renamed", who.renamed, "written under a temporary name, then renamed"),
    _Check("appends", who.appends, "it is appended to, as logs are"),
    _Check("random", who.random, "small writes here and there in its files, as databases do"),
    _Check("recurs", series.recurs, "the job wrote similar files before ({})"),
    _Check("regular", series.regular, "it recurs every {} s, with pauses between"),
    _Check("overwrites", series.overwrites, "it overwrites what was written before"),
    _Check("rotates", series.rotates, "its job deletes older files of this kind"),
    _Check("resumed", series.resumed, "a later run of the same program resumed from the last one"),
    _Check("shards", series.shards, "numbered pieces that only continue counting, as data sets do"),
    _Check("read-back", reads.read_back, "these files were observed being saved"),
    _Check("read-again", reads.read_again, "an earlier run of the same program wrote it"),
    _Check("resumes", reads.resumes, "the last of that run's files in even periods, and the only one read"),
    _Check("amid", reads.amid, "its process read it during a save, to average, merge, check or strip"),
    _Check("handed", reads.handed, "processes started later pass it to the one that trains, as samples"),
    _Check("feeds", reads.feeds, "files of one shape in a row or again, as data sets are read"),
    _Check("data", names.is_data, "its name has a word for data sets or results"),
    _Check("place", names.is_placed, "it is in a place of caches, packages or databases"),
    _Check("foreign", names.is_foreign, "it is {}"),
    _Check("swapped", swaps.swapped, "its process reads and rewrites it again and again, as swapped data"),
    _Check("received", passes.received, "as much was received over the network at the same time"),
    _Check("downloaded", names.downloaded, "its place or name is that of downloads"),
    _Check("copies", copies.copies, "{}"),
    _Check("sent-on", passes.sent_on, "its process sent as much to an object store's port at the same time"),
    _Check("uploads", passes.uploads, "a thread of the process that wrote it read it from end to end, as uploads do"),
    _Check(
        "straight", passes.reads_even_pieces, "read from end to end in pieces of one size, as uploads and checks do"
    ),
    _Check("unkept", passes.unkept, "the memory of its process did not grow by the bytes read"),
    _Check("unseen", passes.unseen, "its process ended before it was polled"),
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
    _Check("sent", sends.place, "it was sent to {}, a port of object stores"),
    _Check("parts", sends.parts, "it went in {}, each answered, as uploads of large objects do"),
    _Check("answered", sends.answered, "more came back than the answers to uploads"),
    _Check("from-files", sends.from_files, "its process read as much at the same time, as uploads of files do"),
    _Check("beside-files", sends.beside_files, "its process wrote as much to files just before or at the same time"),
    _Check("small", sends.small, "it is little of its process's memory, as far as observed"),
    _Check("fetched", sends.fetched, "as much came from there when its job started, and not again since"),
    _Check("as-large", sends.as_large, "its program saved as much before, to files or in an earlier run"),
)
CHECKS_OF_FETCHED: tuple[_Check, ...] = (
    *(check for check in CHECKS if check.name in ("runtime", "tool", "service")),
    _Check("came", sends.place, "it came from {}, a port of object stores"),
    _Check("answers", fetches.answers, "it came in {}, each asked for by a small request"),
    _Check("asked", fetches.asked, "its process sent more than requests at the same time"),
    _Check("to-files", fetches.to_files, "its process wrote as much to files at the same time, as downloads do"),
    _Check("not-first", fetches.not_first, "its process had received as much before, or had saved"),
    _Check("read-again", fetches.saved_before, "an earlier run of the same program saved as much"),
)


def signals_of(event: Event) -> tuple[Signal, ...]:
    """Return the signals that are true for an event."""
    checks = CHECKS
    if event.candidate.is_sent:
        checks = CHECKS_OF_SENT if event.writes else CHECKS_OF_FETCHED
    answers = ((check, check.holds(event)) for check in checks)
    return tuple(_signal(check, answer) for check, answer in answers if answer)


def _signal(check: _Check, answer: Answer) -> Signal:
    found = answer if isinstance(answer, Found) else Found(answer if isinstance(answer, str) else "")
    return Signal(check.name, found.row or check.name, check.text.replace("{}", found.detail), found.strength)
