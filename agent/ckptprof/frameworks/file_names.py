"""Parses the path of a file: its framework, step and rank, and the checkpoint to which it belongs.

The model. A path is read from the file upwards. Marks of temporary names are removed first, so that a file has the same
properties before and after its rename. Then:
1. Framework: the first entry of `table` whose mark matches the file name (and its folder, if it requires that). Marks
   are indexed by file ending, since every file of every process is parsed.
2. Step: from the mark, else from the words of the file name (`step_500`), else from its folders, at most four up.
3. Checkpoint: the folder of the framework or of the step; without one, the folder of the file with # and its step.
   Folders of single ranks are skipped, so that the files of all ranks share one `directory`.
4. Words: hints of checkpoints, of state, of data sets, of formats that contain no model.

Invariant: `directory` is equal for all files of one checkpoint, and if `certain`, differs between two checkpoints of a
job without regard to time.

Example: /out/step_500/rank_1/model.pt.tmp is torch.save, step 500, rank 1, directory /out/step_500, certain, temporary.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache

from ckptprof.frameworks import name_words
from ckptprof.frameworks.file_formats import identify_format
from ckptprof.frameworks.framework_entry import FilePattern, Framework
from ckptprof.frameworks.framework_table import BY_NAME, FRAMEWORKS

_MAX_DIGITS = 12  # of a counter; a longer number is a hash, a date, or an attempt to overflow an integer
_MAX_DEPTH = 64  # folders of a path that are parsed, from the deepest
_DIGIT = re.compile(r"\d", re.ASCII)
_NUMBER = re.compile(r"\d+")
_STEP_DEPTH = 4  # how far above a file a folder may have its step


@dataclass(frozen=True, slots=True)
class FileName:
    """Facts that the path of a file shows: framework, step, rank and so on."""

    framework: Framework | None
    step: int | None
    rank: int | None
    directory: str  # shared by the files of one checkpoint; with # and the step if only the file has one
    file_directory: str  # its folder, by its final name; of chunks the folder of all of them
    is_certain: bool  # the directory has a step or is the framework's own: it alone distinguishes saves
    hint: bool  # a word for checkpoints is in it
    data: bool  # a word for data sets or results is in it
    state: bool  # a word for state that a restart needs is in the name of the file
    model_output: bool  # named as the output of a model, and not as state; both may have a step or a rhythm
    # a log, a database, an archive: no checkpoint, unless its first bytes are those of its framework
    never_checkpoint: bool
    temporary: bool
    commit: bool  # its appearance completes a checkpoint
    in_progress: bool = False  # it exists from before the first byte until the checkpoint is complete
    alias: bool = False  # the name is reused for each save: last.ckpt, best.pt, latest
    staging: bool = False  # named by Python's tempfile: copied or renamed to its place later
    world: int | None = None  # number of ranks, from the name
    piece: tuple[int, int] | None = None  # its number, and the number of files of its kind, from the name

    def is_alias_of(self, own: FileName) -> bool:
        """Whether it is an alias (`latest`) of a checkpoint that has one of its `own` names, with a step."""
        return self.alias and self.step is None and own.step is not None


_shared_name = lru_cache(maxsize=256)(lambda name: name)  # thousands of files of a folder have equal ones


@dataclass(frozen=True, slots=True)
class _FolderName:
    path: str  # without the marks of temporary names
    directories: tuple[tuple[str, int | None, re.Pattern[str] | None], ...]  # the deepest first
    steps: tuple[tuple[str, int], ...]  # the folders with a step, of any framework, the deepest first
    rank: int | None
    shared_directory: str  # the path without folders of single ranks at its end
    hint: bool  # in its last two parts
    data: bool  # in its last part
    model_output: bool  # likewise


def _union(found: Iterable[re.Pattern[str]]) -> re.Pattern[str]:
    flat = ("(?:" + re.sub(r"\(\?P<\w+>", "(?:", pattern.pattern) + ")" for pattern in found)
    return re.compile("|".join(dict.fromkeys(flat)) or r"(?!)")


_Marks = tuple[tuple[Framework, FilePattern], ...]
_ENDING = re.compile(r"\\\.(?:(\w+)|\(\?:(\w+(?:\|\w+)*)\))$")  # an expression that ends in \.word or \.(?:word|word)


def _possible_endings(pattern: re.Pattern[str]) -> tuple[str, ...] | None:
    """List endings of which any matching name has one; None: it may have any."""
    if re.sub(r"\((?:[^()]|\([^()]*\))*\)", "", pattern.pattern).count("|"):  # the whole is a choice
        return None
    found = _ENDING.search(pattern.pattern)
    return None if found is None else tuple((found[1] or found[2]).split("|"))


def _index_by_ending(
    marks: _Marks,
) -> tuple[dict[str, tuple[re.Pattern[str], _Marks]], tuple[re.Pattern[str], _Marks]]:
    known = {ending for _, mark in marks for ending in _possible_endings(mark.file) or ()}

    def of(ending: str | None) -> tuple[re.Pattern[str], _Marks]:
        fitting = tuple(
            pair for pair in marks if ending in (found := _possible_endings(pair[1].file) or (ending,)) and found
        )
        return _union(mark.file for _, mark in fitting), fitting

    return {ending: of(ending) for ending in sorted(known)}, of(None)


_MARKS: _Marks = tuple((framework, mark) for framework in FRAMEWORKS for mark in framework.files)
_BY_ENDING, _ENDLESS = _index_by_ending(_MARKS)
_COMMITS = tuple(mark for framework in FRAMEWORKS for mark in framework.commit)
_IN_PROGRESS_MARKERS = tuple(mark for framework in FRAMEWORKS for mark in framework.in_progress)
_DIRECTORIES = tuple(directory for framework in FRAMEWORKS for directory in framework.directories)
_ANY_COMMIT = _union(mark.file for mark in _COMMITS)
_ANY_DIRECTORY = _union(directory.folder for directory in _DIRECTORIES)
_BARE_DIRECTORIES = frozenset(directory.bare for directory in _DIRECTORIES if directory.bare is not None)
_TEMPORARY = _union([name_words.TEMPORARY, *(one.mark for framework in FRAMEWORKS for one in framework.temporary)])
_TEMPORARY_OF_FRAMEWORKS = _union(one.mark for framework in FRAMEWORKS for one in framework.temporary)
_TEMPORARY_WORDS = [one.word for framework in FRAMEWORKS for one in framework.temporary]
_MAYBE_TEMPORARY = (
    *name_words.MAYBE_TEMPORARY,
    *(word for word in _TEMPORARY_WORDS if not any(known in word for known in name_words.MAYBE_TEMPORARY)),
)


@lru_cache(maxsize=2048)
def parse_name(path: str) -> FileName:
    """Parse an absolute path."""
    above, _, file_part = path.rpartition("/")
    place = _parse_folder(above)
    file, temporary = _strip_temporary(file_part)
    framework, groups, shared_directory = _framework(place, file)
    commit = _ANY_COMMIT.fullmatch(file) is not None and _matches_any(_COMMITS, place.path, file)
    own_step = _number(groups, "step")
    rank = _rank(groups, place, file)
    stem = name_words.PART_NUMBER.sub("", file)
    if own_step is None and not name_words.PART.search(stem):
        own_step = step_of(stem)
    directory, step, certain = _directory(shared_directory, place.path, file, own_step)
    if step is None and not certain:
        step = _loose_step(stem)
        step = None if step == rank else step
    hint_in_file = name_words.has_checkpoint_word(file)
    hint = hint_in_file or place.hint or (certain and name_words.has_checkpoint_word(directory.rpartition("/")[2]))
    in_step = certain and "#" not in directory and step is not None
    doubtful = framework is not None and framework.doubtful is not None and bool(framework.doubtful.search(file))
    weak = framework is None or framework.weak
    state = name_words.has_state_word(file)
    data = (place.data and not hint_in_file) or name_words.has_data_word(
        stem if hint_in_file else file, in_step=in_step
    )
    yielded = not state and (place.model_output or (data and name_words.has_output_word(stem, in_step=in_step)))
    found = FileName(
        framework=framework,
        step=step,
        rank=rank,
        directory=directory,
        file_directory=shared_directory if groups.get("below") else place.path,
        is_certain=certain,
        hint=hint,
        data=weak and (data or yielded),
        state=state,
        model_output=weak and yielded,
        never_checkpoint=(framework is None or doubtful)
        and name_words.is_other_format(f"{place.path}/{file}", has_evidence=hint and not doubtful),
        temporary=temporary,
        commit=commit,
        in_progress=is_in_progress_marker(path) if temporary else False,
        alias=name_words.ALIAS.search(file) is not None
        or (certain and name_words.ALIAS.search(directory.rpartition("/")[2]) is not None),
        staging=name_words.STAGING.match(file_part) is not None,
        world=_number(groups, "world"),
        piece=_piece(groups, file),
    )
    shared: FileName = _shared_name(found)
    return shared


def final_path(path: str) -> str:
    """Remove the marks of temporary names: the final path of a file."""
    above, _, file_part = path.rpartition("/")
    return f"{_parse_folder(above).path}/{_strip_temporary(file_part)[0]}"


def is_in_progress_marker(path: str) -> bool:
    """Whether a file of this name exists while a checkpoint is written, and is deleted when that is complete."""
    folder, _, file = path.rpartition("/")
    return _matches_any(_IN_PROGRESS_MARKERS, folder, file)


def is_temporary_of_framework(path: str) -> bool:
    """Whether the file name has a mark of temporary names of a known framework."""
    return _TEMPORARY_OF_FRAMEWORKS.search(path.rpartition("/")[2]) is not None


def _matches_any(marks: tuple[FilePattern, ...], folder: str, file: str) -> bool:
    return any(mark.file.fullmatch(file) and (mark.inside is None or mark.inside.search(folder)) for mark in marks)


def _number(groups: dict[str, str | None], name: str) -> int | None:
    value = groups.get(name)
    return int(value) if value and len(value) <= _MAX_DIGITS else None


def _piece(groups: dict[str, str | None], file: str) -> tuple[int, int] | None:
    """Return (number, total): the rank, where the framework's names have the number of ranks, else `2-of-8`."""
    number, count = _number(groups, "rank"), _number(groups, "world")
    if number is None or count is None:
        found = name_words.PIECE.search(file)
        if found is None:
            return None
        number, count = int(found[1]), int(found[2])
    return (number, count) if number <= count else None


