"""What reads foreign bytes, one line each in TARGETS: how it is fed, and the error that it may end in.

`make` gets an empty folder, imports and prepares what is needed once, and returns what takes one input.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
import shutil
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timezone
from pathlib import Path
from typing import Any

from ckptprof.errors import CkptprofError, RecordingError, StoreError

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
Feed = Callable[[bytes], None]
_PLACE = re.compile(rb"=== (@?)((?:proc|sys)/[\w.:/-]{1,150})")
_AGAIN = b"=== again"  # what follows in a tree is there at the second reading
_PID = 4242  # of `job`


@dataclass(frozen=True)
class Target:
    """One way into ckptprof."""

    make: Callable[[Path], Feed]
    refusals: tuple[type[Exception], ...]


def recording(folder: Path) -> Feed:
    """Feed `ckptprof replay FILE`: detection, diagnosis, each page and the metrics, of a file in JSON or packed."""
    from prometheus_client import generate_latest

    from ckptprof.export.metrics import Metrics
    from ckptprof.recording import read_file
    from ckptprof.service.commands.replaying import replay

    path = folder / "capture"

    def feed(data: bytes) -> None:
        path.write_bytes(data)
        replayed = replay(path, None)
        _read(replayed.report.checkpoints, replayed.report)
        metrics = Metrics(job_names=True)
        for frame in itertools.islice(read_file(path)[1], 2000):
            metrics.observe(frame)
        for checkpoint in replayed.report.checkpoints:
            metrics.checkpoint(checkpoint)
        generate_latest(metrics)

    return feed


def _read(checkpoints: Any, report: Any) -> None:
    """Make every page of a report; raises AssertionError if a line holds what moves a cursor."""
    from ckptprof.report import document, show, terminal
    from ckptprof.report.clean import clean

    pages = [terminal.render(report, width=100, colour=False, zone=timezone.utc, copies="")] if report else []
    for checkpoint in checkpoints:
        pages += [make(checkpoint, width=60, colour=False, zone=timezone.utc) for make in (show.brief, show.render)]
        document.dump(document.checkpoint_document(checkpoint))
    for line in "".join(pages).split("\n"):
        assert clean(line) == line, line
    if report:
        document.dump(document.report_document(report)).encode()


def pipe(_: Path) -> Feed:
    """Feed what the sampler sends to the recorder, in two pieces."""
    from ckptprof.recording import Unpacker

    def feed(data: bytes) -> None:
        unpacker = Unpacker()
        for piece in (data[: len(data) // 2], data[len(data) // 2 :]):
            list(unpacker.feed(piece))

    return feed


def database(folder: Path) -> Feed:
    """Feed all that queries read, and what a writer does to a database that it finds."""
    from ckptprof.model import CheckpointQuery
    from ckptprof.store.reader import StoreReader
    from ckptprof.store.writer import StoreWriter

    path = folder / "a.db"

    def feed(data: bytes) -> None:
        for old in folder.iterdir():
            old.unlink()
        path.write_bytes(data)
        path.chmod(0o600)
        try:
            with StoreReader(path) as reader:
                report = reader.report(CheckpointQuery())
                found = [reader.checkpoint(one.id) for one in report.checkpoints[:50]]
                _read([one for one in found if one is not None], report)
                reader.sessions()
                reader.recent_paths(9)
                for entity in reader.entities()[:50]:
                    reader.series(entity, 0, 1 << 62)
                    reader.series(entity, 0, 1 << 62, step_seconds=60)
        finally:
            writer = StoreWriter(path, ballast_bytes=0)
            try:
                writer.maintain(1_700_000_000_000_000_000)
            finally:
                writer.close()

    return feed


def request(_: Path) -> Feed:
    """Feed the start of a request; the answer is HTTP."""
    from ckptprof.export.http import MAX_HEAD_BYTES, answer
    from ckptprof.export.metrics import Metrics
    from ckptprof.export.wsgi_pages import Pages

    pages = {first: Pages(Metrics(), in_clear=first == b"P") for first in (b"P", b"T")}

    def feed(data: bytes) -> None:
        said = answer(data[1 : 2 * MAX_HEAD_BYTES], pages.get(data[:1], pages[b"T"]))
        assert re.match(
            rb"HTTP/1\.0 [245]\d\d [A-Za-z -]+\r\n(?:Date: .*\r\n)?(?:Allow: .*\r\n)?Content-Type: ", said
        ), said[:200]

    return feed


def _lay_out(data: bytes, folder: Path) -> list[bytes]:
    """Put the files of a tree into a folder; return what is to be there at the second reading."""
    first, _, again = data.partition(_AGAIN)
    pieces = re.split(rb"(?m)^(?==== )", first)
    for piece in pieces[:200]:
        head, _, content = piece.partition(b"\n")
        found = _PLACE.fullmatch(head)
        if found is None or b".." in found[2].split(b"/"):
            continue
        path = os.fsencode(folder) + b"/" + found[2]
        with contextlib.suppress(OSError, ValueError):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if not found[1]:
                Path(os.fsdecode(path)).write_bytes(content)
            elif b"/fd/" in path or path.endswith((b"/cwd", b"/root", b"/exe")):
                os.symlink(content.rstrip(b"\n"), path)  # the kernel's own: nobody follows it by name
            elif re.fullmatch(rb"[\w.:/-]+", target := content.strip()) and _stays(folder, path, target):
                os.symlink(target, path)
    return [again] if again else []


def _stays(folder: Path, link: bytes, target: bytes) -> bool:
    whole = os.path.normpath(os.path.join(os.path.dirname(link), target))
    return whole.startswith(os.fsencode(folder) + b"/")


def tree(folder: Path) -> Feed:
    """Feed a made /proc and /sys, read twice by the collectors of the host and by what looks at processes."""
    from ckptprof.service.sampler.population import Population
    from ckptprof_collectors.kernelfs import KernelFs
    from ckptprof_collectors.registry import make_collectors

    home = folder / "host"
    fs = KernelFs(home / "proc", home / "sys", home / "dev")

    def feed(data: bytes) -> None:
        shutil.rmtree(home, ignore_errors=True)
        (home / "proc").mkdir(parents=True)
        again = _lay_out(data, home)
        collectors, _ = make_collectors(fs)
        population = Population(fs, frozenset(), None)
        try:
            for now_ns in (10**9, 10**11):
                for collector in collectors:
                    with contextlib.suppress(OSError):
                        collector.read()
                _look_around(population, now_ns)
                for piece in again:
                    _lay_out(piece, home)
        finally:
            population.close()
            for collector in collectors:
                collector.close()

    return feed


def _look_around(population: Any, now_ns: int) -> None:
    from ckptprof_collectors.processes.process import ProcessGone
    from ckptprof_collectors.processes.thread_samples import ThreadGone, ThreadReader, list_threads

    samples: list[Any] = []
    population.find(now_ns, samples)
    population.sweep(now_ns, samples)
    for process in list(population.known.values()):
        watching = population.watched.get(process.pid) or population.watch(process, now_ns)
        if watching is None:
            continue
        with contextlib.suppress(ProcessGone, ThreadGone, OSError):
            watching.sample_counters(now_ns, 4096, samples)
            watching.describe(now_ns, samples)
            watching.alert(now_ns, mappings=True)
            watching.scan_if_due(now_ns, samples)
            watching.sample_training_thread(samples)
            for tid in list_threads(process)[:8]:
                with contextlib.closing(ThreadReader(process, tid, delays=None)) as reader:
                    reader.sample(now_ns)


def job(folder: Path) -> Feed:
    """Feed command line, environment, name and cgroup of a process that saves, and what a report makes of them."""
    import msgspec

    from ckptprof.detect.pipeline import Detector
    from ckptprof.model import Report, Watched
    from ckptprof.recording import read_file
    from ckptprof_collectors.kernelfs import KernelFs
    from ckptprof_collectors.processes.process import Process, candidate_folders, describe, runs_interpreter
    from ckptprof_collectors.samples import ProcessInfo

    header, frames = read_file(ROOT / "tests/fixtures/streams/ending-written-back.trace.ckptrec.gz")
    recorded = list(frames)
    proc = folder / "proc"
    own = proc / str(_PID)
    own.mkdir(parents=True)
    (proc / "stat").write_text("btime 1700000000\n")
    (own / "io").write_text("rchar: 1\n")
    (own / "maps").write_text("")
    (own / "status").write_text("Name:\tx\nUid:\t1000\t1000\t1000\t1000\n")

    def feed(data: bytes) -> None:
        parts = (data.split(b"\n---\n") + [b""] * 4)[:4]
        words, environment, comm, cgroup = parts
        for name, content in (("cmdline", words), ("environ", environment), ("comm", comm), ("cgroup", cgroup)):
            (own / name).write_bytes(content)
        ends = f"1 {1 + len(words)} 1 {1 + len(environment)}"
        (own / "stat").write_bytes(
            b"4242 (" + comm[:15] + b") S 1" + b" 0" * 17 + b" 77" + b" 0" * 22 + b" 1 1 1 " + ends.encode() + b" 0\n"
        )
        process = Process(KernelFs(proc, folder, folder), _PID)
        try:
            runs_interpreter(process.folder)
            candidate_folders(process)
            known = describe(process)
        finally:
            process.close()
        msgspec.json.encode(known)
        named = {"comm": known.comm, "program": known.program, "environment": known.environment, "cgroup": known.cgroup}
        detector = Detector(header)
        found = []
        for frame in recorded:
            samples = tuple(
                msgspec.structs.replace(sample, **named) if isinstance(sample, ProcessInfo) else sample
                for sample in frame.samples
            )
            found += detector.ingest(msgspec.structs.replace(frame, samples=samples))
        found += detector.finish()
        _read(found, Report(host="h", watched=Watched(start_ns=header.wall_ns, end_ns=None), checkpoints=tuple(found)))

    return feed


_COMMANDS = ("report", "list", "show", "diff", "plan", "replay", "config", "version", "completion")


def arguments(folder: Path) -> Feed:
    """Feed a command line, words between zeros; commands that watch or change the host become `report`."""
    import gzip

    from ckptprof.cli.main import main

    (folder / "a.db").write_bytes(gzip.decompress((HERE / "corpus/database/events.gz").read_bytes()))
    shutil.copy(ROOT / "tests/fixtures/streams/tar.ckptrec.gz", folder / "r.gz")
    (folder / "c.toml").write_text('level = "poll"\n')

    def feed(data: bytes) -> None:
        words = [os.fsdecode(word) for word in data.split(b"\0")]
        commands = [word for word in words if not word.startswith("-")][:1]
        if commands and commands[0] not in _COMMANDS:
            words[words.index(commands[0])] = "report"
        os.environ["CKPTPROF_DB"] = str(folder / "a.db")
        out, told = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        before = sys.stdout, sys.stderr, sys.stdin
        sys.stdout, sys.stderr = out, told
        try:
            code = main(words)
        finally:
            sys.stdout, sys.stderr, sys.stdin = before
        said = told.buffer.getvalue().decode()  # type: ignore[attr-defined]
        assert 0 <= code < 256, code
        assert "CKPTPROF_DEBUG=1 to see where" not in said, said[:2000]
        assert "\x1b" not in said
        assert all(line.startswith(("ckptprof:", "hint:")) for line in said.splitlines()), said[:2000]

    return feed


class _Tripwire:
    """libbpf, which no damaged object may reach: some end the process."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a damaged object has reached libbpf: {name}")


