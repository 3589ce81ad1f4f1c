"""What the stack of a thread that trains says: is it in the code of a save, does it wait, or does it train."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from ckptprof_collectors.samples import StackSample

Frame = tuple[str, str, int]  # function, file, line
Doing = Literal["saving", "named", "waiting", "training"]  # named: for a save, by who wrote the program

_SAVES = re.compile(
    r"/(?:torch/serialization|safetensors/\w+|numpy/lib/\w*npyio\w*|joblib/numpy_pickle|pickle|cloudpickle/\w+"
    r"|transformers/trainer_pt_utils|h5py/_hl/\w+|keras/(?:src/)?saving/.*|tensorstore/.*"
    r"|torch/distributed/checkpoint/.*|orbax/.*|(?:\w+/)*dist_checkpointing/.*|nvidia_resiliency_ext/checkpointing/.*"
    r"|flax/(?:training/checkpoints|serialization)|bytecheckpoint/.*|tensorflow/python/(?:checkpoint|saved_model)/.*"
    r"|tensorflow/python/training/(?:saver|checkpoint\w*)|lightning\w*/fabric/plugins/io/.*"
    r"|(?:\w+/)*checkpoint_engine/.*)\.py$"
)
_RECOMPUTES = re.compile(
    r"/torch/utils/checkpoint\.py$|activation_checkpoint|checkpoint_wrapper\.py$|/jax/_src/ad_checkp"
)
_FEEDS = re.compile(r"/torch/utils/data/|/grain/|/tensorflow/python/data/|/datasets/|/webdataset/|/nvidia/dali/")
_WAITS = re.compile(
    r"/(?:threading|queue|selectors|subprocess|concurrent/futures/\w+|asyncio/\w+|multiprocessing/\w+"
    r"|(?:\w+/)*torch/futures/__init__)\.py$"
)
_SAVE_WORDS = frozenset(
    ("save", "saves", "saving", "saver", "savez", "checkpoint", "checkpoints", "checkpointer", "checkpointing", "ckpt",
     "snapshot", "persist", "serialize", "serialization")
)  # fmt: skip
_WAIT_WORDS = frozenset(("wait", "join", "drain", "finalize", "finish", "block", "sync", "synchronize"))
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_TRAINS = re.compile(r"/torch/(?:optim/(?!.*state_dict)\w+|autograd/__init__|nn/modules/\w+|nn/functional)\.py$")
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3[^/]*/|^<(?!stdin)")
_OUTER = frozenset(("main", "<module>", "<lambda>"))  # in every stack
_ASYNC = re.compile(
    r"/(?:torch/distributed/checkpoint/_async_\w+|checkpointers/async_checkpointer|strategies/async_utils"
    r"|nvidia_resiliency_ext/checkpointing/async_ckpt/\w+|plugins/io/async_plugin|fast_persist\w*)\.py$"
)
_BEGINS = re.compile(r"(?:^|\.)_*(?:async_)?save(?!\w*(?:finali|wait))\w*$|(?:^|[._])execute_sync$")  # Megatron-Core's
_OF_TENSORS = re.compile(r"save_for_backward|saved_tensors|save_on_cpu|saved_activ")
_TELLING_FRAMES = 8
_GATHERS = re.compile(
    r"/torch/distributed/(?:distributed_c10d|_functional_collectives|c10d_logger)\.py$|/mpi4py/|multihost_utils"
)
_ACTS: tuple[tuple[str, frozenset[str]], ...] = (
    ("sync", frozenset(("fsync", "fdatasync", "datasync", "syncfs", "msync"))),
    ("compress", frozenset(("compress", "compressed", "compressor", "deflate", "gzip", "lzma", "zstd", "lz", "blosc"))),
    ("crc", frozenset(("crc", "checksum", "checksums", "digest", "hexdigest", "hash", "sha", "md", "adler", "xxh"))),
    ("gather", frozenset(("gather", "allgather", "broadcast", "scatter", "recv", "irecv", "allreduce"))),
    ("wait", frozenset(("join", "wait", "barrier", "acquire", "poll", "select", "synchronize"))),
    ("pickle", frozenset(("dump", "dumps", "pickle", "persistent", "serialize", "encode", "tobytes", "getstate"))),
    ("copy", frozenset(("cpu", "clone", "copy", "deepcopy", "offload", "stage", "staging", "contiguous"))),
    ("write", frozenset(("write", "writev", "pwrite", "writelines", "tofile", "flush", "copyfileobj", "truncate"))),
)  # fmt: skip
_ACT_FILES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("compress", re.compile(r"/(?:gzip|bz2|lzma|zstandard/\w+|lz4/\w+|blosc2?/\w+)\.py$")),
    ("crc", re.compile(r"/(?:hashlib|xxhash/\w+)\.py$")),
    ("pickle", re.compile(r"/(?:pickle|_pickle|cloudpickle/\w+|dill/\w+|copyreg|json/\w+|yaml/\w+|msgpack/\w+)\.py$")),
    ("wait", _WAITS),
    ("copy", re.compile(r"/copy\.py$")),
    ("write", re.compile(r"/(?:zipfile(?:/\w+)?|tarfile|torch/serialization|safetensors/\w+|h5py/_hl/\w+)\.py$")),
)


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
    return any(_SAVES.search(file) for _, file, _ in frames)


def names_save(frames: tuple[Frame, ...]) -> bool:
    """Return whether any function is named for a save."""
    return any(_words(function) & _SAVE_WORDS for function, _, _ in frames)


def is_parked(frames: tuple[Frame, ...]) -> bool:
    """Return whether the innermost frame waits for another thread or process, and not for data."""
    return bool(frames) and bool(_WAITS.search(frames[0][1])) and not any(_FEEDS.search(file) for _, file, _ in frames)


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


def doing(frames: tuple[Frame, ...], calm: list[tuple[Frame, ...]]) -> Doing | None:
    """Return what the thread does; `calm` are its stacks when nothing was saved. None: nothing can be told.

    Words in names count only where the stack differs from a calm one: `train_and_checkpoint()` may run for ever. What
    is called last decides: a step of training that `save_in_background()` takes while it waits is training.
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
        if frame[:2] in usual or (not library and _TRAINS.search(frame[1])):
            return "training"
        if _SAVES.search(frame[1]):
            return "saving"
        if _words(frame[0]) & _SAVE_WORDS and not _RECOMPUTES.search(frame[1]):
            return "saving" if _WAITS.search(special[0][1]) else "named"
    if any(_FEEDS.search(file) for _, file, _ in frames):
        return "training"
    told = [function for function, file, _ in special if not _RECOMPUTES.search(file)]
    if special and (_WAITS.search(special[0][1]) or any(_words(function) & _WAIT_WORDS for function in told[:4])):
        return "waiting"
    return "training"


