"""Reports to render: made by hand, since what is tested here is how they look; every instant is fixed."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta, timezone
from pathlib import Path

import msgspec
import pytest

from ckptprof.model import (
    Checkpoint,
    DeviceShare,
    Evidence,
    Gap,
    Kind,
    Level,
    Metadata,
    Mode,
    Moments,
    Overhead,
    Pattern,
    PatternClass,
    Point,
    Report,
    Status,
    Stream,
    Watched,
    Writer,
)
from ckptprof.verdicts import Account, Cost, Limit, Verdict

MIB = 1 << 20
SECOND = 1_000_000_000
T0 = 1_774_000_800 * SECOND  # 2026-03-20 10:00:00 UTC
GOLDEN = Path(__file__).parents[1] / "golden"


def checkpoint(number: int, at_seconds: float, **changes: object) -> Checkpoint:
    """Return a torch.save of 954 MiB in 4 s that began `at_seconds` after T0, changed as told."""
    start_ns = T0 + int(at_seconds * SECOND)
    step = number * 100
    values: dict[str, object] = {
        "id": number,
        "uid": f"uid-{number}",
        "kind": Kind.SAVE,
        "job": "train.py",
        "framework": "torch.save",
        "step": step,
        "ranks": 1,
        "start_ns": start_ns,
        "end_ns": start_ns + 4 * SECOND + 120_000_000,
        "bytes": 954 * MIB + 12_345,
        "files": 1,
        "path": f"/mnt/scratch/ckpt/llama-7b/run-0042/step_{step:06d}.pt",
        "writers": (Writer(pid=41210, comm="python", bytes=954 * MIB + 12_345),),
        "pattern": Pattern(
            class_=PatternClass.SEQUENTIAL_LARGE,
            sequential_share_bytes=1.0,
            consecutive_share_bytes=0.9996,
            large_share_bytes=0.98,
            order_known_share_bytes=0.97,
            operations=1204,
            mean_operation_bytes=830_472.0,
            mapped_share_bytes=0.0,
        ),
        "level": Level.POLL,
        "limitations": (
            "The offset of each write was not seen, only file positions at ticks.",
            "Whether the writes were direct or buffered was taken from the open flags of files that were seen open.",
        ),
        "evidence": (
            Evidence(name="format", weight=3.0, text="the file begins like a zip archive of torch.save"),
            Evidence(name="recurs", weight=1.5, text="4 bursts of nearly the same size, about 600 s apart"),
            Evidence(name="read-back", weight=-0.5, text="the file was not read again"),
        ),
        "confidence": 0.97,
    }
    values.update(changes)
    return Checkpoint(**values)  # type: ignore[arg-type]  # the fields are checked by name at run time


def detailed() -> Checkpoint:
    """Return a checkpoint with everything that `show` can draw."""
    base = checkpoint(7, 75.25)
    speeds = (120, 310, 420, 80, 0, 0, 510, 640, 620, 580, 240, 4)
    step_ns = (base.end_ns - base.start_ns) // len(speeds)
    timeline = tuple(
        Point(base.start_ns + i * step_ns, base.start_ns + (i + 1) * step_ns, speed * 1_000_000 * step_ns // SECOND)
        for i, speed in enumerate(speeds)
    )
    folder = "/mnt/scratch/ckpt/llama-7b/run-0042/step_000700"
    streams = tuple(
        Stream(
            pid=41210 + rank,
            comm="python",
            path=f"{folder}/__{rank}_0.distcp",
            bytes=477 * MIB,
            size=477 * MIB if rank else None,
            start_ns=base.start_ns + rank * 210_000_000,
            end_ns=base.end_ns - (1 - rank) * SECOND,
            class_=PatternClass.SEQUENTIAL_LARGE if rank else None,
        )
        for rank in range(2)
    )
    writers = tuple(
        Writer(
            pid=41210 + rank,
            comm="python",
            bytes=477 * MIB,
            rank=rank,
            start_ns=streams[rank].start_ns,
            end_ns=streams[rank].end_ns,
            role="thread" if rank else "trainer",
        )
        for rank in range(2)
    )
    devices = (
        DeviceShare(
            device="nvme0n1",
            kind="block",
            read_bytes=0,
            written_bytes=801 * MIB,
            busy_seconds=2.5,
            under="/mnt/scratch",
        ),
        DeviceShare(device="eth0", kind="nic", read_bytes=12_000, written_bytes=40_000, busy_seconds=None, under=None),
    )
    return checkpoint(
        7, 75.25, framework="torch-dcp", ranks=2, files=2, path=folder, writers=writers, streams=streams,
        timeline=timeline, devices=devices, bytes=954 * MIB, mode=Mode.ASYNC, stall_ns=210_000_000,
        durable_ns=base.end_ns + 5_580_000_000, written_bytes=2 * 954 * MIB, unique_bytes=954 * MIB,
        moments=Moments(
            first_data_ns=base.start_ns + 12_000_000, last_data_ns=base.end_ns - 70_000_000,
            committed_ns=base.end_ns, cleaned_ns=base.end_ns + 250_000_000,
        ),
        metadata=Metadata(created=2, renamed=1, unlinked=0, data_call_ns=420_000_000),
        overheads=(Overhead(reason="staging", bytes=954 * MIB, text="written to /tmp/lightning-x first"),),
    )  # fmt: skip


SERIALIZE = Verdict(
    limit=Limit.SERIALIZE,
    sentence="39.2 s, for 31.0 s the single writing thread was on CPU in zip CRC32 while the disk was 12 % "
    "busy: serialisation-bound; with CRC off about 8 s; storage is not the problem.",
    confidence=0.91,
    seconds=39.2,
    accounts=(
        Account(
            limit=Limit.SERIALIZE, seconds=31.0, text="thread 41210 on CPU in its own code, 9 of 12 looks in CRC32"
        ),
        Account(limit=Limit.PAGE_CACHE, seconds=5.1, text="in write calls, copying 954 MiB at 187 MB/s"),
        Account(limit=Limit.METADATA, seconds=0.02, text="2 files created, 1 renamed"),
        Account(limit=None, seconds=3.08, text="asleep outside of file calls"),
    ),
    evidence=("31.0 s on CPU outside of the kernel, of 39.2 s", "Python stacks: 9 of 12 looks in crc32"),
    excluded=("disk: nvme0n1 was 12 % busy with 1.1 requests in flight", "page-cache: no pause by dirty limits"),
    missing=("Which function the other 3 looks were in.",),
    candidates=(Limit.PAGE_CACHE,),
    expected_seconds=8.2,
    capped_by="page-cache",
    cause="zip-crc",
    remedy="torch.serialization.set_crc32_options(False), or torch.distributed.checkpoint with a writer for each rank",
    reference="https://pytorch.org/docs/stable/notes/serialization.html",
)
COST = Cost(
    stall_seconds=39.0, background_seconds=0.2, gpus=8, gpus_from="given", gpu_seconds=312.0,
    bytes_per_second=25.5e6, bytes_per_second_per_gpu=3.2e6, ceiling_share=0.4,
    tier="below",
)  # fmt: skip


def diagnosed(number: int = 7, at_seconds: float = 75.25, **changes: object) -> Checkpoint:
    """Return a checkpoint with a verdict and what it cost; `verdict` and `limit`, `confidence` of it can be changed."""
    end_ns = T0 + int(at_seconds * SECOND) + 39_200_000_000
    about = {name: changes.pop(name) for name in ("limit", "confidence") if name in changes}
    values = {"end_ns": end_ns, "verdict": msgspec.structs.replace(SERIALIZE, **about), "cost": COST} | changes
    return checkpoint(number, at_seconds, **values)


def read_back() -> Checkpoint:
    """Return a restore of one file by four ranks, of which one read from the disk."""
    base = checkpoint(8, 300, kind=Kind.RESTORE, ranks=4, bytes=4 * 954 * MIB)
    writers = tuple(
        Writer(
            pid=500 + rank, comm="pt_main_thread", bytes=954 * MIB, rank=rank, start_ns=base.start_ns,
            end_ns=base.end_ns - (3 - rank) * SECOND, role="trainer",
        )
        for rank in range(4)
    )  # fmt: skip
    return checkpoint(
        8, 300, kind=Kind.RESTORE, ranks=4, bytes=4 * 954 * MIB, writers=writers, unique_bytes=954 * MIB,
        storage_bytes=951 * MIB, cache="cold",
    )  # fmt: skip


def broken() -> Checkpoint:
    """Return a save that was broken off."""
    return checkpoint(9, 400, status=Status.INCOMPLETE, moments=Moments(first_data_ns=T0 + 400 * SECOND))


def _run() -> Report:
    """Return one job watched by `ckptprof run`: four saves and a restore."""
    saves = [checkpoint(n, n * 31.4) for n in range(1, 5)]
    restore = checkpoint(
        5, 200.0, kind=Kind.RESTORE, step=None, end_ns=T0 + 200 * SECOND + 840_000_000, path=saves[-1].path
    )
    return Report(
        host="gpu-node-7", watched=Watched(start_ns=T0, end_ns=T0 + 230 * SECOND), checkpoints=(*saves, restore)
    )


def _host() -> Report:
    """Return a host watched for days: several jobs, gaps, unknowns, a row that is less sure."""
    checkpoints = (
        checkpoint(11, 600),
        checkpoint(12, 7200.5, job="slurm 88123", framework="torch-dcp", ranks=16, files=33, bytes=118_000 * MIB,
                   end_ns=T0 + 7325 * SECOND, path="/lustre/projects/nlp/weights/dcp/step_1200",
                   writers=tuple(Writer(pid=900 + r, comm="pt_main_thread", bytes=7375 * MIB) for r in range(16))),
        checkpoint(13, 90_000, job="eval_harness.py", kind=Kind.RESTORE, step=None, framework=None, path=None,
                   writers=(), pattern=Pattern(class_=PatternClass.RANDOM), confidence=0.55),
        checkpoint(14, 93_600, job="jax_train.py", framework="orbax", pattern=Pattern(class_=None), files=2048,
                   path="/mnt/scratch/orbax/run/14/default"),
        checkpoint(15, 171_000, pattern=Pattern(class_=PatternClass.SEQUENTIAL_SMALL), end_ns=T0 + 171_000 * SECOND),
    )  # fmt: skip
    gaps = (
        Gap(start_ns=T0 + 3600 * SECOND, end_ns=T0 + 3612 * SECOND, reason="recorder restarted"),
        Gap(start_ns=T0 + 50_000 * SECOND, end_ns=T0 + 53_600 * SECOND, reason="host was suspended"),
    )
    return Report(
        host="gpu-node-7",
        watched=Watched(start_ns=T0, end_ns=T0 + 172_800 * SECOND, gaps=gaps),
        checkpoints=checkpoints,
    )


def _empty() -> Report:
    """Return a time in which nothing was there."""
    return Report(host="gpu-node-7", watched=Watched(start_ns=T0, end_ns=T0 + 725 * SECOND), checkpoints=())


def _blank() -> Report:
    """Return the answer of a database without recordings."""
    return Report(host=None, watched=Watched(start_ns=None, end_ns=None), checkpoints=())


def _course() -> Report:
    """Return a job that saves in all ways: held and not, broken off, read back cold and warm; copies aside."""
    saves = [
        checkpoint(1, 31.4, mode=Mode.SYNC, stall_ns=4_150_000_000),
        checkpoint(2, 62.8, mode=Mode.ASYNC, stall_ns=80_000_000),
        checkpoint(3, 94.2, mode=Mode.ASYNC, stall_ns=None),
        checkpoint(4, 125.6, status=Status.INCOMPLETE),
    ]
    restores = [
        checkpoint(5, 200, kind=Kind.RESTORE, step=None, path=saves[2].path, cache="cold"),
        checkpoint(6, 210, kind=Kind.RESTORE, step=None, path=saves[2].path, cache="warm", confidence=0.5),
    ]
    watched = Watched(start_ns=T0, end_ns=T0 + 230 * SECOND)
    return Report(host="gpu-node-7", watched=watched, checkpoints=(*saves, *restores), copies_left_out=3)


def _copies() -> Report:
    """Return the copies of that job, as --kind copy lists them."""
    copies = [
        checkpoint(n, n * 10.0, kind=Kind.COPY, job="rsync-77", framework=None, step=None, path=f"/backup/{n}")
        for n in range(1, 4)
    ]
    watched = Watched(start_ns=T0, end_ns=T0 + 230 * SECOND)
    return Report(host="gpu-node-7", watched=watched, checkpoints=tuple(copies))


def _limits() -> Report:
    """Return two jobs with verdicts: one that serialises, surely and not, and one that waits for its device."""
    stall = {"mode": Mode.SYNC, "stall_ns": 39_200_000_000}
    own = [diagnosed(n, n * 300, confidence=0.95 - 0.1 * (n - 1), **stall) for n in range(1, 4)]
    none = diagnosed(4, 1300, kind=Kind.RESTORE, limit=Limit.NONE, cost=None, end_ns=T0 + 1302 * SECOND, step=None)
    other = [
        diagnosed(n, n * 300, job="jax_train.py", limit=Limit.DEVICE, mode=Mode.ASYNC, stall_ns=200_000_000)
        for n in (5, 6)
    ]
    unclear = diagnosed(7, 2100, job="jax_train.py", limit=Limit.UNCLEAR, confidence=0.2)
    watched = Watched(start_ns=T0, end_ns=T0 + 2300 * SECOND)
    return Report(host="gpu-node-7", watched=watched, checkpoints=(*own, none, *other, unclear))


def _fine() -> Report:
    """Return a job of which nothing was slow."""
    saves = [
        diagnosed(n, n * 60, limit=Limit.NONE, end_ns=T0 + n * 60 * SECOND + SECOND, mode=Mode.ASYNC, stall_ns=10**7)
        for n in range(1, 4)
    ]
    watched = Watched(start_ns=T0, end_ns=T0 + 230 * SECOND)
    return Report(host="gpu-node-7", watched=watched, checkpoints=tuple(saves))


REPORTS: dict[str, Callable[[], Report]] = {
    "run": _run,
    "host": _host,
    "empty": _empty,
    "blank": _blank,
    "course": _course,
    "copies": _copies,
    "limits": _limits,
    "fine": _fine,
}


@pytest.fixture
def zone() -> timezone:
    """Central European Time, so that an offset shows."""
    return timezone(timedelta(hours=1))


@pytest.fixture
def reports() -> dict[str, Report]:
    """Return the reports by name."""
    return {name: make() for name, make in REPORTS.items()}


@pytest.fixture
def make_checkpoint() -> Callable[..., Checkpoint]:
    """Return the maker of checkpoints."""
    return checkpoint


@pytest.fixture
def make_diagnosed() -> Callable[..., Checkpoint]:
    """Return the maker of checkpoints with a verdict."""
    return diagnosed


@pytest.fixture
def detailed_checkpoint() -> Checkpoint:
    """Return a checkpoint with everything that `show` can draw."""
    return detailed()


@pytest.fixture
def shown() -> dict[str, Checkpoint]:
    """Return checkpoints of every kind by name, for `show`."""
    copy = checkpoint(10, 500, kind=Kind.COPY, job="rsync-77", framework=None, step=None)
    return {
        "save": detailed(),
        "restore": read_back(),
        "broken": broken(),
        "copy": copy,
        "verdict": diagnosed(),
        "unclear": diagnosed(limit=Limit.UNCLEAR, confidence=0.3, cost=None),
    }


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Return a check of a text against its golden file; CKPTPROF_UPDATE_GOLDEN=1 writes the file instead."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if os.environ.get("CKPTPROF_UPDATE_GOLDEN"):
            path.write_text(text, encoding="utf-8")
        assert path.read_text(encoding="utf-8") == text

    return check


NAMES = (
    "\x1b[2J\x1b[H", "\x1b]0;PWN\x07", "\x1b]8;;http://evil\x07link\x1b]8;;\x07", "a\nb", "a\r\nb", "tab\there",
    "\x00nul", "\x08\x08\x08back", "\x7fdel", "\x9b31mC1 CSI", "\x85nel", "\x90dcs\x9c", "\u202egpj.exe",
    "\u2066iso\u2069", "\u200bzero", "\u200d\u200c", "\ufeffbom", "\u2028line", "\u2029paragraph",
    "\u061carabic mark", "\U000e0041tag", "\udcff\udc80", "\ud800", "\\xff\\xfe",
    "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "=cmd|'/C calc'!A0", "+1+1", "-2+3",
    "@SUM(A1)", "[/red]", "[link=file:///etc/passwd]x[/link]", "[bold]", "{{7*7}}", "${HOME}", "$(reboot)",
    "`reboot`", "'; DROP TABLE checkpoints; --", '"quoted"', "back\\slash", "%s%n%d", "{0.__class__}", "", " ",
    "   spaces   ", ".", "..", "../../etc/passwd", "--help", "-rf", "~root", "nul\u0000",
    "\N{PILE OF POO}" * 20, "漢字" * 40, "e" + "\u0301" * 500, "\uffff\ufffe", "\ue000private", "a" * 4096,
    "/" * 300, "/" + "d/" * 2000 + "f.pt", "\u115f\u3164", "\u00a0nbsp", "ﷺ" * 30, "\N{SOFT HYPHEN}", "مرحبا",
    "שלום",
)  # fmt: skip


@pytest.fixture
def hostile_names() -> tuple[str, ...]:
    """Return the whole corpus of hostile names."""
    return NAMES


@pytest.fixture(params=range(len(NAMES)))
def hostile(request: pytest.FixtureRequest) -> str:
    """Return one hostile name of the corpus."""
    return NAMES[request.param]
