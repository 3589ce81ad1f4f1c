"""Detection keeps its budget in bytes: a burst is forgotten early, and memory goes back after it."""

from __future__ import annotations

import gc
import sys
import types
from functools import partial

import msgspec
import pytest
from tests.detect.sockets import tcp
from tests.detect.stage import SECOND_NS, Actor, Stage
from tests.detect.tracer import activity, life

from ckptprof.detect.budget import Budget, RetainedKind, retained_kinds
from ckptprof.detect.pipeline import Detector
from ckptprof_collectors.samples import Frame, ProcessInfo, Sample, SocketTraffic

_EACH = 1000  # files of one second
_BUDGET_BYTES = 8_000_000
_SOURCE = "/work/tree/folder-{}/module_{}.py"  # no part of a checkpoint: it does not wait
_TOOL = ProcessInfo(200, 2000, 10, 1000, "tar", "tar", (), {}, "/user.slice")


def fed(detector: Detector, stage: Stage, at_s: float, samples: list[Sample]) -> None:
    """Give it the frame of one tick."""
    at_ns = stage.header().at_ns + int(at_s * SECOND_NS)
    frame = Frame(at_ns, stage.wall(at_s), ("processes",), tuple(samples))
    detector.ingest(msgspec.msgpack.decode(msgspec.msgpack.encode(frame), type=Frame))  # its numbers are its own


