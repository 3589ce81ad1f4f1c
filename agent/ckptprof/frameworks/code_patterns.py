"""Code in Python stacks: files that save, feed, wait or train, and words in the names of functions."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ckptprof.frameworks.framework_table import FRAMEWORKS

_CODE_PATTERNS = tuple(framework.code for framework in FRAMEWORKS)


def _files(ends: Iterable[str]) -> re.Pattern[str]:
    return re.compile(rf"/(?:{'|'.join(ends)})\.py$")


# a thread that saves, and one that does so while training continues
SAVES = _files(one for code in _CODE_PATTERNS for one in code.saves)
BACKGROUND = _files(one for code in _CODE_PATTERNS for one in code.background)
AT_ONCE = tuple(function for code in _CODE_PATTERNS for function in code.at_once)
STARTS_SAVE = re.compile(
    rf"(?:^|\.)_*(?:async_)?save(?!\w*(?:finali|wait))\w*$|(?:^|[._])(?:{'|'.join(map(re.escape, AT_ONCE))})$"
)
SAVE_WORDS = frozenset(
    ("save", "saves", "saving", "saver", "savez", "checkpoint", "checkpoints", "checkpointer", "checkpointing", "ckpt",
     "snapshot", "persist", "serialize", "serialization")
)  # fmt: skip
EVALUATION_WORDS = frozenset(
    ("eval", "evaluate", "evaluation", "validate", "validation", "test", "score", "predict", "infer", "generate")
)

# such words without a save: tensors retained for the backward pass, and recomputed layers
TENSOR_HOOKS = re.compile(r"save_for_backward|saved_tensors|save_on_cpu|saved_activ")
RECOMPUTES = re.compile(
    r"/torch/utils/checkpoint\.py$|activation_checkpoint|checkpoint_wrapper\.py$|/jax/_src/ad_checkp"
)

# a thread that waits for another, for data, or trains
WAITS = re.compile(
    r"/(?:threading|queue|selectors|subprocess|concurrent/futures/\w+|asyncio/\w+|multiprocessing/\w+"
    r"|(?:\w+/)*torch/futures/__init__)\.py$"
)
WAIT_WORDS = frozenset(("wait", "join", "drain", "finalize", "finish", "block", "sync", "synchronize"))
FEEDS = re.compile(r"/torch/utils/data/|/grain/|/tensorflow/python/data/|/datasets/|/webdataset/|/nvidia/dali/")
TRAINS = re.compile(r"/torch/(?:optim/(?!.*state_dict)\w+|autograd/__init__|nn/modules/\w+|nn/functional)\.py$")
COMPUTES = re.compile(r"(?:^|\.)block_until_ready$")  # waits for the device, which computes a training step of JAX

# files and functions that are not of the program itself
LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3[^/]*/|^<(?!stdin)")
OUTERMOST = frozenset(("main", "<module>", "<lambda>"))  # in every stack

# activity of a writing thread: by words in the name of its function, then by its file
GATHERS = re.compile(
    r"/torch/distributed/(?:distributed_c10d|_functional_collectives|c10d_logger)\.py$|/mpi4py/|multihost_utils"
)
ACTS: tuple[tuple[str, frozenset[str]], ...] = (
    ("sync", frozenset(("fsync", "fdatasync", "datasync", "syncfs", "msync"))),
    ("compress", frozenset(("compress", "compressed", "compressor", "deflate", "gzip", "lzma", "zstd", "lz", "blosc"))),
    ("crc", frozenset(("crc", "checksum", "checksums", "digest", "hexdigest", "hash", "sha", "md", "adler", "xxh"))),
    ("gather", frozenset(("gather", "allgather", "broadcast", "scatter", "recv", "irecv", "allreduce"))),
    ("wait", frozenset(("join", "wait", "barrier", "acquire", "poll", "select", "synchronize"))),
    ("pickle", frozenset(("dump", "dumps", "pickle", "persistent", "serialize", "encode", "tobytes", "getstate"))),
    ("copy", frozenset(("cpu", "clone", "copy", "deepcopy", "offload", "stage", "staging", "contiguous"))),
    ("write", frozenset(("write", "writev", "pwrite", "writelines", "tofile", "flush", "copyfileobj", "truncate"))),
)  # fmt: skip
ACT_FILES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("compress", re.compile(r"/(?:gzip|bz2|lzma|zstandard/\w+|lz4/\w+|blosc2?/\w+)\.py$")),
    ("crc", re.compile(r"/(?:hashlib|xxhash/\w+)\.py$")),
    ("pickle", re.compile(r"/(?:pickle|_pickle|cloudpickle/\w+|dill/\w+|copyreg|json/\w+|yaml/\w+|msgpack/\w+)\.py$")),
    ("wait", WAITS),
    ("copy", re.compile(r"/copy\.py$")),
    ("write", _files([r"zipfile(?:/\w+)?", "tarfile", *(one for code in _CODE_PATTERNS for one in code.writes)])),
)
