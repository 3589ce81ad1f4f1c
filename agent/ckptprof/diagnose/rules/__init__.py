"""Causes that users reported, in the order in which they are tried: the first that matches a limit is reported."""

from __future__ import annotations

from ckptprof.diagnose.rules import files, job, mounts, storage
from ckptprof.diagnose.rules.rule import CauseRule

RULES: tuple[CauseRule, ...] = (*files.RULES, *job.RULES, *mounts.RULES, *storage.RULES)

__all__ = ["RULES", "CauseRule"]
