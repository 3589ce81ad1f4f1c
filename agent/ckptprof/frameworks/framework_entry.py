"""The entry of a framework. To add one: a `Framework` in a file of `known/`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from ckptprof.frameworks.name_words import COMPRESSED_ENDING

PACKED = f"(?:{COMPRESSED_ENDING})?"  # after the ending of a format: `pickle.dump` into `gzip.open`, `joblib.dump`


class Layer(IntEnum):
    """Precedence of names: a trainer over the library that it saves with, that over the format."""

    FORMAT = 1  # torch.save, safetensors, numpy: used by any program
    LIBRARY = 2  # PyTorch DCP, PEFT, TensorFlow: a layout of its own
    ENGINE = 3  # DeepSpeed, accelerate, Orbax: whole checkpoints, called by others
    TRAINER = 4  # the Hugging Face Trainer, Lightning, Megatron: it decides when and where


@dataclass(frozen=True)
class FilePattern:
    """A file named as one framework names it.

    `file` must match the whole name of the file, `inside` must be found in the path of its folder. Named groups are
    `step`, `rank`, `rank1` (counted from one) and `world` (the number of ranks); the group `below` of `inside` is the
    part of the folder below the folder of the whole checkpoint.
    """

    file: re.Pattern[str]
    inside: re.Pattern[str] | None = None


@dataclass(frozen=True)
class FolderPattern:
    """The name of a folder with one whole checkpoint; if not specific, `below` must be found in the path below."""

    folder: re.Pattern[str]
    below: re.Pattern[str] | None = None
    bare: str | None = None  # the name that it may have without any digit


@dataclass(frozen=True)
class TemporaryPattern:
    """A pattern of temporary names, searched in one part of a path; what it matches is not in the final name.

    `word`, in small letters, is part of each name that `mark` matches: most names are rejected by a search for words.
    """

    word: str
    mark: re.Pattern[str]


@dataclass(frozen=True)
class RequiredFile:
    """A required file: without `name`, files of the same folder that match `of` are no checkpoint."""

    of: re.Pattern[str]
    name: str


@dataclass(frozen=True)
class CodePatterns:
    """Files of Python code in stacks: expressions for the ends of their paths, without `.py`."""

    saves: tuple[str, ...] = ()  # a thread that is in one saves
    background: tuple[str, ...] = ()  # a thread that is in one saves while training continues
    at_once: tuple[str, ...] = ()  # functions of those that save before they return
    writes: tuple[str, ...] = ()  # a thread whose deciding frame is in one writes to a file


@dataclass(frozen=True)
class Framework:
    """How one framework names, writes and reads its checkpoints; the comment above an entry gives the source."""

    name: str
    files: tuple[FilePattern, ...]
    layer: Layer = Layer.FORMAT  # `table` sets that of the file that it is in
    weight: float = 0.6  # of its names as evidence: 0.6 is certain; a name that data sets have, too, has little weight
    formats: frozenset[str] = frozenset()  # formats of its files by their first bytes, if known; empty: any
    directories: tuple[FolderPattern, ...] = ()
    commit: tuple[FilePattern, ...] = ()  # the file whose appearance completes it
    in_progress: tuple[FilePattern, ...] = ()  # the file that exists from before the first byte until it is complete
    temporary: tuple[TemporaryPattern, ...] = ()
    companions: tuple[RequiredFile, ...] = ()
    doubtful: re.Pattern[str] | None = None  # names that others use, too: the first bytes decide
    magics: tuple[tuple[bytes, str], ...] = ()  # first bytes, and the format that they show
    code: CodePatterns = CodePatterns()
    launchers: tuple[str, ...] = ()  # programs, scripts or modules, whose children are the ranks of one job
    programs: re.Pattern[str] | None = None  # matches the name of a program that is this framework's own
    libraries: tuple[str, ...] = ()  # that a job with such checkpoints has: a remedy may name them
    extends: tuple[str, ...] = ()  # frameworks whose names it uses: the program identifies it
    copies_whole: bool = False  # further names (last, best) are written again in full

    @property
    def weak(self) -> bool:
        """Data sets and results have such names, too."""
        return self.weight < 0.5


def file_pattern(file: str, inside: str | None = None) -> FilePattern:
    """Make a mark with compiled expressions."""
    return FilePattern(re.compile(file), re.compile(inside) if inside is not None else None)


def folder_pattern(folder: str, below: str | None = None, bare: str | None = None) -> FolderPattern:
    """Make a directory with compiled expressions."""
    return FolderPattern(re.compile(folder), re.compile(below) if below is not None else None, bare)


def temporary_pattern(word: str, mark: str) -> TemporaryPattern:
    """Make a temporary with a compiled expression."""
    return TemporaryPattern(word, re.compile(mark))


def required_file(of: str, name: str) -> RequiredFile:
    """Make a companion with a compiled expression."""
    return RequiredFile(re.compile(of), name)
