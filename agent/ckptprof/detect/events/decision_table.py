"""The one table that decides what an event is: a save, a restore, a copy, a stream, data, or nothing.

Theory of operation. `signals/` contains predicates; each that is true for an event names a row of ROWS. A row adds its
weight (times the signal's strength) to the hypotheses: *save_or_restore*, the job itself saves or restores;
*copy_or_stream*, its bytes are a checkpoint's, but a tool copied them, or they only passed through a process (an
upload, a check, a download); *data*, it is something else stored in files. NEEDED has the sum that each hypothesis
needs.

Four lists of combinations follow, each entry a plain expression over names of signals. The first of OVERRIDES that
applies excludes save and restore, whatever their sum. The first of DEFERRALS that applies defers an event until later
ones decide it, and names what it is if none does. The first of DOUBTS that applies leaves a save unsure, however large
its sum (`save?` in reports). If a signal of SERIES_OF_DATA is present, deferred earlier events of its series are data,
too. `decision.decide` applies all of this and reads nothing else.

To fix a false alarm: `ckptprof replay --why FILE` shows the sums, the rows and the combination; change one of them,
then run `make weights` and `make shadow`.

How the weights were set: a known name that a trainer writes must pass without anything else (name + runtime). An
unknown name needs a trainer and a series, or a series with two signs of care for the files (renamed, rotated,
overwritten); without any such sign it stays in doubt, for results of evaluations come in a rhythm as saves do. The
signs of a data set outweigh the weak names (`.pt`, `.npy`, `.safetensors`), never all the marks of a framework.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum


class Hypothesis(Enum):
    """What an event may be."""

    SAVE = "save"
    RESTORE = "restore"
    COPY = "copy"  # a checkpoint's files, moved by a tool or by hand
    STREAM = "stream"  # a checkpoint's bytes passing through a process: uploaded, downloaded, checked
    DATA = "data"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Row:
    """The weights of one signal for each hypothesis."""

    signal: str
    save_or_restore: float  # for save and restore; shown as the weight of the evidence
    copy_or_stream: float  # for copy and stream
    data: float
    why: str  # the reason for the weights, or the test that covers them

    def weight(self, hypothesis: Hypothesis) -> float:
        """Return the weight for a hypothesis."""
        if hypothesis in (Hypothesis.SAVE, Hypothesis.RESTORE):
            return self.save_or_restore
        return self.data if hypothesis is Hypothesis.DATA else self.copy_or_stream


@dataclass(frozen=True, slots=True)
class Combination:
    """Signals that decide together, beyond their sum: all of `all`, one of `any`, none of `none`."""

    name: str
    then: Hypothesis
    why: str
    all: tuple[str, ...] = ()
    any: tuple[str, ...] = ()
    none: tuple[str, ...] = ()
    min_sum: float = -math.inf  # the sum for a save that it needs
    sum_below: float = math.inf

    def applies(self, names: frozenset[str], save_or_restore: float) -> bool:
        """Return True if it applies to these signals and this sum for a save or a restore."""
        return (
            self.min_sum <= save_or_restore < self.sum_below
            and names.issuperset(self.all)
            and names.isdisjoint(self.none)
            and not (self.any and names.isdisjoint(self.any))
        )


@dataclass(frozen=True)
class DecisionTable:
    """All weights, sums and overrides by which an event is classified."""

    rows: dict[str, Row]
    required_sums: dict[Hypothesis, float]
    overrides: tuple[Combination, ...]
    deferrals: tuple[Combination, ...]
    doubts: tuple[Combination, ...]
    series_of_data: frozenset[str]


ROWS = (
    #                            save,  copy,
    #   signal                 restore stream  data  why
    # File names and first bytes. `name` has the weight in the framework's entry: 0.6 if nothing else has such names,
    # less if data sets have.
    Row("name",                    1.0,  1.0,  0.0, "times Framework.weight, 0.15 to 0.6"),
    Row("format-safetensors",     0.25, 0.25,  0.0, "its header is unmistakable; data sets use it, too"),
    Row("format-model",            0.2,  0.2,  0.0, "torch.save, Keras, GGUF: models, seldom data"),
    Row("format-data",           0.075, 0.075, 0.0, "numpy, pickle, HDF5, any other zip: data as well"),
    Row("step",                    0.5,  0.4,  0.0, "a number that counts training"),
    Row("word",                    0.3,  0.3,  0.0, "a word that people use for checkpoints"),
    # Who wrote or read it.
    Row("runtime-training",       0.35,  0.0,  0.0, "with a weak name just enough, with an unknown one not"),
    Row("runtime-gpu",            0.35,  0.0,  0.0, "as a library for training"),
    Row("runtime-numeric",        0.25,  0.0,  0.0, "numpy is loaded by all sorts of programs"),
    Row("runtime-none",           -0.4,  0.0,  0.0, "needs a series with signs of care to be outweighed"),
    Row("runtime-own",             0.0,  0.0,  0.0, "what it does is enough: it is a trainer in any language"),
    Row("computes",               0.15,  0.0,  0.0, "it makes what it writes"),
    Row("tool",                   -0.8,  0.0,  0.0, "a tool that copies saves nothing; see OVERRIDES"),
    Row("service",                -1.2,  0.0,  0.0, "even its frequent, rotated snapshots are not a model's"),
    # How one event was written.
    Row("renamed",                0.15,  0.0,  0.0, "care for the file"),
    Row("appends",                -0.5,  0.0,  0.6, "logs"),
    Row("random",                 -0.4,  0.0,  0.6, "databases"),
    # Compared with earlier events of the job.
    Row("recurs",                 0.15,  0.0,  0.0, "each time, twice at most"),
    Row("regular",                 0.2,  0.0,  0.0, "between its saves a trainer trains"),
    Row("overwrites",              0.3,  0.0,  0.0, "only the last state is wanted"),
    Row("rotates",                 0.4,  0.0,  0.0, "only the last few states are wanted"),
    Row("resumed",                 1.0,  0.0,  0.0, "a run resumed from such a save; the next is one as well"),
    Row("shards",                 -0.7,  0.0,  0.6, "numbers of a data set continue, those of ranks restart"),
    Row("endless",                -2.0,  0.0,  0.6, "a data set being written or read, a stream"),
    # Of reads.
    Row("read-back",               0.5,  0.5,  0.0, "observed being saved"),
    Row("read-again",              0.4,  0.0,  0.0, "the next run of the program reads the last one's files"),
    Row("resumes",                 0.5,  0.0,  0.0, "a resuming run wants the last state, and nothing else"),
    Row("amid",                   -2.0, -2.0,  0.0, "such a read neither resumes a run nor copies its files elsewhere"),
    Row("handed",                -2.0,  0.0,  0.6, "samples for training; a state goes the other way"),
    Row("feeds",                  -0.5,  0.0,  0.6, "a data set is read file by file, in each epoch"),
    # Signs of something else.
    Row("data",                   -1.0, -1.0,  0.6, "outweighs the weak names"),
    Row("place",                  -1.2, -1.2,  0.6, "outweighs a weak name with a trainer"),
    Row("foreign",                -1.5, -1.5,  0.6, "outweighs all but the marks of a framework"),
    Row("text",                   -1.5, -1.5,  0.6, "as `foreign`, until it comes in one size at even times"),
    Row("swapped",               -2.0, -2.0,  0.6, "data that does not fit into memory; no run resumes from it"),
    Row("copies-in-sum",          -0.7,  0.0,  0.0, "in sum only: a trainer may read data while it saves"),
    Row("copies-exactly",         -0.9,  0.0,  0.0, "file by file, in the kernel, or hand in hand"),
    Row("received",               -0.5,  0.0,  0.0, "as much came in by the network"),
    Row("downloaded",             -0.5,  0.0,  0.0, "in a place, or under a name, of downloads"),
    Row("sent-on",                -0.7,  0.0,  0.0, "a restoring process sends nothing to a store"),
    # Sent to a port of object stores: only data sent from memory may be a state.
    Row("sent",                    0.0,  0.0,  0.0, "the destination: all sorts of things go there"),
    Row("parts",                  0.15,  0.0,  0.0, "no log and no picture is so large; with a second one enough"),
    Row("answered",               -2.0,  0.0,  0.0, "gradients, calls and data sets come back as they go"),
    Row("from-files",             -2.0,  0.0,  0.0, "an upload of a reported checkpoint, or of data"),
    Row("beside-files",           -2.0,  0.0,  0.0, "its files already show the save"),
    Row("small",                  -2.0,  0.0,  0.0, "logs, pictures, figures; a state is much of the memory"),
    Row("fetched",                0.25,  0.0,  0.0, "the size of what the run fetched; with a library just enough"),
    Row("as-large",               0.25,  0.0,  0.0, "the state again; with a library just enough"),
    # Received from there: only a save by an earlier run, or a later one, distinguishes it from data.
    Row("came",                    0.0,  0.0,  0.0, "the source: data sets come from there, too"),
    Row("answers",                 0.0,  0.0,  0.0, "as all large objects come"),
    Row("asked",                  -2.0,  0.0,  0.0, "gradients and calls go out as they come in"),
    Row("to-files",               -2.0,  0.0,  0.0, "the reader of those files restores"),
    Row("not-first",              -2.0,  0.0,  0.0, "data sets come piece by piece, throughout training"),
    # It only passed through its process; see OVERRIDES. `unkept` and `unseen` imply `straight`.
    Row("straight",               -0.3,  0.0,  0.0, "from end to end in even pieces"),
    Row("unkept",                -0.35,  0.0,  0.0, "a loaded model stays in memory"),
    Row("unseen",                -0.35,  0.0,  0.0, "a restoring process continues"),
)  # fmt: skip

REQUIRED_SUMS = {
    Hypothesis.SAVE: 0.6,
    Hypothesis.RESTORE: 0.6,
    Hypothesis.COPY: 0.65,  # more than a name of a framework alone
    Hypothesis.STREAM: 0.65,
    Hypothesis.DATA: 0.6,
}

OVERRIDES = (
    Combination("copied", Hypothesis.COPY, "as much was read as was written, file by file", all=("copies-exactly",)),
    Combination(
        "passed through", Hypothesis.STREAM, "it came or went by the network, or is in a place of downloads",
        any=("received", "downloaded", "sent-on"),
    ),
    Combination("moved by a tool", Hypothesis.COPY, "its process copies, packs, sends or fetches", all=("tool",)),
    Combination(
        "copied in sum", Hypothesis.COPY, "as much was read as was written, by no trainer: a trainer may read data",
        all=("copies-in-sum",), none=("trains",),
    ),
    Combination(
        "read and not kept", Hypothesis.STREAM, "read from end to end; memory did not grow, or its process ended",
        any=("unkept", "unseen"), none=("service",),
    ),
    Combination(
        "read, no libraries", Hypothesis.COPY, "its process has no library of machine learning, and maps little",
        all=("reads", "no-libraries"), none=("service", "mapped", "read-again"),
    ),
    Combination(
        "read, nobody known", Hypothesis.COPY, "its process ended unobserved: a restoring process continues",
        all=("reads", "nobody-known"),
    ),
)  # fmt: skip

SERIES_OF_DATA = frozenset(("handed", "shards", "swapped"))

DEFERRALS = (  # `decided-data`: the sum for data suffices
    Combination(
        "sent once", Hypothesis.SAVE, "the size of a state; in rounds of a federation it is fetched again",
        any=("fetched", "as-large"), none=("recurs",), min_sum=REQUIRED_SUMS[Hypothesis.SAVE],
    ),
    Combination(
        "may be saved later", Hypothesis.RESTORE, "a data set, unless a later save is as large",
        all=("came",), min_sum=0.25, sum_below=REQUIRED_SUMS[Hypothesis.RESTORE],
    ),
    Combination(
        "no libraries", Hypothesis.COPY, "only names are evidence, and its process has no library of machine learning",
        all=("writes", "no-libraries"), none=("recurs", "computes", "resumed"), min_sum=REQUIRED_SUMS[Hypothesis.SAVE],
    ),
    Combination(
        "nobody known", Hypothesis.COPY, "names are the only evidence, and its process ended unobserved",
        all=("writes", "nobody-known"), none=("recurs",), min_sum=REQUIRED_SUMS[Hypothesis.SAVE],
    ),
    Combination(
        "a weak name", Hypothesis.SAVE, "data sets have such names, too, and a library is the only other evidence",
        all=("writes", "weak-name"), none=("recurs", "word", "step", "resumed"), min_sum=REQUIRED_SUMS[Hypothesis.SAVE],
    ),
    Combination(
        "text may recur", Hypothesis.COPY, "results, unless they come steadily", all=("writes", "text", "computes")
    ),
    Combination(
        "may recur", Hypothesis.COPY, "too little for a save, enough for one of a series",
        all=("writes",), none=("decided-data",), min_sum=-0.45, sum_below=REQUIRED_SUMS[Hypothesis.SAVE],
    ),
)  # fmt: skip

DOUBTS = (  # of reported saves
    Combination(
        "only a rhythm", Hypothesis.SAVE, "results of evaluations have a rhythm, too; nothing shows care for the files",
        all=("weak-name",), none=("word", "step", "renamed", "overwrites", "rotates", "resumed"),
    ),
)  # fmt: skip

TABLE = DecisionTable(
    rows={row.signal: row for row in ROWS},
    required_sums=REQUIRED_SUMS,
    overrides=OVERRIDES,
    deferrals=DEFERRALS,
    doubts=DOUBTS,
    series_of_data=SERIES_OF_DATA,
)
