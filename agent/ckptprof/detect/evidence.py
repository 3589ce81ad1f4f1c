"""What speaks for and against calling a candidate a checkpoint: each reason with its weight, none of them decisive."""

from __future__ import annotations

from dataclasses import dataclass

from ckptprof.detect.candidates import Candidate
from ckptprof.detect.copies import traced_copies
from ckptprof.detect.exact import is_traced
from ckptprof.detect.intervals import History, writing
from ckptprof.detect.jobs import GPU_RUNTIMES, NUMERIC_RUNTIMES, TRAINING_RUNTIMES, JobBook
from ckptprof.detect.memory import Memory
from ckptprof.detect.streams import ProcessKey
from ckptprof.detect.tracebook import TraceBook
from ckptprof.detect.trainers import TrainerBook
from ckptprof.frameworks.names import file_format, shape
from ckptprof.model import Evidence

THRESHOLD = 0.6
MIN_BYTES = 1 << 20
COPY_AHEAD_NS = 500_000_000  # what is written was read before
_FORMATS = {"safetensors": 0.5, "torch-zip": 0.4, "npz": 0.15, "npy": 0.15, "pickle": 0.15, "hdf5": 0.2, "zip": 0.1}
_NAMES = {"torch.save": 0.4, "safetensors": 0.45, "numpy": 0.15}  # weak names; any other framework's is beyond doubt


@dataclass(frozen=True)
class Surroundings:
    """What is known beside the candidate itself."""

    jobs: JobBook
    histories: dict[ProcessKey, History]
    memory: Memory
    traced: TraceBook
    trainers: TrainerBook


def weigh(candidate: Candidate, around: Surroundings) -> list[Evidence]:
    """Return the reasons, for and against."""
    found = [_name(candidate), _format(candidate), _hint(candidate), _runtime(candidate, around.jobs)]
    found += [_rank(candidate, around.jobs), _recurs(candidate, around.memory), _known(candidate, around.memory)]
    found += [_renamed(candidate), _committed(candidate), _copies(candidate, around)]
    found += [_tool(candidate, around.jobs), _data(candidate), _appends(candidate)]
    return [reason for reason in found if reason is not None]


def score(evidence: list[Evidence]) -> float:
    """Return the sum of the weights."""
    return sum(reason.weight for reason in evidence)


def confidence(total: float) -> float:
    """Return how sure a recognised candidate is, 0.5 (just enough evidence) to 0.99."""
    return round(min(0.99, max(0.5, 0.5 + (total - THRESHOLD) * 0.6)), 2)


def _biggest(candidate: Candidate) -> list[str]:
    parts = sorted(candidate.parts, key=lambda part: part.bytes, reverse=True)
    return [part.stream.path for part in parts[:8]]


def framework_of(candidate: Candidate) -> str | None:
    """Return the framework whose names carry most of the bytes."""
    weights: dict[str, int] = {}
    for part in candidate.parts:
        entry = part.name.framework
        if entry is not None:
            magic = part.stream.fact.magic if part.stream.fact else None
            if (
                entry.name == "torch.save"
                and magic
                and file_format(magic, part.stream.path) not in ("torch-zip", "pickle")
            ):
                continue
            weights[entry.name] = weights.get(entry.name, 0) + part.bytes + 1
    return max(weights, key=lambda name: weights[name]) if weights else None


def _name(candidate: Candidate) -> Evidence | None:
    name = framework_of(candidate)
    if name is None:
        return None
    weight = _NAMES.get(name, 0.6)
    return Evidence(name="name", weight=weight, text=f"files are named as {name} names them")


def _format(candidate: Candidate) -> Evidence | None:
    formats: dict[str, int] = {}
    for part in candidate.parts:
        fact = part.stream.fact
        kind = file_format(fact.magic, part.stream.path) if fact else None
        if kind is not None:
            formats[kind] = formats.get(kind, 0) + part.bytes
    if not formats:
        return None
    best = max(formats, key=lambda kind: formats[kind])
    return Evidence(name="format", weight=_FORMATS[best] / 2, text=f"its first bytes are those of {best}")


def _hint(candidate: Candidate) -> Evidence | None:
    hinted = sum(part.bytes for part in candidate.parts if part.name.hint)
    if hinted * 2 < sum(part.bytes for part in candidate.parts):
        return None
    if candidate.step is not None:
        return Evidence(name="step", weight=0.4, text=f"its name counts training: step {candidate.step}")
    return Evidence(name="word", weight=0.3, text="its name has a word for checkpoints")