def _may_be_temporary(path: str) -> bool:
    lower = path.lower()
    return any(word in lower for word in _MAYBE_TEMPORARY)


def _strip_temporary(part: str) -> tuple[str, bool]:
    """Remove the marks of a temporary name from one part of a path; the flag says whether there were any."""
    settled = _TEMPORARY.sub("", part) if _may_be_temporary(part) else part
    if settled == part:
        return part, False
    return settled.rstrip(".") or part, True  # step_500..tmp


@lru_cache(maxsize=2048)
def _parse_folder(folder: str) -> _FolderName:
    parts = folder.split("/")
    if _may_be_temporary(folder):
        parts = [_strip_temporary(part)[0] for part in parts]
    directories: list[tuple[str, int | None, re.Pattern[str] | None]] = []
    steps: list[tuple[str, int]] = []
    rank = None
    shared_directory = len(parts)
    for end in range(len(parts), max(1, len(parts) - _MAX_DEPTH), -1):
        part = parts[end - 1]
        if _DIGIT.search(part) is None and part not in _BARE_DIRECTORIES:
            continue
        is_known = _ANY_DIRECTORY.fullmatch(part) is not None
        count = _step_of_folder(part, parts[end - 2]) if len(parts) - end < _STEP_DEPTH else None
        if is_known or count is not None:
            path = "/".join(parts[:end])
            directories += [(path, *found) for found in _directories(part)] if is_known else []
            steps += [(path, count)] if count is not None else []
        if name_words.RANK_FOLDER.fullmatch(part):
            shared_directory = end - 1 if shared_directory == end else shared_directory
        if rank is None and len(parts) - end < _STEP_DEPTH and (found := name_words.RANK.search(part)):
            rank = int(found[1])
    return _FolderName(
        path="/".join(parts),
        directories=tuple(directories),
        steps=tuple(steps),
        rank=rank,
        shared_directory="/".join(parts[:shared_directory]),
        hint=any(name_words.has_checkpoint_word(part) for part in parts[-2:]),
        data=name_words.is_data_folder(parts[-1]),
        model_output=name_words.is_output_folder(parts[-1]),
    )


