"""What `ckptprof live` shows of a database, and of the counters of this host."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timezone
from pathlib import Path

import msgspec
import pytest
from tests.cli.recorded import BEGIN_NS, SECOND, recorded, save

from ckptprof.cli.main import main
from ckptprof.detect.events.decision_table import Hypothesis
from ckptprof.detect.events.deferred import PendingEvent
from ckptprof.detect.events.event_history import HistoryEvent
from ckptprof.model import CUT_AT_END, HUNG, Checkpoint, Evidence, Status
from ckptprof.report.live.frame import ScreenOptions, frame
from ckptprof.report.live.state import Device
from ckptprof.service.live.following import STOPPED, DeviceRates, LiveReader
from ckptprof.service.recorder.pending import encode
from ckptprof.store.reader import StoreReader
from ckptprof.store.writer import StoreWriter
from ckptprof_collectors.kernelfs import KernelFs
from ckptprof_collectors.samples import DeviceInfo, DiskSample, EntityGone, NicInfo, NicSample, RdmaSample

NOW = BEGIN_NS + 100 * SECOND
DISKS = "   8       0 sda 1 0 {read} 1 1 0 {written} 1 0 {busy_ms} 1 0 0 0 0\n"
NICS = "Inter-|   Receive  |  Transmit\n face |bytes packets\n  eth0: {received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a database of three saves."""
    return Path(recorded(tmp_path / "x.db"))


@pytest.fixture
def reader(path: Path) -> Iterator[StoreReader]:
    """Open it."""
    with StoreReader(path) as found:
        yield found


def going_on(number: int, if_alone: Hypothesis | None = None) -> PendingEvent:
    """Return a save in whose midst the recorder looked."""
    cut = (Evidence(name=CUT_AT_END, weight=0.0, text="it goes on"),)
    one: Checkpoint = msgspec.structs.replace(save(number), id=0, evidence=cut, status=Status.INCOMPLETE)
    event = HistoryEvent(start_ns=1, end_ns=2, bytes=3, shapes=frozenset(), paths=frozenset(),
                      processes=frozenset(), programs=frozenset())  # fmt: skip
    return PendingEvent(one, event, "", "b", if_alone)


class Host:
    """The counters of a host with one disk and one NIC, and its clock."""

    def __init__(self, root: Path, boot_id: str) -> None:
        """Make its files."""
        self.now_ns = NOW
        self.fs = KernelFs(proc=root / "proc", sys=root / "sys", dev=root / "dev", run=root / "run")
        (self.fs.proc / "self/net").mkdir(parents=True)
        (self.fs.sys / "class/net/eth0/device").mkdir(parents=True)
        (self.fs.proc / "sys/kernel/random").mkdir(parents=True)
        (self.fs.proc / "sys/kernel/random/boot_id").write_text(boot_id + "\n")
        self.count()

    def count(self, *, read: int = 0, written: int = 0, busy_ms: int = 0, received: int = 0, sent: int = 0) -> None:
        """Set the counters: sectors of the disk, bytes of the NIC."""
        (self.fs.proc / "diskstats").write_text(DISKS.format(read=read, written=written, busy_ms=busy_ms))
        (self.fs.proc / "self/net/dev").write_text(NICS.format(received=received, sent=sent))

    def rates(self) -> DeviceRates:
        """Return what reads them."""
        return DeviceRates(self.fs, lambda: self.now_ns)


@pytest.fixture
def host(tmp_path: Path, reader: StoreReader) -> Host:
    """Return the host that the database was recorded on."""
    return Host(tmp_path / "host", reader.sessions()[-1].boot_id)


def test_checkpoints_under_way_are_shown_while_a_recorder_runs(path: Path, reader: StoreReader, host: Host) -> None:
    """Only those that are certain; progress is measured against the save before. Those of a dead recorder are not."""
    session = msgspec.structs.replace(reader.sessions()[-1], end_ns=NOW - 10 * SECOND, clean=False)
    with closing(StoreWriter(path)) as writer:
        sure, unsure = going_on(7), going_on(8, Hypothesis.SAVE)
        writer.update_session(session)
        writer.add_checkpoints([], {one.checkpoint.uid: encode(one) for one in (sure, unsure)} | {"x": b"\xc1"}, ())

    state = LiveReader(reader, host.rates()).state(NOW)
    chosen = LiveReader(reader, host.rates(), job="tra*").state(NOW)
    other = LiveReader(reader, host.rates(), job="other").state(NOW)
    killed = LiveReader(reader, host.rates()).state(NOW + 30 * SECOND)
    with closing(StoreWriter(path)) as writer:
        writer.update_session(msgspec.structs.replace(session, clean=True))
    ended = LiveReader(reader, host.rates()).state(NOW)

    assert [one.uid for one in state.underway] == ["uid-7"]
    assert state.underway[0].usual_bytes == save(2).bytes
    assert state.underway[0].so_far is not None
    assert (state.notes, state.level) == ((), "poll")
    assert [one.id for one in state.last] == [3, 2, 1]
    assert (chosen.underway, chosen.last) == (state.underway, state.last)
    assert (other.underway, other.last) == ((), ())
    for one in (killed, ended):
        assert (one.underway, one.devices, one.level) == ((), (), None)
        assert one.notes[0].startswith(f"{STOPPED}: this is its state of ")


