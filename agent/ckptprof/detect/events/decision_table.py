"""The one table that decides what an event is: a save, a restore, a copy, a stream, data, or nothing.

Theory of operation. `signals/` holds predicates; each one that holds of an event names a row of ROWS. A row adds its
weight (times the signal's strength) to the hypotheses: *save_or_restore*, the job itself saves or restores;
*copy_or_stream*, its bytes are a checkpoint's, but somebody copied them, or they only passed through a process (an
upload, a check, a download); *data*, it is something else that is kept in files. A hypothesis needs the sum that
NEEDED says.

Four lists of combinations follow, each entry a plain expression over names of signals. The first of OVERRIDES that
holds takes save and restore out of question, whatever their sum is. The first of DEFERRALS that holds makes an event
wait for what comes later, and says what it is if nothing does. The first of DOUBTS that holds leaves a save
unsure, however large its sum is (`save?` in reports). If a name of SERIES_OF_DATA holds, earlier events of its series
that still wait are data, too. `decision.decide` applies all of this and looks at nothing else.

To mend a false alarm: `ckptprof replay --why FILE` shows the sums, the rows and the combination; change one of them,
then run `make weights` and `make shadow`.

How the weights were set: a known name that a trainer writes must pass without anything else (name + runtime). An
unknown name needs a trainer and a series, or a series with two signs of care for the files (renamed, rotated,
overwritten); without any such sign it stays in doubt, for what evaluations yield comes at a rhythm as saves do. What a
data set does outweighs the weak names (`.pt`, `.npy`, `.safetensors`), never all the marks of a framework.
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
    STREAM = "stream"  # a checkpoint's bytes that pass through a process: uploaded, downloaded, checked
    DATA = "data"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Row:
    """What one signal weighs for each hypothesis."""

    signal: str
    save_or_restore: float  # for save and restore; shown as the weight of the evidence
    copy_or_stream: float  # for copy and stream
    data: float
    why: str  # why it weighs so, or what holds it

    def weight(self, hypothesis: Hypothesis) -> float:
        """Return its weight for a hypothesis."""
        if hypothesis in (Hypothesis.SAVE, Hypothesis.RESTORE):
            return self.save_or_restore
        return self.data if hypothesis is Hypothesis.DATA else self.copy_or_stream


@dataclass(frozen=True, slots=True)
class Combination:
    """Signals that together decide more than their sum: all of `all`, one of `any`, none of `none`."""

    name: str
    then: Hypothesis
    why: str
    all: tuple[str, ...] = ()
    any: tuple[str, ...] = ()
    none: tuple[str, ...] = ()
    least: float = -math.inf  # the sum for a save that it takes
    below: float = math.inf

    def holds(self, names: frozenset[str], save_or_restore: float) -> bool:
        """Return whether it holds of an event with these signals and this sum for a save or a restore."""
        return (
            self.least <= save_or_restore < self.below
            and names.issuperset(self.all)
            and names.isdisjoint(self.none)
            and not (self.any and names.isdisjoint(self.any))
        )


@dataclass(frozen=True)
class DecisionTable:
    """All that decides."""

    rows: dict[str, Row]
    needed: dict[Hypothesis, float]
    overrides: tuple[Combination, ...]
    deferrals: tuple[Combination, ...]
    doubts: tuple[Combination, ...]
    series_of_data: frozenset[str]


ROWS = (
    #                            save,  copy,
    #   signal                 restore stream  data  why
    # What the files are called and how they begin. `name` weighs what the framework's entry says: 0.6 if nothing else
    # is called so, less if data sets are.
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
    Row("computes",               0.15,  0.0,  0.0, "it makes what it writes"),
    Row("tool",                   -0.8,  0.0,  0.0, "what copies saves nothing; see OVERRIDES"),
    Row("service",                -1.2,  0.0,  0.0, "even snapshots that it takes often and rotates are not a model's"),
    # How one event was written.
    Row("renamed",                0.15,  0.0,  0.0, "care for the file"),
    Row("appends",                -0.5,  0.0,  0.6, "logs"),
    Row("random",                 -0.4,  0.0,  0.6, "databases"),
    # How it stands among what the job did before.
    Row("recurs",                 0.15,  0.0,  0.0, "each time, twice at most"),
    Row("regular",                 0.2,  0.0,  0.0, "between its saves a trainer trains"),
    Row("overwrites",              0.3,  0.0,  0.0, "only the last state is wanted"),
    Row("rotates",                 0.4,  0.0,  0.0, "only the last few states are wanted"),
    Row("resumed",                 1.0,  0.0,  0.0, "what a run went on from was a save, and so is the next of it"),
    Row("shards",                 -0.7,  0.0,  0.6, "numbers of a data set go on, those of ranks begin anew"),
    Row("endless",                -2.0,  0.0,  0.6, "a data set that is made or read, a stream"),
    # Of reads.
    Row("read-back",               0.5,  0.5,  0.0, "seen being saved"),
    Row("read-again",              0.4,  0.0,  0.0, "the next run of the program reads what the last one left"),
    Row("resumes",                 0.5,  0.0,  0.0, "a run that goes on wants the last state, and nothing else"),
    Row("amid",                   -2.0, -2.0,  0.0, "nobody goes on from what is read so, nor takes it away"),
    Row("handed",                -2.0,  0.0,  0.6, "samples for training; a state goes the other way"),
    Row("feeds",                  -0.5,  0.0,  0.6, "a data set is read file by file, in each epoch"),
    # What it is instead.
    Row("data",                   -1.0, -1.0,  0.6, "outweighs the weak names"),
    Row("place",                  -1.2, -1.2,  0.6, "outweighs a weak name with a trainer"),
    Row("foreign",                -1.5, -1.5,  0.6, "outweighs all but the marks of a framework"),
    Row("swapped",               -2.0, -2.0,  0.6, "what does not fit into memory; nobody goes on from it"),
    Row("copies-in-sum",          -0.7,  0.0,  0.0, "in sum only: a trainer may read data while it saves"),
    Row("copies-exactly",         -0.9,  0.0,  0.0, "file by file, in the kernel, or hand in hand"),
    Row("received",               -0.5,  0.0,  0.0, "as much came in by the network"),
    Row("downloaded",             -0.5,  0.0,  0.0, "where, or named as, downloads are"),
    Row("uploads",                -0.7,  0.0,  0.0, "read by another thread of the process that wrote it"),
    Row("sent-on",                -0.7,  0.0,  0.0, "who restores sends nothing to a store meanwhile"),
    # Of what is sent to a port of object stores: what a process sends from memory, and nothing else, may be its state.
    Row("sent",                    0.0,  0.0,  0.0, "where it went: all sorts of things go there"),
    Row("parts",                  0.15,  0.0,  0.0, "no log and no picture is so large; with a second one enough"),
    Row("answered",               -2.0,  0.0,  0.0, "gradients, calls and data sets come back as they go"),
    Row("from-files",             -2.0,  0.0,  0.0, "an upload of what is reported already, or of data"),
    Row("beside-files",           -2.0,  0.0,  0.0, "the save is reported by its files"),
    Row("small",                  -2.0,  0.0,  0.0, "logs, pictures, figures; a state is much of the memory"),
    Row("fetched",                0.25,  0.0,  0.0, "a run saves what it went on from; with a library just enough"),
    Row("as-large",               0.25,  0.0,  0.0, "the state again; with a library just enough"),
    # Of what comes from there: only what was saved by an earlier run, or is saved later, tells it from data.
    Row("came",                    0.0,  0.0,  0.0, "where it came from: data sets do, too"),
    Row("answers",                 0.0,  0.0,  0.0, "so come all large objects"),
    Row("asked",                  -2.0,  0.0,  0.0, "gradients and calls go out as they come in"),
    Row("to-files",               -2.0,  0.0,  0.0, "who reads the files restores"),
    Row("not-first",              -2.0,  0.0,  0.0, "data sets come piece by piece, for as long as is trained"),
    # That it only passed through its process; see OVERRIDES. Where `unkept` or `unseen` holds, `straight` does, too.
    Row("straight",               -0.3,  0.0,  0.0, "from end to end in even pieces"),
    Row("unkept",                -0.35,  0.0,  0.0, "who loads a model has it in memory then"),
    Row("unseen",                -0.35,  0.0,  0.0, "who restores goes on"),
)  # fmt: skip

NEEDED = {
    Hypothesis.SAVE: 0.6,
    Hypothesis.RESTORE: 0.6,
    Hypothesis.COPY: 0.65,  # more than a name of a framework alone
    Hypothesis.STREAM: 0.65,
    Hypothesis.DATA: 0.6,
}

OVERRIDES = (
    Combination("copied", Hypothesis.COPY, "as much was read as was written, file by file", all=("copies-exactly",)),
    Combination(
        "passed through", Hypothesis.STREAM, "it came or went by the network, or is where downloads are",
        any=("received", "downloaded", "uploads", "sent-on"),
    ),
    Combination(
        "moved by a tool", Hypothesis.COPY, "its process copies, packs, sends or fetches", all=("tool",)
    ),
    Combination(
        "copied in sum", Hypothesis.COPY, "as much was read as was written, and nobody trains: a trainer may read data",
        all=("copies-in-sum",), none=("trains",),
    ),
    Combination(
        "read and not kept", Hypothesis.STREAM, "read from end to end, and memory did not grow, or at once was no more",
        any=("unkept", "unseen"), none=("service",),
    ),
    Combination(
        "read, no libraries", Hypothesis.COPY, "its process has no library of machine learning, and maps little",
        all=("reads", "no-libraries"), none=("service", "mapped", "read-again"),
    ),
    Combination(
        "read, nobody known", Hypothesis.COPY, "its process was over before anybody saw whose: who restores goes on",
        all=("reads", "nobody-known"),
    ),
)  # fmt: skip

SERIES_OF_DATA = frozenset(("handed", "shards", "swapped"))

DEFERRALS = (  # `decided-data` holds where the sum for data suffices
    Combination(
        "sent once", Hypothesis.SAVE, "the size of a state, and in rounds of a federation it is fetched again",
        any=("fetched", "as-large"), none=("recurs",), least=NEEDED[Hypothesis.SAVE],
    ),
    Combination(
        "may be saved later", Hypothesis.RESTORE, "a data set, if nobody saves as much",
        all=("came",), least=0.25, below=NEEDED[Hypothesis.RESTORE],
    ),
    Combination(
        "no libraries", Hypothesis.COPY, "only names speak for it, and its process has no library of machine learning",
        all=("writes", "no-libraries"), none=("recurs", "computes"), least=NEEDED[Hypothesis.SAVE],
    ),
    Combination(
        "nobody known", Hypothesis.COPY, "only names speak for it, and its process was over before anybody saw whose",
        all=("writes", "nobody-known"), none=("recurs",), least=NEEDED[Hypothesis.SAVE],
    ),
    Combination(
        "a weak name", Hypothesis.SAVE, "data sets have such names, too, and a library is the only evidence",
        all=("writes", "weak-name"), none=("recurs", "word", "step", "resumed"), least=NEEDED[Hypothesis.SAVE],
    ),
    Combination(
        "may recur", Hypothesis.COPY, "too little for a save, enough for one of a series",
        all=("writes",), none=("decided-data",), least=-0.45, below=NEEDED[Hypothesis.SAVE],
    ),
)  # fmt: skip

DOUBTS = (  # of what is reported as a save
    Combination(
        "only a rhythm", Hypothesis.SAVE, "what evaluations yield has a rhythm, too; nothing shows care for the files",
        all=("weak-name",), none=("word", "step", "renamed", "overwrites", "rotates", "resumed"),
    ),
)  # fmt: skip

TABLE = DecisionTable(
    rows={row.signal: row for row in ROWS},
    needed=NEEDED,
    overrides=OVERRIDES,
    deferrals=DEFERRALS,
    doubts=DOUBTS,
    series_of_data=SERIES_OF_DATA,
)
