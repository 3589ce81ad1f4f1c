"""What the path of a file says: its framework, its step, its rank, and which checkpoint it is a part of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from ckptprof.frameworks.knowledge import Framework
from ckptprof.frameworks.table import FRAMEWORKS

# a number that counts training, as people write it: step-500, ckpt_3, epoch=2-step=700, iter_0000500, checkpoint.12
_STEP = re.compile(
    r"(?:^|[^a-z])(?:global[-_]?steps?|steps?|iter(?:ation)?s?|updates?|ckpts?|checkpoints?|snapshots?|epochs?|ep)"
    r"[-_=.]{0,2}(\d{1,12})(?![\da-z])",
    re.IGNORECASE,
)
_STEP_WORDS_FIRST = re.compile(r"(?:step|iter|update)s?(?:ation)?[-_=.]{0,2}(\d{1,12})(?![\da-z])", re.IGNORECASE)
_PART = re.compile(r"(?:shard|part|rank|layer|chunk|-of-|mp_|pp_|tp_|dp_|expert|worker)", re.IGNORECASE)
_ANY_NUMBER = re.compile(r"(?:^|[-_=.])(\d{1,12})(?=$|[-_.])")
_TEMPORARY = re.compile(
    r"(?:\.tmp[A-Za-z0-9]*|\.temp|\.partial|\.part|\.incomplete|-unfinished|\.orbax-checkpoint-tmp[^/]*|~)$"
)
# words that people give to what they restore from
_HINT = re.compile(
    r"(?:^|[^a-z])(?:ckpts?|checkpoints?|snapshots?|models?|weights?|optim(?:izer)?s?|states?|params?|parameters?|steps?|"
    r"epochs?|iters?|iteration|best|last|latest|final|resume|trainer|ema|adapter|lora|actor|critic|policy)(?:$|[^a-z])",
    re.IGNORECASE,
)
# words that people give to what a model is trained on or what it yields
_DATA = re.compile(
    r"(?:^|[^a-z])(?:data|datasets?|dataloader|train|training|val|valid|validation|tests?|eval|shards?|tokens?|tokenized|"
    r"corpus|samples?|features?|embeddings?|cache|caches|images?|labels?|predictions?|outputs?|results?|batch(?:es)?|"
    r"memmap|mmap|arrow|parquet|preprocessed|profile|trace)(?:$|[^a-z])",
    re.IGNORECASE,
)
_NEVER = re.compile(
    r"\.(?:log|txt|csv|tsv|jsonl|out|err|db|sqlite3?|db-wal|wal|journal|arrow|parquet|tfevents[^/]*|lock|pid|sock|html|md|"
    r"png|jpe?g|mp4|wav|pyc?|so|o|a|c|h|rs|whl|deb|rpm|tar|gz|xz|zst|bz2|zip|core|pcap|nsys-rep|json\.gz|trace)"
    r"(?:\.\d+)?$|/events\.out\.tfevents\.|/core(?:\.\d+)?$",
    re.IGNORECASE,
)


WEAK = frozenset(("torch.save", "safetensors", "numpy"))  # data sets bear such names, too
_MAX_DIGITS = 12  # of a number that counts; a longer one is a hash, a date, or meant to overflow somebody's integer


@dataclass(frozen=True)
class Name:
    """What one path says."""

    framework: Framework | None
    step: int | None
    rank: int | None
    unit: str  # files of one checkpoint share it
    certain: bool  # the unit carries a step or the framework's own folder: no time need tell saves apart
    hint: bool  # a word for checkpoints is in it
    data: bool  # a word for data sets or results is in it
    never: bool  # a log, a database, an archive: no checkpoint whatever else speaks for it
    temporary: bool
    commit: bool


@lru_cache(maxsize=4096)
def read_name(path: str) -> Name:
    """Return what `path` (absolute) says."""
    temporary = _TEMPORARY.search(path) is not None or any(
        mark.search(path) for framework in FRAMEWORKS for mark in framework.temporary
    )
    plain = _plain(path)
    framework, groups = _framework(plain)
    folder, _, file = plain.rpartition("/")
    commit = any(mark.search(plain) for entry in FRAMEWORKS for mark in entry.commit)
    unit, step, certain = _unit(plain, folder, file)
    tail = "/".join(plain.split("/")[-3:])
    hint_in_file = _HINT.search(file) is not None
    data_in_folder = _DATA.search(folder.rpartition("/")[2]) is not None and not hint_in_file
    return Name(
        framework=framework,
        step=_number(groups, "step") if "step" in groups else step,
        rank=_number(groups, "rank"),
        unit=unit,
        certain=certain,
        hint=_HINT.search(tail) is not None,
        data=(framework is None or framework.name in WEAK) and (_DATA.search(file) is not None or data_in_folder),
        never=_NEVER.search(plain) is not None,
        temporary=temporary,
        commit=commit,
    )


def _number(groups: dict[str, str | None], name: str) -> int | None:
    value = groups.get(name)
    return int(value) if value and len(value) <= _MAX_DIGITS else None


def _plain(path: str) -> str:
    """Return the path without the marks of temporary names in any of its parts."""
    return "/".join(part if part.startswith(".tmp") else _TEMPORARY.sub("", part) or part for part in path.split("/"))


def _framework(path: str) -> tuple[Framework | None, dict[str, str | None]]:
    for framework in FRAMEWORKS:
        for expression in framework.files:
            found = expression.search(path)
            if found is not None:
                return framework, found.groupdict()
    return None, {}


def _unit(path: str, folder: str, file: str) -> tuple[str, int | None, bool]:
    """Return (unit, step, certain): the folder with a step, else folder and step of the file, else the folder."""
    parts = folder.split("/")
    for end in range(2, len(parts) + 1):
        place = "/".join(parts[:end])
        for framework in FRAMEWORKS:
            for expression in framework.unit:
                found = expression.search(place)
                if found is None or (framework.name == "orbax" and "ocdbt" not in path and "/_" not in path):
                    continue
                return place, _number(found.groupdict(), "step"), True
    stem = file.partition(".")[0] if not file.startswith(".") else file
    own = step_of(stem) if not _PART.search(stem) else None
    for end in range(len(parts), max(1, len(parts) - 3), -1):
        step = step_of(parts[end - 1])
        if step is not None and own in (None, step):
            return "/".join(parts[:end]), step, True
    if own is not None:
        return f"{folder}#{own}", own, True
    return folder, _loose_step(stem), False


def step_of(part: str) -> int | None:
    """Return the number that counts training in one part of a path; None if there is none."""
    found = _STEP_WORDS_FIRST.search(part) or _STEP.search(part)
    return int(found[1]) if found else None


def _loose_step(stem: str) -> int | None:
    """Return the only number in a name that does not look like a part of something."""
    if _PART.search(stem):
        return None
    numbers = _ANY_NUMBER.findall(stem)
    return int(numbers[0]) if len(numbers) == 1 else None


def shape(path: str) -> str:
    """Return the path with every number replaced, so that the saves of a series have the same shape."""
    return re.sub(r"\d+", "#", "/".join(path.split("/")[-2:]))


def file_format(magic: bytes | None, path: str) -> str | None:
    """Return the format that the first bytes of a file show; None if they are unknown or could not be read."""
    if not magic:
        return None
    if magic.startswith(b"PK\x03\x04"):
        if path.endswith(".npz"):
            return "npz"
        return "torch-zip" if not path.endswith((".zip", ".whl", ".jar", ".keras", ".docx", ".xlsx")) else "zip"
    if magic.startswith(b"\x93NUMPY"):
        return "npy"
    if magic[:4] == b"\x89HDF":
        return "hdf5"
    if len(magic) >= 10 and magic[8:10] in (b'{"', b"{}") and 0 < int.from_bytes(magic[:8], "little") < 100 << 20:
        return "safetensors"
    if magic[0] == 0x80 and magic[1:2] in (b"\2", b"\3", b"\4", b"\5"):
        return "pickle"
    return None