def burst(detector: Detector, stage: Stage, start_s: int, files: int, path: str = _SOURCE) -> int:
    """Let a tool unpack many files; return the second in which it ends."""
    for second in range(start_s, end_s := start_s + files // _EACH):
        samples: list[Sample] = [_TOOL]
        for inode in range(second * _EACH, (second + 1) * _EACH):
            one = path.format(inode % 97, inode)
            samples.append(life("created", second, 200, inode=inode, path=one))
            samples.append(activity(200, one, second, second + 0.1, 9000, inode=inode))
        fed(detector, stage, second + 0.5, samples)
    return end_s


def quiet(detector: Detector, stage: Stage, start_s: int, end_s: int) -> None:
    """Let nothing happen."""
    for second in range(start_s, end_s):
        fed(detector, stage, second + 0.5, [])


def test_a_burst_is_forgotten_early_and_memory_goes_back() -> None:
    """What waits is kept whole; once it was judged the budget holds, and minutes later nothing is left of it."""
    stage = Stage()
    detector = Detector(stage.header())
    quiet(detector, stage, 0, 10)
    before_bytes = detector.retained_bytes
    end_s = burst(detector, stage, 10, 20_000)
    quiet(detector, stage, end_s, end_s + 90)

    assert detector.retained_bytes < _BUDGET_BYTES
    assert detector.forgotten_bytes > 10_000_000, "20,000 files are more than fits"

    quiet(detector, stage, end_s + 90, end_s + 300)

    # of the files written last the authors are remembered, for whoever reads them
    assert detector.retained_bytes < before_bytes + 2_000_000


def test_what_fits_is_not_forgotten_before_its_time() -> None:
    """The counter speaks of a full budget only."""
    stage = Stage()
    detector = Detector(stage.header())
    end_s = burst(detector, stage, 10, 2000)
    quiet(detector, stage, end_s, end_s + 300)

    assert detector.forgotten_bytes == 0


def test_the_estimate_is_near_to_what_the_objects_take() -> None:
    """Sizes are constants: they have to follow the objects that they stand for."""
    stage = Stage()
    detector = Detector(stage.header())
    quiet(detector, stage, 0, 10)
    before_bytes, before_kept = deep_bytes(detector), detector.retained_bytes
    end_s = burst(detector, stage, 10, 4000, "/work/checkpoint_5/folder-{}/part_{}.bin")
    waiting_bytes, waiting_kept = deep_bytes(detector) - before_bytes, detector.retained_bytes - before_kept
    assert len(detector.known.transfers.waiting) == 4000
    quiet(detector, stage, end_s, end_s + 20)
    took_bytes, kept = deep_bytes(detector) - before_bytes, detector.retained_bytes - before_kept

    assert waiting_kept == pytest.approx(waiting_bytes, rel=0.3)
    assert kept == pytest.approx(took_bytes, rel=0.3)
    assert waiting_bytes < 2100 * 4000


def test_what_goes_over_connections_is_in_the_budget() -> None:
    """Of hundreds of processes that receive over as many connections, for half an hour."""
    stage = Stage()
    detector = Detector(stage.header())
    quiet(detector, stage, 0, 10)
    before_bytes, before_kept = deep_bytes(detector), detector.retained_bytes
    for second in range(10, 400):
        came = second << 20
        counted: list[Sample] = [
            SocketTraffic(
                pid=pid, start_ticks=pid, remote="10.0.0.9", port=443, local_port=50_000, sockets=2, sent_bytes=came,
                received_bytes=came, sends=second, receives=second, send_start_ns=second * SECOND_NS,
                sent_ns=second * SECOND_NS, receive_start_ns=second * SECOND_NS, received_ns=second * SECOND_NS,
                parts=0, parts_bytes=0, part_bytes=None, answers=0, answers_bytes=0, tid=pid,
            )
            for pid in range(1000, 1100)
        ]  # fmt: skip
        looked: list[Sample] = [
            tcp(Actor(pid, msgspec.structs.replace(_TOOL, pid=pid, start_ticks=pid)), _grown, second)
            for pid in range(1000, 1100)
        ]
        fed(detector, stage, second + 0.5, [*counted, *looked])
    took_bytes = deep_bytes(detector) - before_bytes
    kept_bytes = detector.retained_bytes - before_kept

    assert 0.6 * took_bytes < kept_bytes < 1.6 * took_bytes
    for kind in retained_kinds(detector.known):
        if kind.shrink is not None:
            kind.shrink(1 / 8)
    assert detector.retained_bytes - before_kept < kept_bytes // 2


def test_a_kind_that_holds_little_loses_nothing() -> None:
    """Shares are of bounds: the large kinds are cut, to their least in the end, and what cannot be cut is borne."""
    large, small, fixed = list(range(800)), list(range(10)), list(range(500))
    cut = [RetainedKind(10, one.__len__, partial(_keep, one)) for one in (large, small)]
    budget = Budget([*cut, RetainedKind(10, fixed.__len__)], limit_bytes=8000)
    budget.shrink_to_limit()

    assert (len(small), len(fixed)) == (10, 500)
    assert budget.retained_bytes <= 8000
    assert large == list(range(800))[-len(large) :], "the oldest go first"
    assert len(large) == 253, "and no more of them than it takes, by a quarter each time"
    assert budget.forgotten_bytes == 10 * (800 - len(large))

    fixed.extend(range(5000))
    budget.shrink_to_limit()

    assert len(large) == 100
    assert len(small) == 10


def _grown(now_s: float) -> tuple[int, int]:
    return int(now_s) << 20, int(now_s) << 20


def _keep(held: list[int], share: float) -> None:
    del held[: max(0, len(held) - int(share * 800))]


def deep_bytes(root: object) -> int:
    """Return what an object takes, with all that it refers to but classes and functions."""
    seen: set[int] = set()
    waiting, found = [root], 0
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, (type, types.ModuleType, types.FunctionType, types.MethodType)):
            continue
        seen.add(id(one))
        found += sys.getsizeof(one)
        waiting += gc.get_referents(one)
    return found


def test_a_burst_is_cut_soon_and_what_waits_is_tried_seldom() -> None:
    """Files come at a steady rate; of those that may be cut no more stays than fits, and a quarter."""
    files, waiting, calls = list[int](), list[int](), list[int]()

    def cut(share: float) -> None:
        calls.append(len(waiting))
        _keep(files, share)

    budget = Budget([RetainedKind(10, lambda: len(files) + len(waiting), cut)], limit_bytes=4000)
    most = 0
    for number in range(2000):
        files.append(number)
        budget.shrink_after_burst()
        most = max(most, len(files))
    cuts = len(calls)
    for number in range(20_000):
        waiting.append(number)
        budget.shrink_after_burst()

    assert most <= 501
    assert 4 <= cuts < 100
    assert len(set(calls[cuts:])) < 30