def _directories(part: str) -> list[tuple[int | None, re.Pattern[str] | None]]:
    """List (step, required path below) of the matching folders; one without a condition is enough."""
    found: dict[tuple[int | None, re.Pattern[str] | None], None] = {}
    for directory in _DIRECTORIES:
        matched = directory.folder.fullmatch(part)
        if matched is not None:
            found[_number(matched.groupdict(), "step"), directory.below] = None
    ranked = sorted(found, key=lambda pair: (pair[1] is not None, pair[0] is None))
    return ranked if ranked[0][1] is not None else ranked[:1]


def _framework(place: _FolderName, file: str) -> tuple[Framework | None, dict[str, str | None], str]:
    """Find the framework, the groups of its mark, and the folder of the whole checkpoint, if the mark has it."""
    any_of_them, marks = _BY_ENDING.get(file.rpartition(".")[2], _ENDLESS)
    if any_of_them.fullmatch(file) is None:
        return None, {}, place.shared_directory
    for framework, mark in marks:
        found = mark.file.fullmatch(file)
        if found is None:
            continue
        if mark.inside is None:
            return framework, found.groupdict(), place.shared_directory
        inside = mark.inside.search(place.path)
        if inside is not None:
            groups = inside.groupdict() | {name: text for name, text in found.groupdict().items() if text is not None}
            below = inside.start("below") if groups.get("below") else -1
            return framework, groups, place.path[:below] if below >= 0 else place.shared_directory
    return None, {}, place.shared_directory


