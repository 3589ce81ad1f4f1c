"""The signs for and against: each one small function of a candidate and what is known around it."""

from __future__ import annotations

from collections.abc import Callable

from ckptprof.detect.events.candidates import Candidate
from ckptprof.detect.events.copies import copies
from ckptprof.detect.events.knowledge import Knowledge
from ckptprof.detect.events.signals import course, foreign, names, passes, reads, series, who
from ckptprof.model import Evidence

Signal = Callable[[Candidate, Knowledge], Evidence | None]

SIGNALS: tuple[Signal, ...] = (
    names.named,
    names.formatted,
    names.hinted,
    who.runtime,
    who.rank,
    who.computes,
    who.tool,
    who.service,
    course.renamed,
    course.committed,
    course.tensors,
    course.bulk,
    course.appends,
    course.random,
    series.recurs,
    series.regular,
    series.overwrites,
    series.rotates,
    series.shards,
    series.workers,
    series.continuous,
    series.rapid,
    reads.read_back,
    reads.read_again,
    reads.feeds,
    foreign.data,
    foreign.placed,
    foreign.foreign,
    foreign.received,
    foreign.downloaded,
    copies,
    passes.uploads,
    passes.straight,
    passes.unsought,
    passes.several,
    passes.unkept,
    passes.sent,
    passes.ends,
)
