"""Names the captures without which the others hold as much: `make captures`, two minutes.

    python tests/recording/redundant.py [--remove]

A capture is kept for what no other one shows: an outcome (what is told of its events, and what is told otherwise than
its label), signals that decide, a truth of its label, a function of detection or diagnosis that runs, a number or rule
of the decision table (weights.py), a constant (constants.json), or its name in a test or a page. The largest are asked
first. `--remove` removes them with their labels and golden texts; `make weights` and `make constants` say the rest.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import CodeType, FrameType

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import labels  # noqa: E402 - found by the line above, as are the next
import weights  # noqa: E402
from told import STREAMS, SUFFIX, captures  # noqa: E402

from ckptprof.detect.events.decision_table import TABLE  # noqa: E402
from ckptprof.detect.recognition import Judged  # noqa: E402
from ckptprof.service.commands.replaying import replay  # noqa: E402

ROOT = HERE.parents[1]
GOLDEN = HERE.parent / "golden" / "captures"
TRACED = ".trace"
KINDS = ("save", "restore", "copy")
WATCHED = ("/ckptprof/detect/", "/ckptprof/diagnose/")
TRUE_OF = ("kind", "framework", "format", "mode", "status", "cache", "ranks", "limits")
NAMING = ("tests/**/*.py", "benchmarks/*.py", "docs/**/*.md", "README.md")
NOT_NAMING = ("tests/e2e/", "tests/kernel/")  # they name jobs and programs
_FACTS = re.compile(r" (framework|status|mode|level|cause)=([\w.-]+)|^  verdict ([\w-]+)", re.MULTILINE)
_QUOTED = re.compile(rf"""(?<=["'/`])([\w-]+)(?:{re.escape(TRACED)})?(?:{re.escape(SUFFIX)})?(?=["'`])""")


def outcome(name: str) -> tuple[object, ...]:
    """Return what a capture shows: each kind of event that is told, and what is told otherwise, without numbers."""
    text = (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")
    events = re.split(r"^(?=save|restore|copy)", text, flags=re.MULTILINE)
    shown = frozenset((one.partition(" ")[0], *_FACTS.findall(one)) for one in events if one.startswith(KINDS))
    otherwise = frozenset(re.sub(r"\d+", "#", line) for line in LABELS[name].get("told_otherwise", ()))
    return name.endswith(TRACED), shown, otherwise


def decisive(one: Judged) -> tuple[object, ...]:
    """Return how an event was decided, and the signals without which it would be something else."""
    was = weights.outcome(one.signals, TABLE)
    needed = {
        signal.name
        for signal in one.signals
        if weights.outcome(tuple(other for other in one.signals if other is not signal), TABLE) != was
    }
    rules = (rule and rule.name for rule in (one.decision.override, one.decision.deferral))
    return one.writes, one.decision.hypothesis, *rules, frozenset(needed)


def replayed(name: str) -> tuple[set[str], tuple[Judged, ...]]:
    """Return the functions that run while a capture is replayed, and the events that are judged."""
    seen: set[CodeType] = set()

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            seen.add(frame.f_code)

    sys.setprofile(profile)
    try:
        judged = replay(STREAMS / f"{name}{SUFFIX}", None).judged
    finally:
        sys.setprofile(None)
    return {f"{code.co_filename}:{code.co_firstlineno}" for code in seen if _is_watched(code)}, judged


def _is_watched(code: CodeType) -> bool:
    return any(folder in code.co_filename for folder in WATCHED)


def named() -> set[str]:
    """Return the words in quotes of tests and pages, among which are the jobs whose captures they use."""
    paths = {path.relative_to(ROOT).as_posix() for pattern in NAMING for path in ROOT.glob(pattern)}
    texts = ((ROOT / path).read_text(encoding="utf-8") for path in paths if not path.startswith(NOT_NAMING))
    return {word for text in texts for word in _QUOTED.findall(text)}


def held(names: Iterable[str]) -> dict[str, set[object]]:
    """Return for each capture all that it shows."""
    found: dict[str, set[object]] = {}
    events: list[weights.Event] = []
    for name in names:
        functions, judged = replayed(name)
        events += [weights.Event(name, one.signals) for one in judged]
        truths = LABELS[name].get("truth", LABELS[name].get("events", ()))
        true_of = {tuple(str(one.get(word)) for word in TRUE_OF) for one in truths}
        found[name] = {outcome(name), *functions, *map(decisive, judged), *true_of}
    for changed, holders in weights.holders(list(dict.fromkeys(events))).items():
        for name in holders:
            found[name].add(changed)
    for constant, holder in json.loads((HERE / "constants.json").read_text()).items():
        found.get(holder, set()).add(constant)
    return found


def redundant(shown: Mapping[str, AbstractSet[object]], kept: AbstractSet[str]) -> Iterator[str]:
    """Yield the captures of which everything is shown by others that stay; but for those that are kept by name."""
    times = Counter(one for every in shown.values() for one in every)
    for name in sorted(shown, key=lambda name: (-(STREAMS / f"{name}{SUFFIX}").stat().st_size, name)):
        if name.removesuffix(TRACED) not in kept and all(times[one] > 1 for one in shown[name]):
            times.subtract(shown[name])
            yield name


def main(*, remove: bool) -> int:
    """Print what others hold as well; return 1 if there is any, and it stays."""
    found = list(redundant(held(captures()), named()))
    for name in found if remove else ():
        (STREAMS / f"{name}{SUFFIX}").unlink()
        (GOLDEN / f"{name}.txt").unlink()
    if remove:
        labels.add({}, removed=found)
    print(*found, f"{len(found)} of {len(LABELS)} captures show nothing that others do not", sep="\n")  # noqa: T201 - a tool
    return int(bool(found) and not remove)


LABELS = labels.read()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--remove", action="store_true", help="remove them")
    raise SystemExit(main(remove=arguments.parse_args().remove))
