"""Each rule is whole, and the first that fits is the one that is told."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from tests.diagnose.hand import GIB, MIB, device, far, link, local, measured, memory, ns, process, restore, save, thread

from ckptprof.diagnose.causes import AttributedTime, Cause
from ckptprof.diagnose.context import gather_context
from ckptprof.diagnose.diagnosis import diagnose
from ckptprof.diagnose.rules import RULES, CauseRule
from ckptprof.measures import BeforeMeasure, MountMeasure
from ckptprof.model import Checkpoint, Level, Metadata, Mode, Overhead, Pattern, Writer
from ckptprof.verdicts import Limit


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_says_what_it_is_and_what_to_do(rule: CauseRule) -> None:
    """In one line each."""
    assert rule.limits
    remedies = (rule.remedy, rule.remedy_of_restore or rule.remedy)
    for text in (rule.name, *remedies, rule.reference):
        assert text.strip() == text != ""
        assert "\n" not in text
    assert max(map(len, remedies)) < 170
    assert rule.match(gather_context(save(Level.POLL, 1, None)), ()) is None or rule.name == "previous"


def test_every_limit_has_a_remedy_and_every_rule_a_name_of_its_own() -> None:
    """Only what is unclear or nothing may stay without one."""
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert {limit for rule in RULES for limit in rule.limits} == set(Limit)


def test_every_rule_can_be_told_of_each_of_its_limits() -> None:
    """None before it explains one of them whatever was seen."""
    taken: dict[Limit, str] = {}
    for rule in RULES:
        assert not taken.keys() & set(rule.limits), rule.name
        if not (rule.condition or rule.words or rule.saving or rule.causes):
            taken |= dict.fromkeys(rule.limits, rule.name)


@pytest.mark.parametrize("limit", [Limit.DEVICE, Limit.SMALL_IO, Limit.NETWORK, Limit.SERIALIZE, Limit.STRAGGLER])
def test_who_restores_is_not_told_how_to_save(limit: Limit) -> None:
    """The same cause asks for something else."""
    accounts = (AttributedTime(Cause.STARVED, limit, 9.0, "ready to run without a CPU"),)
    told = []
    for sight in (gather_context(save(Level.TRACE, 10, None)), gather_context(restore(Level.TRACE, 10, None))):
        rule = next(one for one in RULES if limit in one.limits and one.match(sight, accounts))
        told.append(rule.remedy_for(sight))

    assert told[0] != told[1]
    assert not {"save", "write", "writes", "writer"} & set(re.findall(r"\w+", told[1]))


def cause(checkpoint: Checkpoint, *history: Checkpoint) -> str | None:
    """Return the name of the rule that fits best."""
    verdict = diagnose(checkpoint, history).verdict
    assert verdict is not None
    return verdict.cause


@pytest.mark.parametrize("level", [Level.TRACE, Level.POLL])
def test_python_stacks_refine_serialisation(level: Level) -> None:
    """The same seconds on CPU, with other stacks."""
    at = thread(level, 20, user=18, copy=2)
    told = {
        name: cause(save(level, 20, measured(at, processes=(process(stacks={name: 10, "write": 1}),))))
        for name in ("crc", "compress", "pickle", "copy", "other")
    }
    assert [*told.values()] == ["crc", "compression", "objects", "copies", "single-thread"]
    for path, name in (("/ckpt/step_1.pt.gz", "compression"), ("/ckpt/step_1.pt", "single-thread")):
        assert cause(save(level, 20, measured(at), path=path)) == name  # without stacks the name of its file shows it


@pytest.mark.parametrize(("sent", "is_told"), [(GIB, True), (GIB // 4, False), (0, False), (None, False)])
def test_what_gpus_sent_over_pcie_speaks_for_copies(sent: Any, *, is_told: bool) -> None:
    """Of tensors that are copied one by one, and of a state that is staged: as much as a third of it, and more."""
    at = thread(Level.TRACE, 20, user=18, copy=2)
    copied = save(Level.TRACE, 20, measured(at, processes=(process(stacks={"copy": 10}),), gpu_sent_bytes=sent))
    before = BeforeMeasure(blocked_ns=ns(20), grown_bytes=GIB, growing_ns=ns(19), busy=0.1)
    at = thread(Level.TRACE, 2, copy=2)
    staged = save(Level.TRACE, 2, measured(at, before=before, gpu_sent_bytes=sent), stall_ns=ns(22))
    for checkpoint, name in ((copied, "copies"), (staged, "staging")):
        verdict = diagnose(checkpoint).verdict
        assert verdict is not None
        assert verdict.cause == name
        told = any("its GPUs sent 1.07 GB over PCIe since the previous sample" in one for one in verdict.evidence)
        assert told == is_told


def test_a_thread_of_the_trainer_fights_for_its_lock() -> None:
    """In the background; another process does not, nor does one that is seen to compress, without the lock."""
    at = thread(Level.TRACE, 20, user=18, copy=2)
    for role, stacks, name in (
        ("thread", None, "gil"), ("daemon", None, "single-thread"), ("thread", {"pickle": 9}, "gil"),
        ("thread", {"compress": 9}, "compression"),
    ):  # fmt: skip
        writers = (Writer(pid=100, comm="python", bytes=GIB, role=role),)
        known = measured(at, processes=(process(stacks=stacks),))
        assert cause(save(Level.TRACE, 20, known, mode=Mode.ASYNC, stall_ns=0, writers=writers)) == name


def test_what_is_behind_the_mount_changes_the_remedy() -> None:
    """Syncs, page faults and a slow server, near and far."""
    at = thread(Level.TRACE, 20, copy=1, sync=19)
    synced = {"metadata": Metadata(synced=5000)}
    assert cause(save(Level.TRACE, 20, measured(at, devices=(device(20),)), **synced)) == "sync-pieces"
    assert cause(save(Level.TRACE, 20, measured(at, mount=far(), links=(link(),)), **synced)) == "sync-far"
    fuse = MountMeasure(mount_point="/ckpt", fs_type="fuse.s3fs", source="s3fs", remote=True)
    assert cause(save(Level.TRACE, 20, measured(at, mount=fuse, links=(link(),)), **synced)) == "flush-each"
    assert cause(save(Level.TRACE, 20, measured(at, mount=far(), links=(link(),)))) == "single-stream"
    lustre = MountMeasure(mount_point="/ckpt", fs_type="lustre", source="mgs:/x", remote=True)
    assert cause(save(Level.TRACE, 20, measured(at, mount=lustre, links=(link(),)))) == "stripes"
    mapped = Pattern(class_=None, mapped_share_bytes=1.0)
    faults = {"processes": (process(major_faults=30_000, faulted_bytes=GIB),)}
    faulting = thread(Level.TRACE, 20, user=1, copy=0)
    near = restore(Level.TRACE, 20, measured(faulting, mount=local(), **faults), pattern=mapped)
    assert cause(near) == "mapped"
    away = restore(Level.TRACE, 20, measured(faulting, mount=far(), **faults), pattern=mapped)
    assert cause(away) == "mapped-far"


def test_bytes_written_twice_are_named_before_the_device() -> None:
    """Staging and duplicates have remedies of their own."""
    at = thread(Level.TRACE, 20, copy=1, sync=19)
    slow = measured(at, devices=(device(20, busy_seconds=19),))
    for reason, name in (("staging", "staging-copy"), ("duplicate", "saved-twice"), ("consolidation", "joined")):
        more = (Overhead(reason=reason, bytes=GIB, text="twice"),)
        assert cause(save(Level.TRACE, 20, slow, overheads=more)) == name
    assert cause(save(Level.TRACE, 20, slow)) == "slow-device"


def test_others_data_is_waited_for_by_sync() -> None:
    """The device wrote ten times the checkpoint; beside a small one a log or a journal writes as much."""
    at = thread(Level.TRACE, 60, copy=1, sync=59)
    much = (device(60, 10 * GIB, busy_seconds=59),)
    for own, written, name in (
        (GIB, 10 * GIB, "sync-all"),
        (MIB, 120 * MIB, "slow-device"),
        (MIB, 136 * MIB, "sync-all"),
    ):
        known = measured(at, devices=(device(60, written, busy_seconds=59),))
        assert cause(save(Level.TRACE, 60, known, bytes=own)) == name
    for metadata, name in ((Metadata(synced=1, synced_all=1), "sync-all"), (Metadata(synced=1), "slow-device")):
        assert cause(save(Level.TRACE, 60, measured(at, devices=much), metadata=metadata)) == name


def test_an_asynchronous_save_is_not_advised_to_be_asynchronous() -> None:
    """On a slow device."""
    slow = measured(thread(Level.TRACE, 20, copy=1, sync=19), devices=(device(20, busy_seconds=19),))
    for mode in (Mode.SYNC, Mode.ASYNC):
        verdict = diagnose(save(Level.TRACE, 20, slow, mode=mode, stall_ns=ns(10))).verdict
        assert verdict is not None
        assert ("async" in str(verdict.remedy)) is (mode is Mode.SYNC)


def test_small_direct_writes_are_told_to_grow() -> None:
    """Of the one device each operation waits, and it has nothing else to do."""
    at = thread(Level.TRACE, 30, copy=1, data=29)
    few = device(30, writes=GIB // 4096, busy_seconds=20)
    small = Pattern(class_=None, median_operation_bytes=4096, direct_share_bytes=1.0)
    assert cause(save(Level.TRACE, 30, measured(at, devices=(few,)), pattern=small)) == "small-io"


def test_the_wait_before_the_first_byte_is_planning_or_gathering() -> None:
    """By what came in."""
    at = thread(Level.TRACE, 2, copy=2)
    for received, name in ((GIB, "gathered"), (MIB, "planning")):
        before = BeforeMeasure(blocked_ns=ns(20), received_bytes=received, busy=0.9)
        assert cause(save(Level.TRACE, 2, measured(at, before=before), ranks=8, stall_ns=ns(22))) == name


@pytest.mark.parametrize("mount", [local(), far()])
def test_one_writer_of_eight_ranks_is_one_wherever_it_writes(mount: MountMeasure) -> None:
    """Rank 0 packs and sends all of it, the others wait, and neither device nor link is at its limit."""
    idle = tuple(process(pid=101 + rank, rank=1 + rank, bytes=0, busy=0.0) for rank in range(7))
    below = {"devices": (device(16),)} if not mount.remote else {"links": (link(),)}
    at = thread(Level.TRACE, 16, user=10, copy=2, data=4)

    found = measured(at, processes=(process(), *idle), mount=mount, **below)
    assert cause(save(Level.TRACE, 16, found, ranks=8)) == "single-writer"


@pytest.mark.parametrize(("busy", "helpers", "name"), [(2.0, None, "pool"), (1.0, None, "gil"), (0.1, 1.8, "pool"),
                                                       (0.1, 0.9, "single-thread")])  # fmt: skip
def test_a_pool_is_not_advised_to_be_one(busy: float, helpers: float | None, name: str) -> None:
    """Threads that run together, threads that share one core, children that compute together, and a single one."""
    at = thread(Level.TRACE, 10, user=0.1, copy=0.1, other={"lock": 9.8})
    at = msgspec.structs.replace(at, samples=98, samples_by_state={"lock": 98})
    pool = save(Level.TRACE, 10, measured(at, processes=(process(busy=busy),)))
    if helpers is not None:
        at = thread(Level.TRACE, 1, user=0.1, copy=0.9)
        before = BeforeMeasure(blocked_ns=ns(10), busy=busy, helpers_busy=helpers)
        pool = save(Level.TRACE, 1, measured(at, before=before), stall_ns=ns(11))
    assert cause(pool) == name


def test_a_promise_is_that_of_its_remedy() -> None:
    """What the remedy leaves of the limit is still paid: pickling without CRC, the first copy, the job's own data.

    The CPU that small calls past the page cache take is theirs: large ones hardly take any.
    """
    small = thread(Level.TRACE, 10, copy=3, data=7)
    few = (device(10, writes=GIB >> 14),)
    direct = Pattern(class_=None, median_operation_bytes=1 << 14, direct_share_bytes=1)
    pickling = thread(Level.TRACE, 20, user=18, copy=2)
    asleep = thread(Level.TRACE, 20, copy=1, sync=19)
    busy = (device(20, busy_seconds=19),)
    twice = (Overhead(reason="staging", bytes=GIB, text="twice"),)
    read = msgspec.structs.replace(asleep, data_call_ns=ns(20), sync_call_ns=0)
    for checkpoint, name, expected in (
        (save(Level.TRACE, 20, measured(pickling, processes=(process(stacks={"crc": 5, "pickle": 4}),))), "crc", 10),
        (save(Level.TRACE, 20, measured(asleep, devices=busy), overheads=twice), "staging-copy", 10.5),
        (save(Level.TRACE, 20, measured(asleep, devices=(device(20, 10 * GIB, busy_seconds=19),))), "sync-all", 2.9),
        (
            restore(Level.TRACE, 20, measured(read, devices=(device(20, 0, read_bytes=GIB),)), unique_bytes=GIB // 2),
            "read-by-all",
            10.5,
        ),
        (save(Level.TRACE, 10, measured(small, devices=few), pattern=direct), "small-io", GIB / 2e9),
    ):
        verdict = diagnose(checkpoint).verdict
        assert verdict is not None
        assert (verdict.cause, verdict.expected_seconds) == (name, pytest.approx(expected))


@pytest.mark.parametrize(
    ("available", "role", "name"),
    [(50 * GIB, "trainer", "staging"), (50 * GIB, "child", "shared-memory"), (2 * GIB, "child", "staging-memory")],
)
def test_staging_is_short_of_memory_or_goes_to_another_process_or_is_a_copy(
    available: int, role: str, name: str
) -> None:
    """The same copy of 1 GiB in four seconds: into 64 GiB that are nearly full, for a child that writes, by itself."""
    writers = (Writer(pid=100, comm="python", bytes=GIB, role=role),)
    before = BeforeMeasure(blocked_ns=ns(4), grown_bytes=GIB, growing_ns=ns(4), received_bytes=0, busy=0.2)
    told = measured(
        thread(Level.TRACE, 2, copy=0.4),
        before=before,
        memory=memory(available_min_bytes=available),
        devices=(device(2),),
    )

    assert cause(save(Level.TRACE, 2, told, stall_ns=ns(4), mode=Mode.ASYNC, writers=writers)) == name


@pytest.mark.parametrize(("available", "name"), [(50 * GIB, "mapped"), (2 * GIB, "mapped-pressed")])
def test_pages_that_are_dropped_and_fetched_again_are_named(available: int, name: str) -> None:
    """A restore by page faults on a local device: of 64 GiB of memory hardly any is left."""
    faults = (process(major_faults=30_000, faulted_bytes=GIB),)
    at = thread(Level.TRACE, 20, user=1)
    told = measured(at, processes=faults, memory=memory(available_min_bytes=available))

    assert cause(restore(Level.TRACE, 20, told, pattern=Pattern(class_=None, mapped_share_bytes=1.0))) == name


@pytest.mark.parametrize(("ranks", "name"), [(1, "many-files"), (8, "many-files-ranks")])
def test_files_made_by_all_ranks_are_a_storm(ranks: int, name: str) -> None:
    """20,000 files of 8 KiB, made by one rank or by eight that write alike."""
    writers = tuple(Writer(pid=100 + rank, comm="python", bytes=160 * MIB // ranks, rank=rank) for rank in range(ranks))
    small = {"files": 20_000, "bytes": 160 * MIB, "metadata": Metadata(created=20_000)}
    at = thread(Level.TRACE, 9, user=2, copy=1, create=6, moved=160 * MIB // ranks)
    told = measured(at, devices=(device(9, 160 * MIB),))

    assert cause(save(Level.TRACE, 9, told, ranks=ranks, writers=writers, **small)) == name


@pytest.mark.parametrize(("unique", "name"), [(GIB, "slow-device"), (GIB // 4, "read-by-all")])
def test_what_every_rank_reads_whole_is_read_once_too_often(unique: int, name: str) -> None:
    """Four ranks read 256 MiB each from one disk: of parts of their own, or all of the same file."""
    writers = tuple(Writer(pid=100 + rank, comm="python", bytes=GIB // 4, rank=rank) for rank in range(4))
    disk = device(20, 0, read_bytes=GIB, reads=2_048, busy_seconds=19.5)
    at = thread(Level.TRACE, 20, copy=1, data=19, moved=GIB // 4)

    told = restore(Level.TRACE, 20, measured(at, devices=(disk,)), ranks=4, writers=writers, unique_bytes=unique)
    assert cause(told) == name


@pytest.mark.parametrize(
    ("read", "more", "name"),
    [
        (0, {}, "slow-device"),
        (GIB, {"unique_bytes": GIB // 2}, "read-modify-write"),
        (GIB, {"unique_bytes": GIB}, "slow-device"),  # copied
        (0, {"overheads": (Overhead(reason="rewrite", bytes=GIB, text="written over"),)}, "read-modify-write"),
    ],
)
def test_a_save_that_changes_what_it_wrote_is_told_to_write_anew(read: int, more: dict[str, Any], name: str) -> None:
    """Chunks that are read back to be changed, or written over and over, on a disk that is busy throughout."""
    at = msgspec.structs.replace(thread(Level.TRACE, 20, copy=1, data=19), read_bytes=read)

    assert cause(save(Level.TRACE, 20, measured(at, devices=(device(20, busy_seconds=19.5),)), **more)) == name


def test_a_warm_restore_is_told_how_to_test_the_storage() -> None:
    """Nothing was slow, and nothing is said of the storage."""
    at = thread(Level.TRACE, 2, user=0.2, copy=1.8)
    warm = restore(Level.TRACE, 2, measured(at), cache="warm")
    assert cause(warm) == "warm"


@pytest.mark.parametrize(
    "name", ["limited to", "waiting for a CPU", "too much was dirty", "queueing discipline", "copying"]
)
def test_a_device_cannot_pass_for_a_cause_by_its_name(name: str) -> None:
    """A cause is an identity: what stands in a text, names of the machine among it, decides nothing."""
    at = thread(Level.TRACE, 20, copy=1, sync=19)
    plain = save(Level.TRACE, 20, measured(at, devices=(device(20, busy_seconds=19),)))
    named = save(Level.TRACE, 20, measured(at, devices=(device(20, busy_seconds=19, device=name),)))

    assert cause(named) == cause(plain) == "slow-device"
