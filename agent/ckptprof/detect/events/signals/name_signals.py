"""Names, first bytes and places of the files, as evidence for a checkpoint or against it."""

from __future__ import annotations

from ckptprof.detect.events.event_context import EventContext
from ckptprof.detect.events.signal_values import SignalMatch
from ckptprof.detect.events.signals.process_signals import is_steady
from ckptprof.detect.tolerances import CONCURRENT_NS, LITTLE_SHARE
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.frameworks.file_formats import (
    COMPRESSED,
    COMPRESSIONS,
    DUMPS,
    OTHER_ENDINGS,
    OTHER_MAGICS,
    TEXTS,
    identify_format,
)
from ckptprof.frameworks.file_names import is_temporary_of_framework
from ckptprof.frameworks.framework_table import evidence_weight
from ckptprof.frameworks.name_words import has_only_state_words
from ckptprof.frameworks.places import CACHES_OF_HUBS, NOT_OF_JOBS, UNFINISHED_DOWNLOADS
from ckptprof.frameworks.program_names import NUMERIC_RUNTIMES, TRAINING_RUNTIMES

_MODEL_FORMATS = ("torch-zip", "gguf", "keras", "tensorizer")


def match_framework(event: EventContext) -> SignalMatch | None:
    """Return the framework of its file names, with the weight of its entry."""
    name = event.framework
    return SignalMatch(name, strength=evidence_weight(name)) if name is not None else None


def match_format(event: EventContext) -> SignalMatch | None:
    """Return the format of the first bytes of most of it."""
    formats: dict[str, int] = {}
    for part in event.parts:
        kind = identify_format(part.fact.magic, part.path) if part.fact else None
        if kind is not None and kind != COMPRESSED:
            formats[kind] = formats.get(kind, 0) + part.bytes
    if not formats:
        return None
    best = max(formats, key=lambda kind: formats[kind])
    group = best if best == "safetensors" else "model" if best in _MODEL_FORMATS else "data"
    return SignalMatch(best, row=f"format-{group}")


def has_step(event: EventContext) -> str | None:
    """Return the training step in its name."""
    step = event.candidate.step
    return str(step) if step is not None and _has_hint(event) else None


def has_word(event: EventContext) -> bool:
    """Word for checkpoints in its name, and no step."""
    return event.candidate.step is None and _has_hint(event)


def has_data_word(event: EventContext) -> bool:
    """Word for data sets or results in its name."""
    return event.holds_for_most_bytes(lambda part: part.name.data)


def is_in_cache_or_package(event: EventContext) -> bool:
    """Location in a cache, a package or a database."""
    return event.holds_for_most_bytes(lambda part: NOT_OF_JOBS.search(part.path))


def match_foreign(event: EventContext) -> SignalMatch | None:
    """Return the format in its suffix or first bytes, if that is no model's.

    Text is a model's if it was saved, or comes steadily; but libraries for training write text to trace themselves.
    """
    if not event.holds_for_most_bytes(_foreign_kind):
        return None
    part, kind = next((part, kind) for part in event.parts if (kind := _foreign_kind(part)))
    loaded = event.world.runtimes(event.producers) or frozenset()
    may_be_state = part.path.endswith(TEXTS) and not part.name.data and not loaded & TRAINING_RUNTIMES
    if may_be_state and (is_steady(event) or event.known.transfers.saved.contains(part.path)):
        return None
    return SignalMatch(kind, "text" if may_be_state else "")


def is_downloaded(event: EventContext) -> bool:
    """Location in a model hub's cache, or the name of an unfinished download while as much came by the network.

    Saves have such names, too, until they are complete: those of trainers, or of processes with numpy that count steps.
    """
    runtimes = event.world.runtimes(event.processes) or frozenset()
    counts_steps = event.candidate.step is not None and bool(runtimes & NUMERIC_RUNTIMES)
    span = event.start_ns - CONCURRENT_NS, event.end_ns
    received = event.world.devices.received_bytes(*span, event.largest_paths[0])
    is_local = received is not None and received < LITTLE_SHARE * event.bytes

    def is_download(part: Transfer) -> bool:
        paths = (part.path, part.earlier_path or "")
        if any(map(CACHES_OF_HUBS.search, paths)):
            return True
        if event.is_training or counts_steps or is_local or (part.name.hint and is_temporary_of_framework(paths[1])):
            return False
        return any(map(UNFINISHED_DOWNLOADS.search, paths))

    return event.writes and event.holds_for_most_bytes(is_download)


def _has_hint(event: EventContext) -> bool:
    return event.holds_for_most_bytes(lambda part: part.name.hint and not part.name.model_output)


def _foreign_kind(part: Transfer) -> str | None:
    path = part.path
    if part.name.commit:
        return None
    if DUMPS.search(path):
        return "a dump of memory"
    found = OTHER_ENDINGS.search(path)
    named = has_only_state_words(part.file_name.rpartition(".")[0]) or (part.name.hint and part.name.step is None)
    if found is not None and not (named and path.endswith(TEXTS)):
        return f"a file of another kind, {found[0][:20]!r}"
    magic = (part.fact.magic if part.fact is not None else None) or b""
    for offset, mark, kind in OTHER_MAGICS:
        if magic.startswith(mark, offset):
            ending = COMPRESSIONS.get(kind)
            if ending is None:
                return kind
            named = part.name.framework is not None or (part.name.hint and path.endswith(ending))
            return None if named else kind
    return None