def _runtime(candidate: Candidate, jobs: JobBook) -> Evidence | None:
    runtimes: set[str] = set()
    known = False
    for process in candidate.processes:
        info = jobs.info(process)
        if info is not None:
            known = True
            runtimes.update(info.runtimes)
    verb = "written" if candidate.writes else "read"
    if runtimes & TRAINING_RUNTIMES:
        names = ", ".join(sorted(runtimes & TRAINING_RUNTIMES))
        weight = 0.45 if runtimes & GPU_RUNTIMES else 0.35
        return Evidence(name="runtime", weight=weight, text=f"{verb} by a process with {names} loaded")
    if runtimes & NUMERIC_RUNTIMES:
        return Evidence(name="runtime", weight=0.25, text=f"{verb} by a process with numpy loaded")
    if known:
        return Evidence(
            name="runtime", weight=-0.4, text=f"{verb} by a process without any library of machine learning"
        )
    return None


def _rank(candidate: Candidate, jobs: JobBook) -> Evidence | None:
    if any(jobs.rank(process) is not None for process in candidate.processes):
        return Evidence(name="rank", weight=0.1, text="its process carries a rank")
    return None


def _recurs(candidate: Candidate, memory: Memory) -> Evidence | None:
    times = memory.times_seen(candidate.job, candidate.writes, shapes(candidate), candidate_bytes(candidate))
    if not candidate.writes or not times:
        return None
    return Evidence(
        name="recurs", weight=min(0.3, 0.15 * times), text=f"the job wrote the like of it {times} times before"
    )


def _known(candidate: Candidate, memory: Memory) -> Evidence | None:
    if candidate.writes:
        return None
    known = sum(part.bytes for part in candidate.parts if memory.was_saved(part.stream.path))
    if known * 2 < candidate_bytes(candidate) or not known:
        return None
    return Evidence(name="read-back", weight=0.5, text="these files were seen being saved")


def _renamed(candidate: Candidate) -> Evidence | None:
    if any(part.stream.earlier_path is not None for part in candidate.parts):
        return Evidence(name="renamed", weight=0.15, text="written under a temporary name, then renamed")
    return None


def _committed(candidate: Candidate) -> Evidence | None:
    marks = [part.stream.path.rpartition("/")[2] for part in candidate.parts if part.name.commit]
    if not marks or not candidate.writes:
        return None
    return Evidence(name="commit", weight=0.2, text=f"completed by {marks[0]}")


def _copies(candidate: Candidate, around: Surroundings) -> Evidence | None:
    if is_traced(candidate):
        return traced_copies(candidate, around.traced)
    read = written = 0
    opened = [part.stream for part in candidate.parts if not part.stream.is_mapping]
    start_ns = min([candidate.start_ns - (COPY_AHEAD_NS if candidate.writes else 0), *(s.first_ns for s in opened)])
    end_ns = max(
        [candidate.end_ns, *(stream.last_ns for stream in opened)]
    )  # one call may copy all: it reads at its end
    for process in candidate.processes:
        history = around.histories.get(process)
        for interval in history.between(start_ns, end_ns) if history else ():
            read += interval.read_bytes
            written += writing(interval)
    if written and 0.8 <= read / written <= 1.25:
        return Evidence(name="copies", weight=-0.7, text="its process read as much as it wrote, at the same time")
    return None


def _tool(candidate: Candidate, jobs: JobBook) -> Evidence | None:
    if not any(jobs.is_tool(process) for process in candidate.processes):
        return None
    return Evidence(name="tool", weight=-0.8, text="its process is a tool that copies, packs, installs or serves")


def _data(candidate: Candidate) -> Evidence | None:
    data = sum(part.bytes for part in candidate.parts if part.name.data)
    if data * 2 <= candidate_bytes(candidate):
        return None
    return Evidence(name="data", weight=-0.8, text="its name has a word for data sets or results")


def _appends(candidate: Candidate) -> Evidence | None:
    appended = sum(part.bytes for part in candidate.parts if part.stream.append)
    if not candidate.writes or appended * 2 <= candidate_bytes(candidate):
        return None
    return Evidence(name="appends", weight=-0.5, text="it is appended to, as logs are")


def candidate_bytes(candidate: Candidate) -> int:
    """Return the bytes of all parts."""
    return sum(part.bytes for part in candidate.parts)


def shapes(candidate: Candidate) -> frozenset[str]:
    """Return what its biggest files share with those of the saves before and after it."""
    return frozenset(shape(path) for path in _biggest(candidate))


def remember(candidate: Candidate, memory: Memory) -> None:
    """Let later candidates be held against this one."""
    memory.note(candidate.job, candidate.writes, shapes(candidate), candidate_bytes(candidate))