def bpf_object(folder: Path) -> Feed:
    """Feed an object file of eBPF programs, or the list of checksums beside it, damaged."""
    from ckptprof_collectors.ebpf.libbpf import CHECKSUMS, BpfObject, checksum

    kept = ROOT / "collectors/ckptprof_collectors/bpf"
    name = "block.x86_64.bpf.o"
    whole = (kept / name).read_bytes()
    path = folder / name

    def feed(data: bytes) -> None:
        edits = data[1:] if data[:1] == b"C" else data
        if data[:1] == b"C":  # the list: then the object is whole, and only what the list says may refuse it
            path.write_bytes(whole)
            (folder / CHECKSUMS).write_bytes(edits)
            if checksum(name, whole) in edits.decode("utf-8", "replace").splitlines():
                return
        else:
            path.write_bytes(edits)
            shutil.copy(kept / CHECKSUMS, folder)
            if edits == whole:
                return
        BpfObject(_Tripwire(), path)  # type: ignore[arg-type]
        raise AssertionError("a damaged object was opened")

    return feed


def ring(folder: Path) -> Feed:
    """Feed records of the eBPF programs' ring, each behind its length, as the sampler takes them in."""
    from ckptprof_collectors.ebpf.file_records import HEAD, RECORD_BYTES, RecordKind, SampleDecoder
    from ckptprof_collectors.ebpf.session_paths import SessionPaths
    from ckptprof_collectors.ebpf.trace import EbpfTrace

    class _Nothing:
        def __getattr__(self, name: str) -> Any:
            return lambda *_: None

    def feed(data: bytes) -> None:
        records = []
        while len(data) >= 2 and len(records) < 500:
            length = int.from_bytes(data[:2], "little")
            record = data[2 : 2 + length]
            data = data[2 + length :]
            wanted = RECORD_BYTES if record[:4].ljust(4, b"\0") == struct.pack("<I", RecordKind.SESSION) else HEAD.size
            records.append(record.ljust(wanted, b"\0"))  # the programs send whole ones
        trace = EbpfTrace.__new__(EbpfTrace)
        trace._ring = type("Given", (), {"consume": lambda _, limit: records[:limit]})()  # type: ignore[assignment]
        trace._paths, trace._decoder = SessionPaths(), SampleDecoder(str(folder), 100)
        trace._files = _Nothing()  # type: ignore[assignment]
        samples: list[Any] = []
        trace._ingest_records(1, samples)
        _pack(samples)

    return feed


