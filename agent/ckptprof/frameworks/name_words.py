"""The words in names: for checkpoints, steps, ranks, data sets, and temporary names."""

from __future__ import annotations

import re

# numbers that count training: step-500, ckpt_3, epoch=2-step=700, iter_0000500, checkpoint.12
STEP = re.compile(
    r"(?:^|[^a-z])(?:global[-_]?steps?|steps?|iter(?:ation)?s?|updates?|ckpts?|checkpoints?|snapshots?|epochs?|ep)"
    r"[-_=.]{0,2}(?!0\.\d)(\d{1,12})(?![\da-z])",  # no fraction, as of a loss
    re.IGNORECASE,
)
STEP_WORDS_FIRST = re.compile(
    r"(?:step|iter|update)s?(?:ation)?[-_=.]{0,2}(?!0\.\d)(\d{1,12})(?![\da-z])", re.IGNORECASE
)
STEP_FOLDERS = re.compile(r"(?:.*[-_.])?(?:ckpts?|checkpoints?|checkpointing|snapshots?)", re.IGNORECASE)
NUMBER_OF_MODEL = re.compile(  # Keras's, and guided-diffusion's
    r"(?:weights?|model|net|params?|policy|agent)\.(\d{1,8})(?=[-.])|(?:model|opt|ema_0\.\d+_)(\d{6})(?=\.pt$)",
    re.IGNORECASE,
)
DECIMAL = re.compile(r"\d\.\d")
ANY_NUMBER = re.compile(r"(?:^|[-_=.])(\d{1,12})(?=$|[-_.])")
# what distinguishes the parts of one save, with the number
PART_NUMBER = re.compile(
    r"(?:^|[-_.])(?:(?:[a-z]{1,4}[-_])?rank[-_=]?\d+|world[-_]?size[-_=]?\d+|shard[-_=]?\d+(?:[-_]?of[-_]?\d+)?|"
    r"\d+[-_]?of[-_]?\d+)(?![\da-z])",
    re.IGNORECASE,
)
PIECE = re.compile(r"(?<![a-z\d])(\d{1,7})[-_]?of[-_]?(\d{1,7})(?![\da-z])", re.IGNORECASE)  # 2-of-8
PART = re.compile(r"(?:shard|part|rank|layer|chunk|-of-|mp_|pp_|tp_|dp_|expert|worker)", re.IGNORECASE)
RANK = re.compile(r"(?:^|[^a-z])rank[-_=]?(\d{1,7})(?![\da-z])", re.IGNORECASE)
SHARD = re.compile(r"(?:^|[^a-z])shard[-_]?(\d{1,7})[-_]?of[-_]?(\d{1,7})(?!\d)", re.IGNORECASE)
NUMBERED_PIECE = re.compile(
    r"(?:^|[^a-z])(?:shards?|parts?|chunks?|blocks?|split|worker|w|proc|job|task)[-_.]?\d", re.IGNORECASE
)  # of a data set
RANK_FOLDER = re.compile(r"(?:[a-z]{1,4}[-_])?rank[-_=]?\d{1,7}", re.IGNORECASE)
ALIAS = re.compile(r"(?:^|[-_.])(?:last|latest|\d*best|final|current|newest)(?=$|[-_.])", re.IGNORECASE)
NAMELESS = re.compile(r"#\d+")  # the kernel's names of unnamed files (fs/dcache.c)
STAGING = re.compile(r"^tmp[a-z0-9_]{8}$")  # Python's tempfile

