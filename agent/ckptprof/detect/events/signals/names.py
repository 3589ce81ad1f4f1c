"""Names, first bytes and places of the files, as evidence for a checkpoint or against it."""

from __future__ import annotations

from collections.abc import Callable

from ckptprof.detect.events.event import Event
from ckptprof.detect.events.signal import Found
from ckptprof.detect.transfers.model.transfer import Transfer
from ckptprof.frameworks.formats import COMPRESSED, COMPRESSIONS, DUMPS, OTHER_ENDINGS, OTHER_MAGICS, TEXTS, file_format
from ckptprof.frameworks.names import is_temporary_of_framework
from ckptprof.frameworks.places import CACHES_OF_HUBS, NOT_OF_JOBS, UNFINISHED_DOWNLOADS
from ckptprof.frameworks.programs import NUMERIC_RUNTIMES
from ckptprof.frameworks.table import weight_of
from ckptprof.frameworks.words import is_state_alone

_FORMAT_ROWS = {
    "safetensors": "format-safetensors",
    "torch-zip": "format-model",
    "gguf": "format-model",
    "keras": "format-model",
}


def named(event: Event) -> Found | None:
    """Return the framework of its file names, with the weight of its entry."""
    return Found(event.framework, strength=weight_of(event.framework)) if event.framework is not None else None


def formatted(event: Event) -> Found | None:
    """Return the format of the first bytes of most of it."""
    formats: dict[str, int] = {}
    for part in event.parts:
        kind = file_format(part.fact.magic, part.path) if part.fact else None
        if kind is not None and kind != COMPRESSED:
            formats[kind] = formats.get(kind, 0) + part.bytes
    if not formats:
        return None
    best = max(formats, key=lambda kind: formats[kind])
    return Found(best, row=_FORMAT_ROWS.get(best, "format-data"))


def has_step(event: Event) -> str | None:
    """Return the training step in its name."""
    step = event.candidate.step
    return str(step) if step is not None and _is_hinted(event) else None


def has_word(event: Event) -> bool:
    """Return whether its name has a word for checkpoints, and no step."""
    return event.candidate.step is None and _is_hinted(event)


def is_data(event: Event) -> bool:
    """Return whether its name has a word for data sets or results."""
    return _mostly(event, lambda part: part.name.data)


def is_placed(event: Event) -> bool:
    """Return whether it is in a place of caches, packages or databases."""
    return _mostly(event, lambda part: NOT_OF_JOBS.search(part.path))


def is_foreign(event: Event) -> str | None:
    """Return the format in its suffix or first bytes, if that is no model's."""
    if not _mostly(event, _other_format):
        return None
    return next(kind for part in event.largest if (kind := _other_format(part)))


def downloaded(event: Event) -> bool:
    """Return whether it is in a model hub's cache, or has a name of unfinished downloads.

    Saves have such names, too, until they are complete: those of trainers, or of processes with numpy that count steps.
    """
    runtimes = event.world.runtimes(event.processes) or frozenset()
    counts = event.candidate.step is not None and bool(runtimes & NUMERIC_RUNTIMES)

    def is_download(part: Transfer) -> bool:
        paths = (part.path, part.earlier_path or "")
        if any(map(CACHES_OF_HUBS.search, paths)):
            return True
        if event.trains or counts or (part.name.hint and is_temporary_of_framework(paths[1])):
            return False
        return any(map(UNFINISHED_DOWNLOADS.search, paths))

    return event.writes and _mostly(event, is_download)


def _is_hinted(event: Event) -> bool:
    return event.mostly(lambda part: part.name.hint and not part.name.yielded)


def _mostly(event: Event, is_such: Callable[[Transfer], object]) -> bool:
    total = sum(part.bytes for part in event.largest)
    return sum(part.bytes for part in event.largest if is_such(part)) * 2 > total


def _other_format(part: Transfer) -> str | None:
    path = part.path
    if part.name.commit:
        return None
    if DUMPS.search(path):
        return "a dump of memory"
    found = OTHER_ENDINGS.search(path)
    named = is_state_alone(part.file_name.rpartition(".")[0]) or (part.name.hint and part.name.step is None)
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