def _pack(samples: list[Any]) -> None:
    """Send them as the sampler does, and take them as the recorder does: what cannot be sent ends the sampler."""
    from ckptprof.recording import Frame, Unpacker, pack

    unpacker = Unpacker()
    unpacker._have_header = True
    (frame,) = unpacker.feed(pack(Frame(1, 1, (), tuple(samples))))
    assert len(frame.samples) == len(samples)


def config(folder: Path) -> Feed:
    """Feed the service's config.toml."""
    from ckptprof.cli.shared.agent_settings import read

    path = folder / "config.toml"

    def feed(data: bytes) -> None:
        path.write_bytes(data)
        read(path)

    return feed


def sockets(folder: Path) -> Feed:
    """Feed what the kernel tells of TCP sockets, each answer behind its length, as the sampler takes them in."""
    from unittest.mock import patch

    from ckptprof_collectors.kernelfs import KernelFs
    from ckptprof_collectors.networks import inet_diag, tcp_endpoints
    from ckptprof_collectors.networks.netlink import DONE, HEADER, Netlink
    from ckptprof_collectors.networks.tcp_endpoints import TcpEndpoints

    end = HEADER.pack(20, DONE, 2, 1, 0) + bytes(4)

    class _Given(Netlink):
        def __init__(self, *_: Any) -> None:
            self.sequence, self._family_name = 1, "sock_diag"
            self.parts: list[bytes] = []

        def request(self, *_: Any, **__: Any) -> None:
            pass

        def receive(self) -> bytes:
            return self.parts.pop(0) if self.parts else end

        def close(self) -> None:
            pass

    closed: list[bytes] = []

    class _Closed:
        def read_messages(self) -> Iterator[bytes]:
            yield from closed

        def close(self) -> None:
            pass

    def feed(data: bytes) -> None:
        with patch.object(inet_diag, "ClosedSockets", _Closed):
            taken(data)

    def taken(data: bytes) -> None:
        now = 0.0
        closed.clear()
        with patch.object(inet_diag, "Netlink", _Given), patch.object(tcp_endpoints, "Netlink", _Given):
            collector = TcpEndpoints(KernelFs(), clock=lambda: now)
        collector._read_segments = bytes  # type: ignore[method-assign] # unknown: always ask
        collector.read()
        samples: list[Any] = []
        while len(data) >= 2 and now < 10_000:
            length = int.from_bytes(data[:2], "little")
            now += 100
            given: Any = collector._table._netlink
            given.parts, data = [data[2 : 2 + length]], data[2 + length :]
            closed[:] = given.parts  # the kernel tells of one that closed as it tells of one that is there
            with contextlib.suppress(OSError):
                samples += collector.read() or ()
        _pack(samples)

    return feed


