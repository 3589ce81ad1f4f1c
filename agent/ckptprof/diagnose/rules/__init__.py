"""The causes that users reported, one file each; the first that fits a limit is the one that is told."""

from __future__ import annotations

from ckptprof.diagnose.rules.rule import Rule

RULES: tuple[Rule, ...] = ()

__all__ = ["RULES", "Rule"]
