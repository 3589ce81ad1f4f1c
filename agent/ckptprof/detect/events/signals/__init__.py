"""The signals: each a predicate on an event in its context, with a name and a text."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ckptprof.detect.events.event_context import EventContext
from ckptprof.detect.events.signal_values import Signal, SignalMatch
from ckptprof.detect.events.signals import (
    copies,
    name_signals,
    pass_through,
    process_signals,
    recurrence,
    restore_signals,
    store_reads,
    store_writes,
    swapping,
)

CheckResult = bool | str | SignalMatch | None  # a text replaces {}


class _Check(NamedTuple):
    name: str
    predicate: Callable[[EventContext], CheckResult]
    text: str = ""  # empty: only a condition of combinations, without weight, never shown


CHECKS: tuple[_Check, ...] = (
    _Check("name", name_signals.match_framework, "files are named as {} names them"),
    _Check("format", name_signals.match_format, "its first bytes are those of {}"),
    _Check("step", name_signals.has_step, "its name has a training step: {}"),
    _Check("word", name_signals.has_word, "its name has a word for checkpoints"),
    _Check("runtime", process_signals.match_runtime, "{}"),
    _Check("computes", process_signals.computes, "its process computes between its writes"),
    _Check("tool", process_signals.is_tool, "its process is a tool that copies, packs or fetches"),
    _Check("service", process_signals.is_service, "its process is a tool that installs, builds, serves or logs"),
    _Check("renamed", process_signals.is_renamed, "written under a temporary name, then renamed"),
    _Check("appends", process_signals.is_appended, "it is appended to, as logs are"),
    _Check("random", process_signals.is_random_access, "small writes here and there in its files, as databases do"),
    _Check("recurs", recurrence.match_recurrence, "the job wrote similar files before ({})"),
    _Check("regular", recurrence.period_text, "it recurs every {} s, with pauses between"),
    _Check("overwrites", recurrence.overwrites, "it overwrites what was written before"),
    _Check("rotates", recurrence.rotates, "its job deletes older files of this kind"),
    _Check("resumed", recurrence.was_resumed, "a later run of the same program resumed from the last one"),
    _Check("shards", recurrence.is_numbered_onwards, "numbered pieces that only continue counting, as data sets do"),
    _Check("read-back", restore_signals.is_read_back, "these files were observed being saved"),
    _Check("read-again", restore_signals.is_read_by_later_run, "an earlier run of the same program wrote it"),
    _Check(
        "resumes",
        restore_signals.is_resumed_from,
        "the last of that run's files in even periods, and the only one read",
    ),
    _Check(
        "amid",
        restore_signals.is_read_during_save,
        "its process read it during a save, to average, merge, check or strip",
    ),
    _Check(
        "handed", restore_signals.is_handed_over, "processes started later pass it to the one that trains, as samples"
    ),
    _Check("feeds", restore_signals.is_read_as_data_set, "files of one shape in a row or again, as data sets are read"),
    _Check("data", name_signals.has_data_word, "its name has a word for data sets or results"),
    _Check("place", name_signals.is_in_cache_or_package, "it is in a place of caches, packages or databases"),
    _Check("foreign", name_signals.match_foreign, "it is {}"),
    _Check("swapped", swapping.is_swapped, "its process reads and rewrites it again and again, as swapped data"),
    _Check("received", pass_through.is_received, "as much was received over the network at the same time"),
    _Check("downloaded", name_signals.is_downloaded, "its place or name is that of downloads"),
    _Check("copies", copies.match_copy, "{}"),
    _Check("sent-on", pass_through.is_sent_on, "its process sent as much to an object store's port at the same time"),
    _Check(
        "straight",
        pass_through.reads_even_pieces,
        "read from end to end in pieces of one size, as uploads and checks do",
    ),
    _Check("unkept", pass_through.is_not_retained, "the memory of its process did not grow by the bytes read"),
    _Check("unseen", pass_through.is_process_unobserved, "its process ended before it was polled"),
    _Check("writes", lambda event: event.writes),
    _Check("reads", lambda event: not event.writes),
    _Check("trains", lambda event: event.is_training),
    _Check("no-libraries", lambda event: event.world.has_no_ml_library(event.producers)),
    _Check("nobody-known", process_signals.is_process_unknown),
    _Check("weak-name", lambda event: event.has_weak_name),
    _Check("mapped", lambda event: event.holds_for_most_bytes(lambda part: part.is_mapped)),
)

SHARED_WITH_SENT = frozenset(
    ("runtime", "tool", "service", "recurs", "regular", "writes")
)  # the others are about files
SENT_CHECKS: tuple[_Check, ...] = (
    *(check for check in CHECKS if check.name in SHARED_WITH_SENT),
    _Check("sent", store_writes.endpoint_text, "it was sent to {}, a port of object stores"),
    _Check("parts", store_writes.part_text, "it went in {}, each answered, as uploads of large objects do"),
    _Check("answered", store_writes.is_answered_at_length, "more came back than the answers to uploads"),
    _Check("from-files", store_writes.is_read_from_files, "as much was read at the same time, as by uploads of files"),
    _Check("beside-files", store_writes.is_also_written_to_files, "as much was written to files just before or then"),
    _Check("small", store_writes.is_small_of_memory, "it is little of its process's memory, as far as observed"),
    _Check("fetched", store_writes.was_fetched, "as much came from there when its job started, and not again since"),
    _Check(
        "as-large", store_writes.is_as_large_as_state, "its program saved as much before, to files or in an earlier run"
    ),
)
FETCHED_CHECKS: tuple[_Check, ...] = (
    *(check for check in CHECKS if check.name in ("runtime", "tool", "service")),
    _Check("came", store_writes.endpoint_text, "it came from {}, a port of object stores"),
    _Check("answers", store_reads.came_in_answers, "it came in {}, each asked for by a small request"),
    _Check("asked", store_reads.sent_too_much, "its process sent more than requests at the same time"),
    _Check("to-files", store_reads.wrote_files, "its process wrote as much to files at the same time, as downloads do"),
    _Check("not-first", store_reads.received_before, "its process had received as much before, or had saved"),
    _Check("read-again", store_reads.saved_before, "an earlier run of the same program saved as much"),
)


def signals_of(event: EventContext) -> tuple[Signal, ...]:
    """Return the signals that are true for an event."""
    checks = CHECKS
    if event.candidate.is_sent:
        checks = SENT_CHECKS if event.writes else FETCHED_CHECKS
    answers = ((check, check.predicate(event)) for check in checks)
    return tuple(_signal(check, answer) for check, answer in answers if answer)


def _signal(check: _Check, answer: CheckResult) -> Signal:
    match = answer if isinstance(answer, SignalMatch) else SignalMatch(answer if isinstance(answer, str) else "")
    return Signal(check.name, match.row or check.name, check.text.replace("{}", match.detail), match.strength)
