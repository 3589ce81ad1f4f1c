"""All weights in one place. A candidate is recognised from a sum of 0.6; none of them is meant to decide alone.

How they were set: a known name that a trainer writes must pass without anything else (name + runtime); an unknown name
must need a trainer and a series, or a series with two signs of care for the files (renamed, rotated, overwritten); what
a data set does must outweigh the weak names (`.pt`, `.npy`, `.safetensors`), never all the marks of a framework.
"""

from __future__ import annotations

WEIGHTS: dict[str, float] = {
    # what the files are called and how they begin
    # (a framework's names: 0.6 if nothing else is called so, less if data sets are: Framework.weight)
    "format-safetensors": 0.25,
    "format-torch-zip": 0.2,
    "format-gguf": 0.2,
    "format-keras": 0.2,
    "format-hdf5": 0.1,
    "format-npz": 0.075,
    "format-npy": 0.075,
    "format-pickle": 0.075,
    "format-zip": 0.05,
    "step": 0.4,
    "word": 0.3,
    # who
    "runtime-training": 0.35,
    "runtime-training-gpu": 0.45,
    "runtime-gpu": 0.35,
    "runtime-numeric": 0.25,
    "runtime-none": -0.4,
    "rank": 0.1,
    "computes": 0.15,
    "tool": -0.8,
    "service": -1.2,  # even snapshots that it takes often and rotates are not a model's
    # how one candidate was written
    "renamed": 0.15,
    "commit": 0.2,
    "tensors": 0.1,
    "bulk": 0.1,
    "appends": -0.5,
    "random": -0.4,
    # how it stands among what the job did before
    "recurs": 0.15,  # each time, twice at most
    "regular": 0.2,
    "overwrites": 0.2,
    "rotates": 0.3,
    "shards": -0.7,
    "workers": -0.6,
    "continuous": -0.5,
    "rapid": -0.7,
    "endless": -2.0,
    # of reads
    "read-back": 0.5,
    "read-again": 0.4,
    "feeds": -0.5,
    # what it is instead
    "data": -1.0,
    "place": -1.2,
    "foreign": -1.5,
    "copies": -0.7,
    "copies-exactly": -0.9,
    "received": -0.5,
    "downloaded": -0.5,
    "uploads": -0.7,
    # that it only passed through its process: see PASSED
    "straight": -0.3,
    "unsought": -0.15,
    "several": -0.15,
    "unkept": -0.35,
    "sent": -0.25,
    "ends": -0.2,
}
PASSING = frozenset(("straight", "unsought", "several", "unkept", "sent", "ends"))
PASSED = -0.59  # of these in sum: it was sent or checked, not restored
BEHAVIOUR = frozenset(("recurs", "regular", "overwrites", "rotates", "commit", "rank", "computes", "read-again"))
SERIES_AGAINST = frozenset(("shards", "workers", "continuous", "rapid"))
FATAL = SERIES_AGAINST | frozenset(
    ("service", "data", "place", "foreign", "appends", "random", "tool", "copies", "received", "downloaded")
)  # what is not held for the case that it comes again
MOVED = frozenset(("tool", "copies", "received", "downloaded", "uploads"))
LIKENESS = frozenset(("name", "format", "step", "word", "read-back", "commit", "data", "place", "foreign"))
