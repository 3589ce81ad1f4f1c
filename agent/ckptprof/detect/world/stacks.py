"""What the stack of a thread that trains says: is it in the code of a save, does it wait, or does it train."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from ckptprof.frameworks import stacks
from ckptprof_collectors.samples import StackSample

Frame = tuple[str, str, int]  # function, file, line
Doing = Literal["saving", "named", "waiting", "training"]  # named: for a save, by who wrote the program

_TELLING_FRAMES = 8
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def main_frames(sample: StackSample) -> tuple[Frame, ...]:
    """Return the frames of the main thread, innermost first; empty if it was not seen."""
    for thread in sample.threads:
        if thread.tid == sample.pid:
            return thread.frames
    return ()


def main_sleeps(sample: StackSample) -> bool:
    """Return whether the main thread was seen, and off the CPU."""
    return any(thread.tid == sample.pid and not thread.active for thread in sample.threads)


def runs_library(frames: tuple[Frame, ...]) -> bool:
    """Return whether any frame is in a library that saves."""
    return any(stacks.SAVES.search(file) for _, file, _ in frames)


def names_save(frames: tuple[Frame, ...]) -> bool:
    """Return whether any function is named for a save."""
    return any(_words(function) & stacks.SAVE_WORDS for function, _, _ in frames)


def is_parked(frames: tuple[Frame, ...]) -> bool:
    """Return whether the innermost frame waits for another thread or process, and not for data."""
    return (
        bool(frames)
        and bool(stacks.WAITS.search(frames[0][1]))
        and not any(stacks.FEEDS.search(file) for _, file, _ in frames)
    )


def usual_depth(frames: tuple[Frame, ...], calm: list[tuple[Frame, ...]]) -> int:
    """Return how many of the outermost frames are there outside of saves, too."""
    deepest = 0
    for other in calm:
        depth = 0
        for mine, theirs in zip(reversed(frames), reversed(other), strict=False):
            if mine[:2] != theirs[:2]:
                break
            depth += 1
        deepest = max(deepest, depth)
    return deepest


def doing(frames: tuple[Frame, ...], calm: list[tuple[Frame, ...]], *, sleeps: bool = False) -> Doing | None:
    """Return what the thread does; `calm` are its stacks when nothing was saved. None: nothing can be told.

    Words in names count only where the stack differs from a calm one: `train_and_checkpoint()` may run for ever. What
    is called last decides: a step of training that `save_in_background()` takes while it waits is training. One that
    `sleeps` off the CPU right there waits for what the save has begun; in what it called, others may compute for it.
    """
    if not frames:
        return None
    if any(frames == other for other in calm):
        return "training"
    depth = usual_depth(frames, calm)
    special = frames[: len(frames) - depth]
    if special and _in_background(special):
        return "waiting"
    usual = {frame[:2] for other in calm for frame in other if _is_of_training(frame)}
    library = runs_library(special)
    for frame in special:
        trains = stacks.TRAINS.search(frame[1]) or stacks.COMPUTES.search(frame[0])
        if frame[:2] in usual or (trains and not library):
            return "training"
        if stacks.SAVES.search(frame[1]):
            return "saving"
        if _words(frame[0]) & stacks.SAVE_WORDS and not stacks.RECOMPUTES.search(frame[1]):
            waits = stacks.WAITS.search(special[0][1]) or (sleeps and frame is special[0])
            return "saving" if waits else "named"
    if any(stacks.FEEDS.search(file) for _, file, _ in frames):
        return "training"
    told = [function for function, file, _ in special if not stacks.RECOMPUTES.search(file)]
    if special and (
        stacks.WAITS.search(special[0][1]) or any(_words(function) & stacks.WAIT_WORDS for function in told[:4])
    ):
        return "waiting"
    return "training"


def saves_in_background(sample: StackSample) -> bool:
    """Return whether any thread is in the code by which a library saves in the background, and not at once."""
    return any(
        any(stacks.BACKGROUND.search(file) for _, file, _ in thread.frames)
        and not any(function.endswith(stacks.AT_ONCE) for function, _, _ in thread.frames)
        for thread in sample.threads
    )


def _in_background(special: tuple[Frame, ...]) -> bool:
    """Return whether it waits for what a library does in the background, and is not in the call that began it."""
    for function, file, _ in special:
        if stacks.BEGINS.search(function):
            return False
        if stacks.SAVES.search(file) and _words(function) & stacks.WAIT_WORDS:
            return True
    return False


def _is_of_training(frame: Frame) -> bool:
    """Return whether a function that is met in peace is one of the program's own, and no name of a save or a wait."""
    function, file, _ = frame
    return (
        not stacks.LIBRARY.search(file)
        and not _words(function) & (stacks.SAVE_WORDS | stacks.WAIT_WORDS)
        and function not in stacks.OUTER
    )


@lru_cache(maxsize=4096)
def _words(function: str) -> frozenset[str]:
    if stacks.OF_TENSORS.search(function):
        return frozenset()
    return frozenset(word.lower() for word in _WORD.findall(function))


def act(frames: tuple[Frame, ...]) -> str:
    """Return what a thread that writes a checkpoint is at: the innermost frame that tells decides.

    pickle | crc | compress | copy | gather | write | sync | wait | other. What is done in C shows as the Python
    function that called it.
    """
    for depth, (function, file, _) in enumerate(frames[:_TELLING_FRAMES]):
        if stacks.GATHERS.search(file):
            return "gather"
        words = _words(function)
        told = next((name for name, known in stacks.ACTS if words & known), None)
        if told is not None:
            return told
        told = next((name for name, known in stacks.ACT_FILES if known.search(file)), None)
        if told is not None and (told != "wait" or not depth):  # threading.py is below whatever a thread does
            return told
    return "other"
