"""Each rule is whole, and the first that fits is the one that is told."""

from __future__ import annotations

import re

import pytest
from tests.diagnose.hand import GIB, MIB, device, far, link, local, measured, ns, process, restore, save, thread

from ckptprof.diagnose.causes import Cause, Spent
from ckptprof.diagnose.judging import diagnose
from ckptprof.diagnose.rules import RULES, Rule
from ckptprof.measures import BeforeMeasure, MountMeasure
from ckptprof.model import Checkpoint, Level, Metadata, Mode, Overhead, Pattern, Writer
from ckptprof.verdicts import Limit


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_says_what_it_is_how_it_is_excluded_and_what_to_do(rule: Rule) -> None:
    """In one line each."""
    assert rule.limits
    remedies = (rule.remedy, rule.remedy_of_restore or rule.remedy)
    for text in (rule.name, rule.exclusion, *remedies, rule.reference):
        assert text.strip() == text != ""
        assert "\n" not in text
    assert max(map(len, remedies)) < 170
    assert rule.applies(save(Level.POLL, 1, None), ()) is None or rule.name == "previous"


def test_every_limit_has_a_remedy_and_every_rule_a_name_of_its_own() -> None:
    """Only what is unclear or nothing may stay without one."""
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert {limit for rule in RULES for limit in rule.limits} == set(Limit)


@pytest.mark.parametrize("limit", [Limit.DEVICE, Limit.SMALL_IO, Limit.NETWORK, Limit.SERIALIZE, Limit.STRAGGLER])
def test_who_restores_is_not_told_how_to_save(limit: Limit) -> None:
    """The same cause asks for something else."""
    accounts = (Spent(Cause.STARVED, limit, 9.0, "ready to run without a CPU"),)
    told = []
    for checkpoint in (save(Level.TRACE, 10, None), restore(Level.TRACE, 10, None)):
        rule = next(one for one in RULES if limit in one.limits and one.applies(checkpoint, accounts))
        told.append(rule.remedy_for(checkpoint))

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
        for name in ("crc", "compress", "pickle", "other")
    }
    assert told == {"crc": "crc", "compress": "compression", "pickle": "objects", "other": "single-thread"}


def test_a_thread_of_the_trainer_fights_for_its_lock() -> None:
    """In the background; another process does not."""
    at = thread(Level.TRACE, 20, user=18, copy=2)
    for role, name in (("thread", "gil"), ("daemon", "single-thread")):
        writers = (Writer(pid=100, comm="python", bytes=GIB, role=role),)
        assert cause(save(Level.TRACE, 20, measured(at), mode=Mode.ASYNC, stall_ns=0, writers=writers)) == name


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
    for reason, name in (("staging", "staging-copy"), ("duplicate", "saved-twice")):
        more = (Overhead(reason=reason, bytes=GIB, text="twice"),)
        assert cause(save(Level.TRACE, 20, slow, overheads=more)) == name
    assert cause(save(Level.TRACE, 20, slow)) == "slow-device"


def test_others_data_is_waited_for_by_sync() -> None:
    """The device wrote ten times the checkpoint."""
    at = thread(Level.TRACE, 60, copy=1, sync=59)
    much = (device(60, 10 * GIB, busy_seconds=59),)
    assert cause(save(Level.TRACE, 60, measured(at, devices=much))) == "sync-all"


def test_the_wait_before_the_first_byte_is_planning_or_gathering() -> None:
    """By what came in."""
    at = thread(Level.TRACE, 2, copy=2)
    for received, name in ((GIB, "gathered"), (MIB, "planning")):
        before = BeforeMeasure(held_ns=ns(20), received_bytes=received, busy=0.9)
        assert cause(save(Level.TRACE, 2, measured(at, before=before), ranks=8, stall_ns=ns(22))) == name


def test_a_warm_restore_is_told_how_to_test_the_storage() -> None:
    """Nothing was slow, and nothing is said of the storage."""
    at = thread(Level.TRACE, 2, user=0.2, copy=1.8)
    warm = restore(Level.TRACE, 2, measured(at), cache="warm")
    assert cause(warm) == "warm"


@pytest.mark.parametrize(
    "name", ["limited to", "without a CPU", "too much was dirty", "queueing discipline", "copying"]
)
def test_a_device_cannot_pass_for_a_cause_by_its_name(name: str) -> None:
    """A cause is an identity: what stands in a text, names of the machine among it, decides nothing."""
    at = thread(Level.TRACE, 20, copy=1, sync=19)
    plain = save(Level.TRACE, 20, measured(at, devices=(device(20, busy_seconds=19),)))
    named = save(Level.TRACE, 20, measured(at, devices=(device(20, busy_seconds=19, device=name),)))

    assert cause(named) == cause(plain) == "slow-device"