def _directory(shared_directory: str, folder: str, file: str, own_step: int | None) -> tuple[str, int | None, bool]:
    """Find (directory, step, certain): the folder of a framework, or with a step, else folder and step of the file."""
    place = _parse_folder(shared_directory)
    found = None
    for path, step, below in place.directories:
        if below is not None and below.search(f"{folder}/{file}"[len(path) + 1 :]) is None:
            continue
        if found is None or (step is not None and step == found[1]):  # the same step further up: one save
            found = (path, step)
    if found is not None:
        path, step = found
        return (
            _folder_across_ranks(path, step if step is not None else own_step),
            step if step is not None else own_step,
            True,
        )
    for path, step in place.steps:
        if own_step in (None, step):
            return _folder_across_ranks(path, step), step, True
    if own_step is not None:
        return f"{_parse_folder(shared_directory).shared_directory}#{own_step}", own_step, True
    return shared_directory, None, False


def _folder_across_ranks(path: str, step: int | None) -> str:
    above, _, _ = path.rpartition("/")
    if step is None or name_words.RANK_FOLDER.fullmatch(above.rpartition("/")[2]) is None:
        return path
    return f"{above.rpartition('/')[0]}#{step}"


def _rank(groups: dict[str, str | None], place: _FolderName, file: str) -> int | None:
    named = _number(groups, "rank")
    if named is not None:
        return named
    from_one = _number(groups, "rank1")
    if from_one:
        return from_one - 1
    found = name_words.RANK.search(file)
    if found is None and name_words.has_checkpoint_word(file):
        found = name_words.SHARD.search(file)
    return int(found[1]) if found is not None else place.rank


def _step_of_folder(part: str, above: str) -> int | None:
    """Step in the name of a folder; a bare number counts only in a folder of checkpoints."""
    if part.isascii() and part.isdigit():
        return int(part) if len(part) <= _MAX_DIGITS and name_words.STEP_FOLDERS.fullmatch(above) else None
    return step_of(part)


def step_of(part: str) -> int | None:
    """Find the number that counts training in one part of a path; None if there is none."""
    found = name_words.STEP_WORDS_FIRST.search(part) or name_words.STEP.search(part)
    return int(found[1]) if found else None


def _loose_step(stem: str) -> int | None:
    """Find the only number of a name, before its first dot, unless it numbers a part, or is a decimal (`acc_97.3`)."""
    named = name_words.NUMBER_OF_MODEL.match(stem)
    if named is not None and not name_words.PART.search(stem):
        return int(named[1] or named[2])
    first = stem if stem.startswith(".") else stem.partition(".")[0]
    if name_words.PART.search(first):
        return None
    if name_words.DECIMAL.match(stem, len(first) - 1):
        return None
    numbers = name_words.ANY_NUMBER.findall(first)
    return int(numbers[0]) if len(numbers) == 1 else None


def path_shape(path: str) -> str:
    """Replace every number of the path by #, so that the saves of a series have one shape."""
    return _NUMBER.sub("#", "/".join(path.rsplit("/", 2)[-2:]))


def identify_framework(files: Iterable[tuple[str, int, bytes | None]], programs: Collection[str] = ()) -> str | None:
    """Identify the framework by which a checkpoint's files are named; None: no name matches.

    `files`: (path, bytes transferred, first bytes or None); `programs`: the names of the programs that transferred
    them. Of the matching frameworks a trainer wins over a library, and that over a format; of equals, the one with most
    bytes. A name contradicted by the file's first bytes does not count.
    """
    bytes_by_framework: dict[str, int] = {}
    for path, size, magic in files:
        entry = parse_name(path).framework
        if entry is None or (magic and entry.formats and identify_format(magic, path) not in entry.formats):
            continue
        bytes_by_framework[entry.name] = bytes_by_framework.get(entry.name, 0) + size + 1
    if not bytes_by_framework:
        return None
    found = max(bytes_by_framework, key=lambda name: (BY_NAME[name].layer, bytes_by_framework[name]))
    for framework in FRAMEWORKS:
        expression = framework.programs
        if expression is not None and found in framework.extends and any(map(expression.match, programs)):
            return framework.name
    return found