MAYBE_TEMPORARY = ("tmp", "temp", "part", "incompl", "unfin", "writing", "progress", "~")
_AFTER = r"(?:[-_.](?:\d+|[0-9a-f]{8,}(?:-[0-9a-f]{4,})*))?"  # a process, a time or a random number
TEMPORARY = re.compile(
    rf"[._-](?:tmp[A-Za-z0-9]*|temp\d*|incomplete|writing|unfinished|in_?progress){_AFTER}$"
    r"|\.(?:partial|part)$|~$|[._-]partial$"
    r"|(?:[._-]tmp|\.temp|[._-]partial)(?=\.[A-Za-z][A-Za-z0-9]{0,12}$)"
    r"|^\.?(?:tmp|temp|partial|writing|incomplete)[-_.](?=(?:global_?)?(?:step|ckpt|checkpoint|epoch|iter|model|snapshot))"
)
# words for what a restart needs; _HINTS adds words for a time or a choice
_STATES = frozenset(
    (
        "ckpt", "ckpts", "checkpoint", "checkpoints", "snapshot", "snapshots", "model", "models", "weight", "weights",
        "optim", "optims", "optimizer", "optimizers", "state", "states", "param", "params", "parameter", "parameters",
        "trainer", "ema", "adapter", "lora", "actor", "critic", "policy",
    )
)  # fmt: skip
_HINTS = _STATES | {
    "step", "steps", "epoch", "epochs", "iter", "iters", "iteration", "best", "last", "latest", "final", "resume",
}  # fmt: skip
# words for training data and for the output of a model
_DATA = frozenset(
    (
        "data", "dataset", "datasets", "dataloader", "train", "training", "val", "valid", "validation", "test", "tests",
        "eval", "shard", "shards", "token", "tokens", "tokenized", "corpus", "sample", "samples", "feature", "features",
        "embedding", "embeddings", "cache", "caches", "image", "images", "label", "labels", "prediction", "predictions",
        "output", "outputs", "result", "results", "batch", "batches", "memmap", "mmap", "arrow", "parquet",
        "preprocessed", "profile", "trace", "pred", "preds", "logits", "probs", "latents", "oof",
    )
)  # fmt: skip
# of these, the output of a model; in the singular they also name its parts: `feature_extractor`, `image_encoder`
_OUTPUTS = frozenset(
    (
        "samples", "features", "embeddings", "images", "labels", "prediction", "predictions", "outputs", "results",
        "preds", "logits", "probs", "latents", "oof",  # predictions out of fold
    )
)  # fmt: skip
_RUN_WORDS = frozenset(("train", "training", "test", "tests", "eval", "output", "outputs", "result", "results"))
_SPLITS = frozenset(("train", "training", "val", "valid", "validation", "test", "tests", "eval"))
_MODEL_PARTS = frozenset(("shard", "shards", "embedding", "embeddings"))  # in the folder of a step
_WORD = re.compile(r"[a-z]+")
_OTHER_FORMATS = re.compile(
    r"\.(?:log|txt|csv|tsv|jsonl|out|err|db|sqlite3?|db-wal|wal|journal|arrow|parquet|tfevents[^/]*|lock|pid|sock|html|md|"
    r"png|jpe?g|gif|webp|bmp|tiff?|svg|pdf|mp[34]|mkv|avi|webm|wav|flac|ogg|pyc?|so|o|a|c|cc|cpp|h|rs|js|css|map|class|"
    r"jar|whl|deb|rpm|apk|iso|img|qcow2|vmdk|tar|tgz|zip|7z|rar|core|pcap|nsys-rep|json\.gz|trace|"
    r"mdb|ldb|sst|ibd|frm|rdb|aof|pack|idx|rev|orc|avro|lance|tfrecords?(?:-\d+-of-\d+)?|feather)"
    r"(?:\.\d+)?$|/events\.out\.tfevents\.|/core(?:\.\d+)?$",
    re.IGNORECASE,
)
COMPRESSED_ENDING = r"\.(?:gz|bz2|xz|zst|lz4)"  # around any format
_COMPRESSION = re.compile(COMPRESSED_ENDING + r"(?:\.\d+)?$", re.IGNORECASE)


def is_other_format(path: str, *, has_evidence: bool) -> bool:
    """Whether a name has a format without a model; `has_evidence`: other evidence exists, it may only be compressed."""
    content = _COMPRESSION.sub("", path)
    if content == path:
        return _OTHER_FORMATS.search(path) is not None
    return not has_evidence or any(map(_OTHER_FORMATS.search, (path, content)))


def has_checkpoint_word(part: str) -> bool:
    """Whether it contains a word for checkpoints."""
    return not _HINTS.isdisjoint(_WORD.findall(part.lower()))


def has_state_word(part: str) -> bool:
    """Whether it contains a word for what a restart needs, not only a time or a choice."""
    return not _STATES.isdisjoint(_WORD.findall(part.lower()))


def has_only_state_words(part: str) -> bool:
    """Whether all its words are for what a restart needs, a time or a choice."""
    words = _WORD.findall(part.lower())
    return not _STATES.isdisjoint(words) and _HINTS.issuperset(words)


def has_data_word(part: str, *, in_step: bool = False) -> bool:
    """Whether it contains a word for data sets or results; `in_step`: a file in the folder of a step."""
    found = _DATA.intersection(words := _WORD.findall(part.lower()))
    if "best" in words:  # valid.acc.best: what it was best at
        found -= _SPLITS
    return bool(found - _MODEL_PARTS if in_step else found)


def has_output_word(part: str, *, in_step: bool = False) -> bool:
    """Whether the name of a file contains a word for the output of a model; `in_step` as above."""
    found = _OUTPUTS.intersection(_WORD.findall(part.lower()))
    return bool(found - _MODEL_PARTS if in_step else found)


def is_output_folder(part: str) -> bool:
    """Whether all words of a folder are for the output of a model: `sd-latents` may be any run."""
    words = set(_WORD.findall(part.lower()))
    return bool(words & _OUTPUTS - _RUN_WORDS - _MODEL_PARTS) and words <= _DATA and not any(map(str.isdigit, part))


def is_data_folder(part: str) -> bool:
    """Whether a folder is named as those of data sets, by its last word: `train`, but `train_01` may be any run."""
    words = re.findall("[a-z]{2,}", part.lower())
    return part.lower() in _DATA or (words != [] and words[-1] in _DATA - _RUN_WORDS)
