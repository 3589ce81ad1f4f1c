"""Saves and restores on Lustre, played on the files of its client: there is no Lustre in this kernel.

Each plays a training that saves, tick by tick: what the client counts is written to a made-up tree, read by the
collector, and goes through detection and diagnosis. Each has a control that is healthy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.detect.stage import MIB, Stage
from tests.diagnose.hand import GIB, link, measured, save, thread
from tests.lustretree import LustreTree, lustre_mount

from ckptprof.diagnose.diagnosis import diagnose
from ckptprof.measures import MountMeasure, ServerMeasure
from ckptprof.model import Checkpoint, Level
from ckptprof.verdicts import Limit, Verdict
from ckptprof_collectors.mounts.client_counters import RemoteClientReader
from ckptprof_collectors.samples import RdmaInfo, RdmaSample, Sample, ThreadSample

HYBRID = {"hybrid_io": 1, "hybrid_io_write_threshold_bytes": 2 * MIB, "hybrid_io_read_threshold_bytes": 8 * MIB}
RPC = 4 * MIB
START_S = 8.0


@dataclass
class Played:
    """A training that saves to Lustre, or restores from it, from START_S on."""

    root: Path
    size: int = 16 * GIB
    seconds: float = 10.5
    reads: bool = False
    version: str = "2.17.0"
    each_us: int = 60_000  # of a request
    slow: dict[str, int] = field(default_factory=dict)  # of a request to these
    stripes: int = 16
    active: int = 8  # requests on their way to each target
    settings: dict[str, int] = field(default_factory=dict)
    piece: int = MIB
    switched: float = 0.0  # share of the calls
    from_pcc: bool = False
    copies: bool = False  # the thread is on CPU, in the kernel
    port: float = 25e9  # bytes per second that the port can
    more: Callable[[LustreTree, float], None] | None = None

    def __post_init__(self) -> None:
        """Mount it."""
        self.tree = LustreTree(self.root, self.version, settings=self.settings)
        self._now = 0.0
        self.clients = RemoteClientReader(self.tree.fs, clock=lambda: self._now, cpu_seconds=float)
        self._done = 0

    def samples(self, until_s: float) -> list[tuple[float, Sample]]:
        """Return what is read in each tenth of a second."""
        mount = lustre_mount()
        self.clients.set_mounts([mount])
        found: list[tuple[float, Sample]] = [
            (0.05, mount),
            (0.05, RdmaInfo("mlx5_0/1", round(self.port * 8), "ACTIVE", "InfiniBand", None)),
        ]
        moved = 0
        for tick in range(int(until_s * 10)):
            self._now = tick / 10
            done = int(self.size * min(max(0.0, self._now - START_S) / self.seconds, 1.0))
            if self.more is not None:
                self.more(self.tree, self._now)
            moved += self._count(done - self._done)
            self._done = done
            self.tree.flush()
            found.append((self._now, RdmaSample("mlx5_0/1", *((moved, 1) if self.reads else (1, moved)), 1, 1, 0)))
            found += [(self._now, sample) for sample in self.clients.read() or ()]
        return found

    def _count(self, size: int) -> int:
        """Count so many bytes of calls, and the requests for them; return what went over the wire."""
        if not size:
            return 0
        kind, calls = "read" if self.reads else "write", size // self.piece
        switched = int(calls * self.switched)
        self.tree.count("llite", f"{kind}_bytes", calls, size, "bytes")
        if switched:
            self.tree.count("llite", f"hybrid_{kind}_bytes", switched, switched * self.piece, "bytes")
            self.tree.count("llite", f"hybrid_{kind}size_switch", switched, 0, "calls")
        elif self.settings and not self.reads:
            self.tree.count("llite", "hybrid_noswitch", calls, 0, "calls")
        if self.from_pcc:
            self.tree.count("llite", "pcc_hit_bytes", calls, size, "bytes")
            return 0
        names = self.tree.names[3 : 3 + self.stripes] if self.stripes == 1 else self.tree.names[: self.stripes]
        for ost in names:
            requests = max(1, size // RPC // self.stripes)
            each = size // self.stripes // requests
            self.tree.wrote(ost, requests, each, self.slow.get(ost, self.each_us), reads=self.reads, active=self.active)
        return size

    def checkpoint(self) -> Checkpoint:
        """Return it as it is detected."""
        stage, until_s = Stage(hz=10.0), START_S + self.seconds + 9
        trainer = stage.process()
        if self.reads:
            stage.read(
                trainer, "/ckpt/step_1.pt", START_S, self.seconds, self.size, from_disk=False, call_bytes=self.piece
            )
        else:
            stage.write(trainer, "/ckpt/step_1.pt", START_S, self.seconds, self.size, call_bytes=self.piece)
        key = (trainer.pid, trainer.info.start_ticks, trainer.pid, "python3")
        looks: list[tuple[float, Sample]] = []
        for at in range(int(START_S * 10), int((START_S + 0.5 + self.seconds) * 10)):
            used = at * (10**8 if self.copies else 1000)
            ticks, doing = (at * 10, ("R", -1)) if self.copies else (at // 50, ("D", 0 if self.reads else 1))
            looks.append((at / 10, ThreadSample(*key, used, 0, at // 50, ticks, 0, None, *doing, "")))
        stage.extra = sorted([*looks, *self.samples(until_s)], key=lambda pair: pair[0])
        (found,) = stage.play(until_s)
        return found

    def verdict(self) -> Verdict:
        """Return its verdict."""
        verdict = diagnose(self.checkpoint()).verdict
        assert verdict is not None
        return verdict


def told(verdict: Verdict) -> str:
    """Return all that a person reads of its evidence."""
    return "\n".join((verdict.sentence, *verdict.evidence, *verdict.excluded))


def healthy(tmp_path: Path, **how: Any) -> Verdict:
    """Return the verdict of the same where nothing is slow: it takes no time that matters."""
    return Played(tmp_path / "healthy", **{"each_us": 2000, "active": 1, "seconds": 0.4, **how}).verdict()


def test_a_slow_ost_is_named(tmp_path: Path) -> None:
    """It takes five times as long as the others, with the same bytes."""
    verdict = Played(tmp_path / "slow", slow={"OST0007": 300_000}, active=2).verdict()

    assert (verdict.limit, verdict.cause) == (Limit.SERVER, "slow-target")
    assert "OST0007 on 10.0.3.9 took 300.0 ms for each of" in verdict.sentence
    assert "the other 15 targets 60.0 ms" in verdict.sentence
    assert "osp.*-OST0007-*.max_create_count=0" in (verdict.remedy or "")
    assert healthy(tmp_path).limit is Limit.NONE


def test_an_ost_that_is_slow_but_hardly_asked_is_not_named(tmp_path: Path) -> None:
    """Nobody waited for it: of the time its requests fill a fraction."""
    verdict = Played(tmp_path, size=80 * MIB, each_us=10_000, slow={"OST0007": 40_000}, active=1).verdict()

    assert verdict.cause != "slow-target"


def test_an_ost_that_does_not_answer_is_named(tmp_path: Path) -> None:
    """Its requests run into their timeout, and its connection is lost."""

    def lose(tree: LustreTree, at_s: float) -> None:
        if at_s == START_S + 2:
            tree.connect("OST0003", "10.0.3.5@o2ib", state="DISCONN", timeouts=6)

    verdict = Played(tmp_path, more=lose).verdict()

    assert (verdict.limit, verdict.cause) == (Limit.SERVER, "slow-target")
    assert "6 requests to OST0003 on 10.0.3.5 timed out, and it is in state DISCONN" in verdict.sentence


def test_osts_that_are_all_slow_are_the_servers(tmp_path: Path) -> None:
    """As many requests are on their way as there may be, and the port has room."""
    verdict = Played(tmp_path / "slow", each_us=300_000, active=8).verdict()

    assert (verdict.limit, verdict.cause) == (Limit.SERVER, "slow-server")
    assert "all 16 targets took 300.0 ms for each request, with 8.0 of at most 8 in flight to each" in verdict.sentence
    assert "the network carried only 1.6" in told(verdict)


def test_a_full_port_is_the_network(tmp_path: Path) -> None:
    """Requests take long there, too."""
    verdict = Played(tmp_path, each_us=300_000, active=8, port=1.7e9).verdict()

    assert (verdict.limit, verdict.cause) == (Limit.NETWORK, "full-link")
    assert "mlx5_0/1 transferred 1.6" in verdict.sentence


def test_one_ost_that_takes_all_is_a_matter_of_stripes(tmp_path: Path) -> None:
    """A folder without a stripe setting puts a file on one; over all of them it is a healthy save."""
    verdict = Played(tmp_path / "one", stripes=1, each_us=18_000).verdict()

    assert (verdict.limit, verdict.cause) == (Limit.SERVER, "stripes")
    assert "100 % of the bytes went to one of 16 OSTs, OST0003 on 10.0.3.5" in told(verdict)
    assert "OST0003 on 10.0.3.5 took 18.0 ms for each request" in told(verdict)
    assert healthy(tmp_path).limit is Limit.NONE


def test_without_grant_each_write_waits(tmp_path: Path) -> None:
    """An OST that is nearly full promises no space."""

    def fill(tree: LustreTree, at_s: float) -> None:
        if at_s == START_S - 3:
            tree.gauge("OST0005", "cur_grant_bytes", 4096)
            tree.gauge("OST0005", "cur_dirty_bytes", 0)

    verdict = Played(tmp_path, each_us=300_000, more=fill).verdict()

    assert (verdict.limit, verdict.cause) == (Limit.SERVER, "grant")
    assert "OST0005 on 10.0.3.7 granted 4.10 kB of space in advance at the last sample" in told(verdict)


@pytest.mark.parametrize("version", ["2.16.0", "2.17.0"])
def test_hybrid_io_that_is_off(tmp_path: Path, version: str) -> None:
    """The thread copies into the page cache, the servers have room; switched on, there is nothing to say."""
    copied = {"settings": {**HYBRID, "hybrid_io": 0}, "copies": True, "active": 1, "each_us": 5000, "piece": 4 * MIB}
    verdict = Played(tmp_path / "off", version=version, **copied).verdict()  # type: ignore[arg-type]

    assert (verdict.limit, verdict.cause) == (Limit.PAGE_CACHE, "hybrid-io")
    assert "hybrid I/O is off" in told(verdict)
    assert verdict.remedy == "`lctl set_param llite.*.hybrid_io=1`"
    assert healthy(tmp_path, settings=HYBRID, piece=4 * MIB, switched=1.0).limit is Limit.NONE


def test_hybrid_io_below_its_threshold(tmp_path: Path) -> None:
    """The median write is smaller than what it switches: the command that lowers it is told."""
    verdict = Played(tmp_path, settings=HYBRID, copies=True, active=1, each_us=5000).verdict()

    assert (verdict.limit, verdict.cause) == (Limit.PAGE_CACHE, "hybrid-io")
    assert "hybrid I/O on, 0 % of the bytes switched: the median write is 1.0" in told(verdict)
    assert "MB, the threshold 2.10 MB" in told(verdict)
    assert verdict.remedy == "`lctl set_param llite.*.hybrid_io_write_threshold_bytes=1048576`"


@pytest.mark.parametrize(("settings", "switched"), [(HYBRID, 1.0), ({}, 0.0)])
def test_copies_without_hybrid_io_to_speak_of(tmp_path: Path, settings: dict[str, int], switched: float) -> None:
    """Switched, or by a client that has none: copying at the speed of memory is no limit."""
    verdict = Played(tmp_path, settings=settings, switched=switched, copies=True, active=1, each_us=5000).verdict()

    assert (verdict.limit, verdict.cause) == (Limit.NONE, None)


def test_a_restore_from_pcc_is_warm(tmp_path: Path) -> None:
    """Not a byte crosses the wire."""
    played = Played(tmp_path, reads=True, from_pcc=True)
    found = played.checkpoint()
    verdict = diagnose(found).verdict

    assert (found.cache, found.storage_bytes) == ("warm", 0)
    assert verdict is not None
    assert (verdict.limit, verdict.cause) == (Limit.NONE, "warm-pcc")
    assert "it came from PCC, on a disk of this host" in verdict.sentence


def test_a_restore_from_servers_is_cold(tmp_path: Path) -> None:
    """The client counted as much on the wire as the restore has, and nobody else read."""
    found = Played(tmp_path, reads=True, each_us=300_000).checkpoint()

    assert found.cache == "cold"
    assert found.storage_bytes == pytest.approx(16 * GIB, rel=0.05)
    assert diagnose(found).verdict.limit is Limit.SERVER  # type: ignore[union-attr]


def far(*servers: ServerMeasure, **more: Any) -> MountMeasure:
    """Return a mount of Lustre with these targets."""
    told_: dict[str, Any] = {
        "mount_point": "/ckpt", "fs_type": "lustre", "source": "10.0.0.1@o2ib:/scratch", "remote": True,
        "server": "10.0.0.1", "per_server": servers, "in_use_mean": 7.5, "slots": 8,
    }  # fmt: skip
    return MountMeasure(**{**told_, **more})


def ost(number: int, **more: Any) -> ServerMeasure:
    """Return one that took 64 MiB in requests of 40 ms."""
    told_: dict[str, Any] = {
        "name": f"OST000{number}", "address": f"10.0.3.{number}", "state": "FULL", "read_bytes": 0,
        "written_bytes": 64 * MIB, "operations": 300, "seconds": 0.04, "timeouts": 0,
    }  # fmt: skip
    return ServerMeasure(**{**told_, **more})


def said(mount: MountMeasure, seconds: float = 20) -> Verdict:
    """Return the verdict of a save in which the thread waited for 19 of 20 s."""
    at = thread(Level.TRACE, seconds, data=0.95 * seconds, copy=0.05 * seconds)
    verdict = diagnose(save(Level.TRACE, seconds, measured(at, mount=mount, links=(link(),)))).verdict
    assert verdict is not None
    return verdict


def test_small_requests_are_small_operations() -> None:
    """One to four pages in each."""
    verdict = said(far(*(ost(number, operations=20_000, seconds=0.004) for number in range(4))))

    assert verdict.limit is Limit.SMALL_IO
    assert "80,000 requests of 3.36 kB" in verdict.sentence


@pytest.mark.parametrize(
    "mount",
    [
        far(),
        far(ost(1), in_use_mean=None),
        far(ost(1, seconds=None), ost(2, operations=None)),
        far(ost(1), in_use_mean=1.0),
    ],
)
def test_what_targets_do_not_tell_is_left_to_the_link(mount: MountMeasure) -> None:
    """The link has room: the server, as far as is known."""
    verdict = said(mount)

    assert verdict.limit is Limit.SERVER
    assert "took" not in verdict.sentence


def cause(mount: MountMeasure) -> str | None:
    """Return what is told to be the cause of such a wait."""
    return said(mount).cause


def four(**last: Any) -> tuple[ServerMeasure, ...]:
    """Return four targets of which the last one is otherwise."""
    return (*(ost(number) for number in range(3)), ost(3, **last))


def test_how_much_slower_is_slow() -> None:
    """Three times the others, of several requests that fill half of the time."""
    assert cause(far(*four(seconds=0.16))) == "slow-target"
    assert cause(far(*four(seconds=0.08))) == "slow-server"
    assert cause(far(*four(seconds=1.6, operations=10, written_bytes=2 * MIB))) == "slow-target"
    assert cause(far(*four(seconds=2.6, operations=6, written_bytes=MIB))) == "slow-server"
    assert cause(far(*four(seconds=0.16, operations=30, written_bytes=6 * MIB))) == "slow-server"


def test_an_ost_with_large_requests_is_not_slow_beside_those_with_small_ones() -> None:
    """A file on one of four, names and markers on the others; of like size are requests of half of its bytes."""
    large = ost(0, written_bytes=10 * GIB, operations=2560, seconds=0.004)
    small = [ost(number, written_bytes=MIB, operations=16, seconds=0.0006) for number in (1, 2, 3)]
    assert cause(far(large, *small, settings={"osts": 4})) == "stripes"

    slow = ost(0, seconds=0.16, written_bytes=600 * MIB)
    assert cause(far(slow, *(ost(one, written_bytes=310 * MIB) for one in (1, 2, 3)))) == "slow-target"
    assert cause(far(slow, *(ost(one, written_bytes=290 * MIB) for one in (1, 2, 3)))) == "slow-server"
    told_ = said(far(slow, ost(1, written_bytes=400 * MIB), ost(2, written_bytes=MIB, seconds=0.001)))
    assert "the other 1 target 40.0 ms" in told_.sentence


def test_a_timeout_of_before_the_save_is_not_of_it() -> None:
    """No request runs into its timeout sooner than in five seconds; a connection that is lost now is."""
    assert said(far(*four(timeouts=1)), seconds=5.1).cause == "slow-target"
    assert said(far(*four(timeouts=1)), seconds=4.9).cause == "slow-server"
    assert said(far(*four(timeouts=1, state="DISCONN")), seconds=4.9).cause == "slow-target"


def test_a_timeout_is_not_what_a_long_save_waited_for() -> None:
    """Of 19 s one of five is no half; two are."""
    assert said(far(*four(timeouts=1)), seconds=20).cause == "slow-server"
    assert said(far(*four(timeouts=2)), seconds=20).cause == "slow-target"
    assert said(far(*four(timeouts=1, state="DISCONN")), seconds=20).cause == "slow-target"


def test_how_many_requests_fill_a_target() -> None:
    """Seven tenths of those that may be on their way; of less the link alone is told."""
    assert "took 40.0 ms for each request, with 6.4 of at most 8" in said(far(*four(), in_use_mean=6.4)).sentence
    assert "took" not in said(far(*four(), in_use_mean=4.0)).sentence
    assert "took" not in said(far(ost(0, operations=6), in_use_mean=7.5)).sentence


def test_how_small_is_small() -> None:
    """Sixteen KiB: four pages."""
    each = {"operations": 5000, "seconds": 0.004}
    assert said(far(*(ost(one, **each, written_bytes=5000 * (12 << 10)) for one in range(4)))).limit is Limit.SMALL_IO
    assert said(far(*(ost(one, **each, written_bytes=5000 * (24 << 10)) for one in range(4)))).limit is Limit.SERVER


def test_how_much_on_one_is_all() -> None:
    """Nine tenths; the link has to have room, and there have to be others."""
    most, rest = ost(0, written_bytes=950 * MIB), ost(1, written_bytes=50 * MIB)
    assert cause(far(most, rest, settings={"osts": 8})) == "stripes"
    assert cause(far(most, ost(1, written_bytes=600 * MIB), settings={"osts": 8})) == "slow-server"
    assert cause(far(most, settings={"osts": 1})) == "slow-server"
    assert cause(far()) == "stripes"  # nobody counted it


def test_how_little_grant_is_none() -> None:
    """Less than one request takes."""
    assert cause(far(*four(gauges={"grant_bytes": 3 * MIB, "dirty_bytes": 0}))) == "grant"
    assert cause(far(*four(gauges={"grant_bytes": 6 * MIB, "dirty_bytes": 0}))) == "slow-server"


def test_grant_that_dirty_pages_use_is_there() -> None:
    """A fast save into the page cache uses nearly all of it; where nobody tells what is used, nothing is known."""
    assert cause(far(*four(gauges={"grant_bytes": MIB, "dirty_bytes": 2000 * MIB}))) == "slow-server"
    assert cause(far(*four(gauges={"grant_bytes": MIB}))) == "slow-server"


def switched(piece: int, level: Level = Level.TRACE, **settings: int) -> str | None:
    """Return the remedy of a save that was copied in pieces of a size, by a client with hybrid I/O."""
    at = thread(level, 20, copy=20)
    mount = far(ost(1), settings={**HYBRID, **settings}, counters={"writes": 100}, in_use_mean=1.0, written_bytes=GIB)
    told_ = save(level, 20, measured(at, mount=mount, links=(link(),)))
    pattern = msgspec.structs.replace(told_.pattern, median_operation_bytes=piece)
    verdict = diagnose(msgspec.structs.replace(told_, pattern=pattern)).verdict
    assert verdict is not None
    assert verdict.cause == "hybrid-io"
    return verdict.remedy


def test_what_would_switch_hybrid_io() -> None:
    """A threshold as large as the pieces; larger pieces where they are small; switching it on."""
    lower = "`lctl set_param llite.*.hybrid_io_write_threshold_bytes=1048576`"
    larger = "write in pieces of 2.10 MB or more (`buffering=`, packed tensors)"
    on = "`lctl set_param llite.*.hybrid_io=1`"
    assert switched(MIB) == switched(1_040_000, Level.POLL) == lower
    assert switched(1_040_000) == larger
    assert switched(600 << 10) == larger
    assert switched(MIB, hybrid_io=0) == f"{on} and {lower}"
    assert switched(600 << 10, hybrid_io=0) == f"{on} and {larger}"
    assert switched(4 * MIB, hybrid_io=0) == on
    assert (switched(4 * MIB) or "").startswith("write with O_DIRECT")


@pytest.mark.parametrize("threshold", [2 * MIB, 4 * MIB])
def test_pieces_just_under_a_power_of_two_are_under_it(threshold: int) -> None:
    """Seen call by call they are what they are: nothing but their size kept them from being switched."""
    lower = "`lctl set_param llite.*.hybrid_io_write_threshold_bytes=1048576`"
    assert switched(2_000_000, hybrid_io_write_threshold_bytes=threshold) == lower