def clients(folder: Path) -> Feed:
    """Feed what clients of remote mounts count, read twice, and what they did in between."""
    import msgspec

    from ckptprof.detect.world.frame_samples import FrameSamples
    from ckptprof.detect.world.host.remote_client_counters import RemoteClientCounters as Pasts
    from ckptprof.measures import MountMeasure
    from ckptprof.recording import Frame
    from ckptprof_collectors.kernelfs import KernelFs
    from ckptprof_collectors.mounts.client_counters import RemoteClientReader
    from ckptprof_collectors.mounts.mountinfo import MountReader

    home = folder / "host"
    fs = KernelFs(home / "proc", home / "sys", home / "dev")

    def feed(data: bytes) -> None:
        shutil.rmtree(home, ignore_errors=True)
        (home / "proc/self").mkdir(parents=True)
        (home / "proc/self/mountinfo").touch()
        again, now = _lay_out(data, home), 0.0
        mounts, collector, pasts = (
            MountReader(fs),
            RemoteClientReader(fs, clock=lambda: now, cpu_seconds=float),
            Pasts(),
        )
        samples: list[Any] = []
        for now in (100.0, 200.0):
            with contextlib.suppress(OSError):
                mounts.read()
                collector.set_mounts(mounts.mounts)
                read = tuple(collector.read() or ())
                samples += read
                at_ns = int(now * 1e9)
                pasts.ingest(FrameSamples(Frame(at_ns, at_ns, (), read), {"clients": at_ns - 10**9}))
            for piece in again:
                _lay_out(piece, home)
        collector.close()
        mounts.close()
        _pack(samples)
        for mount in mounts.mounts:
            bare = MountMeasure(mount_point=mount.mount_point, fs_type=mount.fs_type, source="", remote=True)
            msgspec.json.encode(pasts.enrich(bare, mount, 100 * 10**9, 200 * 10**9))

    return feed


TARGETS = {
    "arguments": Target(arguments, ()),
    "bpf-object": Target(bpf_object, (OSError,)),
    "clients": Target(clients, ()),
    "config": Target(config, (CkptprofError,)),
    "database": Target(database, (StoreError,)),
    "job": Target(job, ()),
    "pipe": Target(pipe, (RecordingError,)),
    "recording": Target(recording, (RecordingError,)),
    "request": Target(request, ()),
    "ring": Target(ring, ()),
    "sockets": Target(sockets, ()),
    "tree": Target(tree, ()),
}