def test_a_save_that_hangs_is_told_by_live_and_report_while_a_recorder_runs(
    path: Path, reader: StoreReader, host: Host, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if nothing else was recorded of the job; the report of a dead recorder says nothing of it."""
    session = msgspec.structs.replace(reader.sessions()[-1], end_ns=time.time_ns(), clean=False)
    hung = Evidence(name=HUNG, weight=0.0, text="rank 1 (python 8) was stopped by a signal, 29 MB into \x1b[2Jx")
    one = going_on(7)
    one.checkpoint = msgspec.structs.replace(one.checkpoint, evidence=(*one.checkpoint.evidence, hung))
    with closing(StoreWriter(path)) as writer:
        writer.update_session(session)
        writer.add_checkpoints([], {one.checkpoint.uid: encode(one)}, ())
    state = LiveReader(reader, host.rates()).state(session.end_ns)
    screen = "\n".join(frame(state, ScreenOptions(width=100, height=30, zone=timezone.utc)))
    monkeypatch.setenv("COLUMNS", "120")
    queries = ((), ("--since", "1h"), ("--until", "1h"), ("--job", "other"))
    codes = [main(["report", "--db", str(path), *more]) for more in queries]
    told = capsys.readouterr()
    for command in ("report", "list"):
        assert main([command, "--db", str(path), "--json"]) == 0
    documents = capsys.readouterr().out
    with closing(StoreWriter(path)) as writer:
        writer.update_session(msgspec.structs.replace(session, end_ns=BEGIN_NS + 100 * SECOND))
    main(["report", "--db", str(path)])

    sentence = "rank 1 (python 8) was stopped by a signal, 29 MB into"
    assert state.underway[0].hung == hung.text
    assert f"train hangs: {sentence}" in screen
    assert codes == [0, 3, 0, 3]
    assert told.out.startswith(f"Hangs now  train in a save: {sentence}")
    assert told.out.count("Hangs now") == 1
    assert told.err.count(f"hangs now: train in a save: {sentence}") == 1
    assert documents.count(f'"hung": "{sentence}') == 2
    assert "\x1b" not in told.out + told.err + screen + documents
    assert "Hangs now" not in capsys.readouterr().out


def test_device_rates_are_of_this_host_alone(path: Path, reader: StoreReader, host: Host, tmp_path: Path) -> None:
    """A database of another host, or of another boot, has no rates here."""
    elsewhere = Host(tmp_path / "elsewhere", "another")
    with closing(StoreWriter(path)) as writer:
        writer.update_session(msgspec.structs.replace(reader.sessions()[-1], end_ns=NOW, clean=False))

    assert [one.name for one in LiveReader(reader, host.rates()).state(NOW).devices] == ["sda", "eth0"]
    assert LiveReader(reader, elsewhere.rates()).state(NOW).devices == ()


def test_a_rate_is_the_rise_between_two_readings(host: Host) -> None:
    """One reading gives none, nor do counters that went back; a reading at once gives the same rates."""
    rates = host.rates()
    host.now_ns += SECOND
    host.count(read=10, written=2000, busy_ms=200, received=5, sent=7)

    found = rates.read()
    host.count(read=0, written=4000, busy_ms=9000)
    again = rates.read()
    host.now_ns += 2 * SECOND
    later = rates.read()

    assert found[0] == Device(
        name="sda", kind="disk", read_bytes_per_second=5120.0, written_bytes_per_second=1_024_000.0, busy_share=0.2,
        at_ns=NOW + SECOND,
    )  # fmt: skip
    assert (found[1].kind, found[1].read_bytes_per_second, found[1].written_bytes_per_second) == ("nic", 5.0, 7.0)
    assert again == found
    assert (later[0].read_bytes_per_second, later[0].written_bytes_per_second) == (None, 512_000.0)
    assert later[0].busy_share == 1.0
    assert later[1].read_bytes_per_second is None
    rates.close()


def test_bytes_are_counted_once_and_what_has_left_is_gone(host: Host) -> None:
    """No partition, no bridge, no disk that was unplugged."""
    rates = host.rates()
    zero = DiskSample("vda", *[0] * 11)
    partition = DeviceInfo("vda1", 1, 1, "partition", ("vda",), False, None, None, None, None, None, None)  # noqa: FBT003
    bridge = NicInfo("br0", None, None, None, False)  # noqa: FBT003
    disks = [msgspec.structs.replace(zero, device=name) for name in ("vda", "vda1", "sdb")]
    rates._update([partition, bridge, *(NicSample(name, *[0] * 8) for name in ("lo", "br0", "eth1")), *disks])
    rates._update([EntityGone("device", "sdb"), RdmaSample("mlx5_0/1", None, 3_000, None, None, None)])
    host.now_ns += SECOND

    assert {one.name for one in rates.read()} == {"sda", "eth0", "vda", "eth1", "mlx5_0/1"}
    rates.close()
