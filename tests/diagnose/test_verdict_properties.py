"""Whatever was measured: accounts add up, no promise is longer than what was or below the ceiling, nothing raises."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.diagnose.hand import GIB, START_NS, device, measured, ns, save, thread

from ckptprof.diagnose.accounts.accounts import ORDER, account
from ckptprof.diagnose.accounts.claims import ClaimInputs
from ckptprof.diagnose.accounts.path import critical
from ckptprof.diagnose.context import gather_context
from ckptprof.diagnose.diagnosis import diagnose
from ckptprof.diagnose.tolerances import SLIGHT
from ckptprof.diagnose.verdict.gains import gain
from ckptprof.diagnose.verdict.verdict import totals
from ckptprof.measures import Measures
from ckptprof.model import Checkpoint, Kind, Level
from ckptprof.verdicts import Cost, Limit, Verdict

_LOOKS = (
    "data",
    "sync",
    "close",
    "create",
    "rename",
    "unlink",
    "metadata",
    "fault",
    "network",
    "lock",
    "sleep",
    "running",
)
_SETTINGS = ("hybrid_io", "hybrid_io_write_threshold_bytes", "grant_bytes", "osts", "writes", "pcc_hit_bytes")
_MOMENT = st.integers(START_NS - 20 * 10**9, START_NS + 60 * 10**9) | st.integers(-(2**62), 2**62)
_NUMBER = st.integers(0, 2**50)
_FLOAT = st.floats(0, 1e12)


def _of(type_: Any, name: str) -> st.SearchStrategy[Any]:
    """Return a strategy for a field: wild numbers for numbers, None where that may be."""
    text = str(type_)
    structs = [one for one in getattr(type_, "__args__", ()) if hasattr(one, "__struct_fields__")]
    if structs and text.startswith("tuple"):
        return st.lists(_wild(structs[0]), max_size=3).map(tuple)
    if "dict" in text:
        values = st.dictionaries(
            st.sampled_from(_LOOKS + _SETTINGS) | st.text(max_size=4), st.integers(0, 10**6), max_size=6
        )
    elif name.endswith("_ns") and name.startswith(("start", "end", "first", "last")):
        values = _MOMENT
    elif "bool" in text:
        values = st.booleans()
    elif "float" in text:
        values = _FLOAT
    elif "int" in text:
        values = _NUMBER if name not in ("pid", "rank") else st.integers(0, 3)
    else:
        values = st.sampled_from(
            ["a", "nfs4", "ext4", "lustre", "WRITE", "COMMIT", "FULL", "nic", "loopback", "trainer", "child"]
        )
    return st.none() | values if "None" in text else values


def _wild(struct: Any) -> st.SearchStrategy[Any]:
    fields = {field.name: _of(field.type, field.name) for field in msgspec.structs.fields(struct)}
    return st.fixed_dictionaries(fields).map(lambda told: struct(**told))


def _measures() -> st.SearchStrategy[Measures]:
    told = {}
    for field in msgspec.structs.fields(Measures):
        options = [one for one in getattr(field.type, "__args__", ()) if hasattr(one, "__struct_fields__")]
        if str(field.type).startswith("tuple"):
            told[field.name] = _of(field.type, field.name)
        elif options:
            told[field.name] = st.none() | _wild(options[0])
        else:
            told[field.name] = st.none() | _NUMBER
    return st.fixed_dictionaries(told).map(lambda known: Measures(**known))


_CHECKPOINTS = st.builds(
    lambda known, level, length, kind, moved, files, ranks: save(
        level, length, known, kind=kind, bytes=moved, files=files, ranks=ranks
    ),
    st.none() | _measures(), st.sampled_from(Level), st.floats(0, 100), st.sampled_from(Kind),
    st.integers(0, 2**45), st.integers(0, 10**6), st.none() | st.integers(0, 64),
)  # fmt: skip


@settings(max_examples=50)
@given(_CHECKPOINTS, st.lists(_CHECKPOINTS, max_size=2))
def test_no_measures_raise_or_break_the_account(checkpoint: Checkpoint, history: list[Checkpoint]) -> None:
    """Contradictory and missing numbers included; what detection subtracts is never negative or endless."""
    told = diagnose(checkpoint, history)
    if checkpoint.kind is Kind.COPY:
        assert told.verdict is None
        assert told.cost is None
        return
    verdict = told.verdict
    assert verdict is not None
    assert all(one.seconds > 0 for one in verdict.accounts)
    assert sum(one.seconds for one in verdict.accounts) == pytest.approx(verdict.seconds, rel=1e-6)
    assert verdict.seconds >= (checkpoint.end_ns - checkpoint.start_ns) / 1e9 - 1e-6
    assert 0 <= verdict.confidence <= 1
    assert verdict.sentence
    if verdict.expected_seconds is not None:
        assert 0 <= verdict.expected_seconds <= verdict.seconds + 1e-6
    assert msgspec.json.decode(msgspec.json.encode(verdict), type=Verdict) == verdict
    assert msgspec.json.decode(msgspec.json.encode(told.cost), type=Cost) == told.cost


@settings(max_examples=50)
@given(_CHECKPOINTS)
def test_no_step_takes_a_second_twice_or_loses_one(checkpoint: Checkpoint) -> None:
    """What each leaves and what it puts into accounts is what was there before; no part is less than nothing."""
    sight = gather_context(checkpoint)
    path = critical(sight)
    known, left = ClaimInputs(sight, path, None, 1.0, None, 0.0), path.time.parts
    for step in ORDER:
        claim = step(known, left)
        spent = sum(one.seconds for one in claim.charges)
        assert claim.left.total + spent == pytest.approx(left.total, rel=1e-9, abs=1e-6), step
        assert all(-1e-9 <= one < math.inf for one in claim.left.seconds.values()), step
        left = claim.left


def test_renames_without_a_file_are_an_account() -> None:
    """A save of no bytes in no file whose thread renames has no size of a file to name."""
    renaming = thread(Level.TRACE, 2.0, moved=0, rename=1.9)
    verdict = diagnose(save(Level.TRACE, 2.0, measured(renaming), bytes=0, files=0)).verdict

    assert verdict is not None
    assert Limit.METADATA in {one.limit for one in verdict.accounts}


_SECONDS = st.floats(0, 20)


@settings(max_examples=80)
@given(st.tuples(*[_SECONDS] * 6), st.sampled_from(Level), st.floats(1e8, 1e10))
def test_no_promise_is_longer_than_it_took_or_faster_than_the_device(
    times: tuple[float, ...], level: Level, shown: float
) -> None:
    """Each limit in turn; what is left without it is the time of the others, each of which is left whole."""
    user, copy, data, sync, create, runqueue = times
    whole = sum(times)
    if whole < 0.1:
        return
    at = thread(level, whole, user=user, copy=copy, data=data, sync=sync, create=create, runqueue=runqueue)
    known = measured(at, devices=(device(whole, shown_bytes_per_second=shown),))
    found = account(gather_context(save(level, whole, known)))
    assert found.seconds == pytest.approx(whole, abs=2e-6)  # parts under a microsecond are rounding errors
    assert found.runnable == pytest.approx(runqueue, abs=1e-6)
    for limit, spent in totals(found):
        told = gain(found, limit, None)
        expected, own = told.expected_seconds, found.runnable if limit is Limit.CPU else spent
        waits = 0.0 if limit is Limit.CPU else found.runnable  # of its work, at most all
        assert found.seconds - own - waits - 1e-6 <= expected <= found.seconds + 1e-6
        assert told.capped_by != limit.value
        if limit in (Limit.CPU, Limit.SERIALIZE) and "disk" not in (told.capped_by or ""):
            assert expected == pytest.approx(found.seconds - own, abs=1e-6) or limit is Limit.SERIALIZE
        if limit is Limit.SERIALIZE and found.waiting > SLIGHT * found.seconds:
            assert expected >= min(GIB / max(shown, 10 * GIB / whole), found.seconds) - 1e-6


@settings(max_examples=40)
@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0.1, 10), st.integers(1, 4)), min_size=1, max_size=6))
def test_threads_that_overlap_add_up_to_the_path_once(spans: list[tuple[float, float, int]]) -> None:
    """Several threads and ranks, one after the other and side by side; the path is as long as the save."""
    threads = []
    for number, (begin, length, pid) in enumerate(spans):
        one = thread(Level.TRACE, length, begin=begin, user=length / 2, copy=length / 4, sync=length / 4)
        threads.append(msgspec.structs.replace(one, pid=pid, tid=number))
    whole = max(begin + length for begin, length, _ in spans)
    found = account(gather_context(save(Level.TRACE, whole, measured(*threads)))).accounts
    assert sum(one.seconds for one in found) == pytest.approx(whole, abs=1e-6)


def test_more_time_before_the_first_byte_is_more_path() -> None:
    """It begins when training stood still for it."""
    at = thread(Level.TRACE, 2, copy=2)
    assert sum(
        one.seconds for one in account(gather_context(save(Level.TRACE, 2, measured(at)))).accounts
    ) == pytest.approx(2)
    from ckptprof.measures import BeforeMeasure  # noqa: PLC0415 - of this test only

    before = BeforeMeasure(blocked_ns=ns(3))
    longer = save(Level.TRACE, 2, measured(at, before=before), stall_ns=ns(5))
    assert sum(one.seconds for one in account(gather_context(longer)).accounts) == pytest.approx(5)