def saves_in_background(sample: StackSample) -> bool:
    """Return whether any thread is in the code by which a library saves in the background, and not at once."""
    return any(
        any(_ASYNC.search(file) for _, file, _ in thread.frames)
        and not any(function.endswith("execute_sync") for function, _, _ in thread.frames)
        for thread in sample.threads
    )


def _in_background(special: tuple[Frame, ...]) -> bool:
    """Return whether it waits for what a library does in the background, and is not in the call that began it."""
    for function, file, _ in special:
        if _BEGINS.search(function):
            return False
        if _SAVES.search(file) and _words(function) & _WAIT_WORDS:
            return True
    return False


def _is_of_training(frame: Frame) -> bool:
    """Return whether a function that is met in peace is one of the program's own, and no name of a save or a wait."""
    function, file, _ = frame
    return not _LIBRARY.search(file) and not _words(function) & (_SAVE_WORDS | _WAIT_WORDS) and function not in _OUTER


@lru_cache(maxsize=4096)
def _words(function: str) -> frozenset[str]:
    if _OF_TENSORS.search(function):
        return frozenset()
    return frozenset(word.lower() for word in _WORD.findall(function))


def act(frames: tuple[Frame, ...]) -> str:
    """Return what a thread that writes a checkpoint is at: the innermost frame that tells decides.

    pickle | crc | compress | copy | gather | write | sync | wait | other. What is done in C shows as the Python
    function that called it.
    """
    for depth, (function, file, _) in enumerate(frames[:_TELLING_FRAMES]):
        if _GATHERS.search(file):
            return "gather"
        words = _words(function)
        told = next((name for name, known in _ACTS if words & known), None)
        if told is not None:
            return told
        told = next((name for name, known in _ACT_FILES if known.search(file)), None)
        if told is not None and (told != "wait" or not depth):  # threading.py is below whatever a thread does
            return told
    return "other"
