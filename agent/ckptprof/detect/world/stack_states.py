"""What the Python stack of a training thread shows: whether it saves, waits, or trains."""

from __future__ import annotations

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import takewhile
from typing import Literal

from ckptprof.frameworks import code_patterns
from ckptprof_collectors.samples import StackSample

Frame = tuple[str, str, int]  # function, file, line
ThreadState = Literal[
    "saving", "named", "waiting", "training"
]  # named: in a function of the program that is named for a save

_INNERMOST_FRAMES = 8
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def main_frames(sample: StackSample) -> tuple[Frame, ...]:
    """Frames of the main thread, innermost first; empty if it was not sampled."""
    return next((thread.frames for thread in sample.threads if thread.tid == sample.pid), ())


def main_sleeps(sample: StackSample) -> bool:
    """Whether the main thread was sampled off the CPU."""
    return any(thread.tid == sample.pid and not thread.active for thread in sample.threads)


@lru_cache(maxsize=64)
def runs_library(frames: tuple[Frame, ...]) -> bool:
    """Whether any frame is in a library that saves."""
    return any(code_patterns.SAVES.search(file) for _, file, _ in frames)


def names_save(frames: tuple[Frame, ...]) -> bool:
    """Whether any function is named for a save."""
    return any(_words(function) & code_patterns.SAVE_WORDS for function, _, _ in frames)


def is_parked(frames: tuple[Frame, ...]) -> bool:
    """Whether the innermost frame waits for another thread or process, and not for data."""
    if not frames or not code_patterns.WAITS.search(frames[0][1]):
        return False
    return not any(code_patterns.FEEDS.search(file) for _, file, _ in frames)


def usual_depth(frames: tuple[Frame, ...], usual_stacks: list[tuple[Frame, ...]]) -> int:
    """Count the outermost frames that also occur outside of saves."""
    pairs = (zip(reversed(frames), reversed(other), strict=False) for other in usual_stacks)
    return max((sum(1 for _ in takewhile(lambda pair: pair[0][:2] == pair[1][:2], one)) for one in pairs), default=0)


def trains_elsewhere(frames: Sequence[Frame], usual_functions: AbstractSet[tuple[str, str]]) -> bool:
    """Whether any frame computes for training, or evaluates it: in a usual function, or by its name."""
    return any(
        (frame[:2] in usual_functions and _is_own_function(frame))
        or code_patterns.TRAINS.search(frame[1])
        or _words(frame[0]) & code_patterns.EVALUATION_WORDS
        for frame in frames
    )


def classify_thread(
    frames: tuple[Frame, ...], usual_stacks: list[tuple[Frame, ...]], *, sleeps: bool = False
) -> ThreadState | None:
    """Classify what the thread does; `usual_stacks`: its stacks outside saves. None: unknown.

    Words in names count only where the stack differs from a usual one: `train_and_checkpoint()` may run for ever. The
    innermost call decides: a training step that `save_in_background()` makes while it waits is training. A thread that
    `sleeps` off the CPU right in the save waits for it; in a function called by it, others may compute for it.
    """
    if not frames:
        return None
    if any(frames == other for other in usual_stacks):
        return "training"
    depth = usual_depth(frames, usual_stacks)
    special = frames[: len(frames) - depth]
    if special and _waits_for_background_save(special):
        return "waiting"
    usual = {frame[:2] for other in usual_stacks for frame in other if _is_own_function(frame)}
    library = runs_library(special)
    for frame in special:
        trains = code_patterns.TRAINS.search(frame[1]) or code_patterns.COMPUTES.search(frame[0])
        if frame[:2] in usual or (trains and not library):
            return "training"
        if code_patterns.SAVES.search(frame[1]):
            return "saving"
        if _words(frame[0]) & code_patterns.SAVE_WORDS and not code_patterns.RECOMPUTES.search(frame[1]):
            waits = code_patterns.WAITS.search(special[0][1]) or (sleeps and frame is special[0])
            return "saving" if waits else "named"
    if any(code_patterns.FEEDS.search(file) for _, file, _ in frames):
        return "training"
    functions = [function for function, file, _ in special if not code_patterns.RECOMPUTES.search(file)]
    if special and (
        code_patterns.WAITS.search(special[0][1])
        or any(_words(function) & code_patterns.WAIT_WORDS for function in functions[:4])
    ):
        return "waiting"
    return "training"


def saves_in_background(sample: StackSample) -> bool:
    """Whether any thread is in library code that saves in the background, and not synchronously."""
    return any(
        any(code_patterns.BACKGROUND.search(file) for _, file, _ in thread.frames)
        and not any(function.endswith(code_patterns.AT_ONCE) for function, _, _ in thread.frames)
        for thread in sample.threads
    )


def _waits_for_background_save(special: tuple[Frame, ...]) -> bool:
    """Whether it waits for a background save of a library, and is not in the call that started it."""
    for function, file, _ in special:
        if code_patterns.STARTS_SAVE.search(function):
            return False
        if code_patterns.SAVES.search(file) and _words(function) & code_patterns.WAIT_WORDS:
            return True
    return False


def _is_own_function(frame: Frame) -> bool:
    """Whether a function is the program's own, and not named for a save or a wait."""
    function, file, _ = frame
    return (
        not code_patterns.LIBRARY.search(file)
        and not _words(function) & (code_patterns.SAVE_WORDS | code_patterns.WAIT_WORDS)
        and function not in code_patterns.OUTERMOST
    )


@lru_cache(maxsize=4096)
def _words(function: str) -> frozenset[str]:
    if code_patterns.TENSOR_HOOKS.search(function):
        return frozenset()
    return frozenset(word.lower() for word in _WORD.findall(function))


def _act_named(function: str) -> str | None:
    return next((name for name, words in code_patterns.ACTS if _words(function) & words), None)


def _act_of_file(file: str) -> str | None:
    return next((name for name, files in code_patterns.ACT_FILES if files.search(file)), None)


def classify_act(frames: tuple[Frame, ...]) -> str:
    """Classify what a writing thread does, by the innermost conclusive frame.

    pickle | crc | compress | copy | gather | write | sync | wait | other. Work in C shows as the Python function that
    called it.
    """
    innermost = frames[:_INNERMOST_FRAMES]
    for depth, (function, file, _) in enumerate(innermost):
        if code_patterns.GATHERS.search(file):
            return "gather"
        act = _act_named(function)
        if act == "write" and any("compress" in (_act_named(of), _act_of_file(at)) for of, at, _ in innermost[depth:]):
            return "compress"  # it takes most of the CPU time of such a write
        if act is not None:
            return act
        act = _act_of_file(file)
        if act is not None and (act != "wait" or not depth):  # threading.py is at the bottom of every thread's stack
            return act
    return "other"
