"""One checkpoint as it looks, and its chart."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import timezone
from typing import Any

import msgspec
import pytest

from ckptprof.measures import Measures, MountMeasure, OperationMeasure, PathMeasure, ServerMeasure
from ckptprof.model import (
    Checkpoint,
    Clock,
    DeviceShare,
    Evidence,
    Kind,
    Mode,
    Moments,
    Overhead,
    Pattern,
    Place,
    Point,
    Run,
    Status,
    Stream,
)
from ckptprof.report import checkpoint_facts, show
from ckptprof.report.clean import width as cells
from ckptprof.report.document import checkpoint_document
from ckptprof.report.pictures import chart
from ckptprof.verdicts import Account, Alternative, Cost, Limit

SECOND = 1_000_000_000


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("name", ["save", "restore", "broken", "copy", "verdict"])
def test_the_short_form_looks_as_agreed(
    name: str, width: int, shown: dict[str, Checkpoint], zone: timezone, golden: Callable[[str, str], None]
) -> None:
    """What limited it, what it cost and what to do, first; at 80 columns it fits a screen of 24 lines."""
    text = show.brief(shown[name], width=width, colour=False, zone=zone)

    golden(f"show/brief-{name}-{width}.txt", text)
    assert max(cells(line) for line in text.splitlines()) <= width
    assert width < 80 or text.count("\n") < 24
    assert any(line.startswith("Limit ") for line in text.splitlines()[2:4]) or name == "copy"


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("name", ["save", "restore", "broken", "copy", "verdict", "unclear"])
def test_nothing_of_it_is_wider_than_the_terminal(
    name: str, width: int, shown: dict[str, Checkpoint], zone: timezone
) -> None:
    """All of it, and what comes again at its end."""
    text = show.render(shown[name], width=width, colour=False, zone=zone)
    again = show.ending(shown[name], width=width, colour=False)

    assert max(cells(line) for line in (text + again).splitlines()) <= width
    assert set(again.splitlines()) <= set(text.splitlines())
    assert bool(again) == (name != "copy")


@pytest.mark.parametrize(
    ("cost", "ends", "starts"),
    [
        (Cost(bytes_per_second=1.3e9, durable_on_return=True, durable_bytes_per_second=4e8),
         "; 400 MB/s", "on return, "),
        (Cost(bytes_per_second=1.3e9, durable_on_return=False, durable_bytes_per_second=4e8),
         "; with fsync about 400 MB/s", "not on return: "),
        (Cost(bytes_per_second=1.3e9, durable_on_return=False), ", at 11:01:24.950", "not on return: "),
        (Cost(bytes_per_second=1.3e9), ", at 11:01:24.950", "on disk "),
    ],
)  # fmt: skip
def test_the_line_on_durability_tells_whether_it_was_when_the_save_returned(
    cost: Cost, ends: str, starts: str, detailed_checkpoint: Checkpoint, zone: timezone
) -> None:
    """And at what rate it goes to stable storage; silence where that is not known."""
    told = dict(checkpoint_facts.save_facts(msgspec.structs.replace(detailed_checkpoint, cost=cost), zone))["Durable"]

    assert told.startswith(f"{starts}5.65 s after the last write, at 11:01:24.950")
    assert told.endswith(ends)


@pytest.mark.parametrize("width", [80, 200])
def test_show_looks_as_agreed(
    width: int, detailed_checkpoint: Checkpoint, zone: timezone, golden: Callable[[str, str], None]
) -> None:
    """The golden files are what was looked at and found clear; nothing is wider than the terminal."""
    text = show.render(detailed_checkpoint, width=width, colour=False, zone=zone)

    golden(f"show/{width}.txt", text)
    assert max(cells(line) for line in text.splitlines()) <= width


@pytest.mark.parametrize("name", ["restore", "broken", "copy"])
def test_other_kinds_look_as_agreed(
    name: str, shown: dict[str, Checkpoint], zone: timezone, golden: Callable[[str, str], None]
) -> None:
    """A restore, a save that was broken off and a copy, each with what can be said of it and no more."""
    text = show.render(shown[name], width=80, colour=False, zone=zone)

    golden(f"show/{name}-80.txt", text)
    assert max(cells(line) for line in text.splitlines()) <= 80


@pytest.mark.parametrize("width", [80, 200])
def test_the_account_of_time_looks_as_agreed(
    width: int, shown: dict[str, Checkpoint], zone: timezone, golden: Callable[[str, str], None]
) -> None:
    """A verdict stands first: the sentence, a bar for each account, what speaks for it, the gain, what it cost."""
    text = show.render(shown["verdict"], width=width, colour=False, zone=zone)

    golden(f"show/verdict-{width}.txt", text)
    assert max(cells(line) for line in text.splitlines()) <= width
    assert not any(line.endswith(" ") for line in text.splitlines())


def test_a_verdict_that_is_unclear_says_so(
    shown: dict[str, Checkpoint], zone: timezone, golden: Callable[[str, str], None]
) -> None:
    """With both candidates, and in plain ASCII bars where the terminal has no more."""
    text = show.render(shown["unclear"], width=80, colour=False, zone=zone, blocks=chart.ASCII_BLOCKS)

    golden("show/unclear-80.txt", text)
    assert "Limit  unclear, possibly page-cache" in text
    assert text.isascii()


@pytest.mark.parametrize(
    ("confidence", "word"), [(0.8, "disk, likely (0.80)"), (0.6, "disk, probably (0.60)"), (0.59, "unclear (0.59)")]
)
def test_no_verdict_is_told_as_a_fact(
    confidence: float, word: str, make_diagnosed: Callable[..., Checkpoint], zone: timezone
) -> None:
    """A word says how sure it is, and each bar has the colour of its limit."""
    one = make_diagnosed(1, 0, confidence=confidence, limit=Limit.DEVICE)
    text = show.render(one, width=80, colour=True, zone=zone)

    assert word in text
    assert "\x1b[38;5;32m█" in text


def test_tiny_numbers_and_none_are_no_trouble(make_diagnosed: Callable[..., Checkpoint], zone: timezone) -> None:
    """Accounts without time have no bar, nor has what is no number; many are summed up."""
    many = tuple(Account(limit=limit, seconds=1.0 + n, text="") for n, limit in enumerate(list(Limit)[:12]))
    odd = (*many, Account(limit=None, seconds=math.nan, text="nan"), Account(limit=None, seconds=0.0, text="zero"))
    one = make_diagnosed(1, 0)
    assert one.verdict is not None
    verdict = msgspec.structs.replace(one.verdict, accounts=odd, expected_seconds=math.inf, remedy=None)
    text = show.render(msgspec.structs.replace(one, verdict=verdict), width=80, colour=False, zone=zone)

    assert "and 10.0 s (12.8 %) in 4 more: --json has them" in text
    assert "nan" not in text
    assert "Gain" not in text


def test_reasons_stand_beside_what_they_explain(make_checkpoint: Callable[..., Checkpoint], zone: timezone) -> None:
    """Evidence of mode and ending has no weight, and is no evidence for a checkpoint."""
    evidence = (
        Evidence(name="mode", weight=0.0, text="a thread wrote"),
        Evidence(name="incomplete", weight=0.0, text="its writer died"),
        Evidence(name="other", weight=0.0, text="a remark"),
        Evidence(name="name", weight=0.5, text="step in its name"),
    )
    one = make_checkpoint(1, 0, evidence=evidence, mode=Mode.ASYNC, status=Status.INCOMPLETE)
    text = " ".join(show.render(one, width=200, colour=False, zone=zone).split())

    assert "Mode async; a thread wrote" in text
    assert "do not restore from it; its writer died" in text
    assert "Detection signals +0.5 name: step in its name other: a remark" in text


@pytest.mark.parametrize("by_looks", [False, True])
def test_a_bound_is_told_as_one(detailed_checkpoint: Checkpoint, zone: timezone, *, by_looks: bool) -> None:
    """In words and in the document alike: looks at the page cache tell when a save was durable at the latest."""
    looks = (Evidence(name="durable", weight=0.0, text="written back by the kernel"),) * by_looks
    end_ns = detailed_checkpoint.end_ns
    one = msgspec.structs.replace(detailed_checkpoint, durable_ns=end_ns + SECOND, evidence=looks)
    text = " ".join(show.render(one, width=200, colour=False, zone=zone).split())

    assert checkpoint_document(one)["checkpoint"]["durable_is_most"] is by_looks
    assert [
        phrase in text for phrase in ("after the last write, by ", "At risk at most ", "stable storage, at the latest")
    ] == [by_looks] * 3
    assert checkpoint_document(msgspec.structs.replace(one, durable_ns=None))["checkpoint"]["durable_is_most"] is None


def test_moments_stand_in_the_order_of_time(detailed_checkpoint: Checkpoint, zone: timezone) -> None:
    """Each at its distance from the start; what was durable before its commit was never at risk."""
    start_ns = detailed_checkpoint.start_ns
    early = msgspec.structs.replace(
        detailed_checkpoint,
        durable_ns=start_ns + SECOND,
        moments=Moments(
            last_data_ns=start_ns + SECOND // 2, synced_ns=start_ns + SECOND, committed_ns=start_ns + 2 * SECOND
        ),
    )
    text = show.render(early, width=80, colour=False, zone=zone)
    course = text[text.index("Timeline") : text.index("Bandwidth")].splitlines()

    assert [line.split()[0] for line in course[1:6]] == ["+0", "+0.50", "+1.00", "+1.00", "+2.00"]
    assert "No first byte or cleanup observed." in course[6]
    assert re.search(r"At risk +never", text)


@pytest.mark.parametrize(
    ("written", "unique", "expected"),
    [
        (100, 100, "1.00x: nothing written beyond the checkpoint"),
        (150 << 20, 100 << 20, "1.50x: 157 MB written for 105 MB"),
        (100, 0, "not observed"),
        (None, 100, "not observed"),
        (100, None, "not observed"),
    ],
)
def test_amplification_is_told_where_both_sides_are_known(
    written: int | None, unique: int | None, expected: str, make_checkpoint: Callable[..., Checkpoint], zone: timezone
) -> None:
    """And never divides by nothing."""
    one = make_checkpoint(1, 0, written_bytes=written, unique_bytes=unique)

    assert re.search(rf"Amplification +{re.escape(expected)}\n", show.render(one, width=80, colour=False, zone=zone))


@pytest.mark.parametrize(
    ("cache", "storage", "expected"),
    [
        ("cold", 100 << 20, "cold: 105 MB of 105 MB came from a disk"),
        ("warm", 0, "warm: from the page cache; 0 B of 105 MB came from a disk"),
        ("partly", 50 << 20, "partly: 52.4 MB of 105 MB came from a disk"),
        ("\x1b[2J", 0, "not observed"),
        ("cold", None, "not observed"),
    ],
)
def test_where_a_restore_came_from(
    cache: str, storage: int | None, expected: str, make_checkpoint: Callable[..., Checkpoint], zone: timezone
) -> None:
    """In words, with both figures; a word that is none of ours says nothing."""
    one = make_checkpoint(
        1, 0, kind=Kind.RESTORE, bytes=100 << 20, unique_bytes=100 << 20, cache=cache, storage_bytes=storage
    )

    assert re.search(rf"Page cache +{re.escape(expected)}", show.render(one, width=80, colour=False, zone=zone))


def test_show_in_ascii(detailed_checkpoint: Checkpoint, zone: timezone, golden: Callable[[str, str], None]) -> None:
    """With the fallback the chart has no character beyond ASCII; a cut name still has its ellipsis."""
    text = show.render(detailed_checkpoint, width=80, colour=False, zone=zone, blocks=chart.ASCII_BLOCKS)

    golden("show/ascii-80.txt", text)
    assert not set(text) - set("\n…") - {chr(code) for code in range(32, 127)}


def test_what_was_not_seen_is_said(make_checkpoint: Callable[..., Checkpoint], zone: timezone) -> None:
    """A checkpoint of which little is known claims nothing."""
    bare = make_checkpoint(
        0, 0, path=None, ranks=None, framework=None, step=None, writers=(), evidence=(), limitations=(),
        pattern=Pattern(class_=None), kind=Kind.RESTORE,
    )  # fmt: skip
    text = show.render(bare, width=80, colour=False, zone=zone)

    assert "Restore (not stored), train.py\n" in text
    assert "Bandwidth over time\n  not observed\n" in text
    assert re.search(r"Sequential +not observed", text)
    assert re.search(r"Page cache +not observed", text)
    for name in ("Mode", "Durable", "At risk", "Amplification"):
        saved = show.render(msgspec.structs.replace(bare, kind=Kind.SAVE), width=80, colour=False, zone=zone)
        assert re.search(rf"{name} +not observed", saved)


def test_sizes_have_a_histogram(make_checkpoint: Callable[..., Checkpoint], zone: timezone) -> None:
    """Bars are in proportion to the bytes."""
    pattern = Pattern(class_=None, size_histogram={"4096": [100, 500_000], "1048576": [10, 10_500_000], "bad": [1, 1]})
    text = show.render(make_checkpoint(1, 0, pattern=pattern), width=80, colour=False, zone=zone)
    bars = {
        line.split("  ")[1].strip(): line.count("█")
        for line in text.splitlines()
        if re.search(r" from .* [kM]B ", line)
    }

    assert bars == {"from 4.10 kB": 2, "from 1.05 MB": 34}


def test_thousands_of_streams_are_cut_with_a_word(make_checkpoint: Callable[..., Checkpoint], zone: timezone) -> None:
    """The rest is counted."""
    stream = Stream(pid=1, comm="p", path="/f", bytes=1, size=None, start_ns=0, end_ns=1)
    text = show.render(make_checkpoint(1, 0, streams=(stream,) * 1040), width=80, colour=False, zone=zone)

    assert "and 1,000 more: --json has them all" in text


def test_resample_keeps_the_bytes() -> None:
    """However the points fall on the columns, none gets lost."""
    points = [Point(0, 3 * SECOND, 900), Point(3 * SECOND, 4 * SECOND, 100), Point(4 * SECOND, 4 * SECOND, 7)]
    speeds = chart.resample(points, 0, 4 * SECOND, 7)

    assert sum(speeds) * 4 / 7 == pytest.approx(1007)


@pytest.mark.parametrize(
    "points",
    [[], [Point(5, 5, 10)], [Point(0, SECOND, 0)], [Point(10, 5, 1)]],
    ids=["none", "instant", "still", "wrong"],
)
def test_nothing_to_draw(points: list[Point]) -> None:
    """A chart of nothing is no chart, and no division by zero."""
    assert chart.draw(points, 80, 6) == []


@pytest.mark.parametrize("span", [1, 1000, 30_000_000, 4 * SECOND, 3600 * SECOND, 10**17])
@pytest.mark.parametrize("width", [60, 80, 200])
def test_chart_fits_any_span(span: int, width: int) -> None:
    """From a nanosecond to three years."""
    lines = chart.draw([Point(0, span, 10**9)], width, 6)

    assert len(lines) == 8
    assert max(map(len, lines)) <= width
    assert lines[-1].strip().startswith("0")


@pytest.mark.parametrize(("value", "expected"), [(0, 1), (0.4, 1), (11, 15), (640e6, 800e6), (9.1e9, 1e10), (1e9, 1e9)])
def test_axis_ends_at_a_round_number(value: float, expected: float) -> None:
    """The top of the axis is at or above the value."""
    assert expected == chart.nice_ceiling(value)


def asked_of() -> DeviceShare:
    """Return a disk of which the requests were seen."""
    return DeviceShare(
        device="nvme0n1", kind="block", read_bytes=0, written_bytes=801 << 20, busy_seconds=2.5, under="/mnt/scratch",
        requests=1234, mean_request_bytes=680_653.2, sequential_share_bytes=0.9312, latency_p50_seconds=2**17.5 / 1e9,
        latency_p99_seconds=2**23.5 / 1e9, max_in_flight=64,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (
            80,
            """\
  NAME     KIND      READ  WRITTEN    BUSY  REQUESTS    P99  USED BY
  nvme0n1  block      0 B   840 MB  60.7 %     1,234  12 ms  /mnt/scratch
  eth0     nic    12.0 kB  40.0 kB       -         -      -  other data
""",
        ),
        (
            200,
            """\
  NAME     KIND      READ  WRITTEN    BUSY  REQUESTS  MEAN SIZE  SEQUENTIAL      P50    P99  USED BY
  nvme0n1  block      0 B   840 MB  60.7 %     1,234     681 kB      93.1 %  0.19 ms  12 ms  /mnt/scratch
  eth0     nic    12.0 kB  40.0 kB       -         -          -           -        -      -  other data
""",
        ),
    ],
)
def test_requests_of_devices_have_columns(
    width: int, expected: str, detailed_checkpoint: Checkpoint, zone: timezone
) -> None:
    """What was asked of a device stands beside what it moved; where space is short the most telling columns stay."""
    devices = (asked_of(), *detailed_checkpoint.devices[1:])
    text = show.render(
        msgspec.structs.replace(detailed_checkpoint, devices=devices), width=width, colour=False, zone=zone
    )

    assert expected in text
    assert max(cells(line) for line in text.splitlines()) <= width


def test_a_copy_under_a_further_name_is_told_beside_the_size(
    make_checkpoint: Callable[..., Checkpoint], zone: timezone
) -> None:
    """With its kind; what was staged elsewhere is not in the size."""
    again = (Overhead(reason="copy", bytes=477 << 20, text="last.ckpt: again"),)
    one = make_checkpoint(1, 0, bytes=954 << 20, unique_bytes=477 << 20, files=2, overheads=again)
    text = show.brief(one, width=200, colour=False, zone=zone)

    assert "Transferred   1.00 GB in 2 files in 4.12 s, 243 MB/s; 500 MB more than once (copy)\n" in text


def test_a_stream_that_ends_after_the_last_byte_is_explained(
    detailed_checkpoint: Checkpoint, make_checkpoint: Callable[..., Checkpoint], zone: timezone
) -> None:
    """It ends with its close; where it ends with its data there is nothing to explain."""
    last_ns = max(stream.end_ns for stream in detailed_checkpoint.streams)
    ends = msgspec.structs.replace(detailed_checkpoint, moments=Moments(last_data_ns=last_ns))
    texts = [show.render(one, width=80, colour=False, zone=zone) for one in (detailed_checkpoint, ends)]

    assert ["A stream ends when" in text for text in texts] == [True, False]


def test_each_limit_has_one_bar(make_diagnosed: Callable[..., Checkpoint], zone: timezone) -> None:
    """Two accounts of one limit are the parts of one, told with their seconds."""
    one = make_diagnosed(1, 0)
    assert one.verdict is not None
    accounts = tuple(
        Account(limit=Limit.SERIALIZE, seconds=seconds, text=f"at {seconds:.0f}: so") for seconds in (20.0, 10.0)
    )
    twice = msgspec.structs.replace(one, verdict=msgspec.structs.replace(one.verdict, accounts=accounts))
    texts = [tell(twice, width=80, colour=False, zone=zone) for tell in (show.brief, show.render)]

    assert [len(re.findall("^  serialize ", text, re.MULTILINE)) for text in texts] == [1, 1]
    assert all("20.0 s at 20; 10.0 s at 10: so" in text for text in texts)
    assert re.search("  serialize +30.0 s +76.5 %", texts[0])


@pytest.mark.parametrize(
    ("blocks", "drawn"), [(chart.BLOCKS, "█" * 10 + "▒" * 30), (chart.ASCII_BLOCKS, "#" * 10 + "/" * 30)]
)
def test_waits_for_a_cpu_are_hatched_and_have_a_remedy_of_their_own(
    make_diagnosed: Callable[..., Checkpoint], zone: timezone, blocks: str, drawn: str
) -> None:
    """In the bar of the work that waited."""
    account = Account(limit=Limit.SERIALIZE, seconds=4.0, text="compressing", runnable_seconds=3.0)
    other = Alternative(limit=Limit.CPU, remedy="run fewer jobs alongside", expected_seconds=1.0)
    made = make_diagnosed()
    assert made.verdict is not None
    verdict = msgspec.structs.replace(
        made.verdict, limit=Limit.SERIALIZE, seconds=4.0, accounts=(account,), alternative=other
    )
    text = show.brief(msgspec.structs.replace(made, verdict=verdict), width=120, colour=False, zone=zone, blocks=blocks)

    assert drawn in text
    assert "compressing; 3.00 s of this waiting for a CPU (hatched)" in " ".join(text.split())
    assert re.search("Or +run fewer jobs alongside: gain about 3.00 s of 4.00 s", text)


def test_a_gain_without_a_known_rate_is_at_most_its_limit(
    make_diagnosed: Callable[..., Checkpoint], zone: timezone
) -> None:
    """The rest of the duration is lost to others in any case."""
    made = make_diagnosed()
    assert made.verdict is not None
    accounts = (
        Account(limit=Limit.SMALL_IO, seconds=3.0, text="asleep"),
        Account(limit=Limit.SERIALIZE, seconds=1.0, text="pickling", runnable_seconds=0.5),
    )
    verdict = msgspec.structs.replace(
        made.verdict, limit=Limit.SMALL_IO, seconds=4.0, accounts=accounts, expected_seconds=None, capped_by="the disk"
    )
    text = show.brief(msgspec.structs.replace(made, verdict=verdict), width=120, colour=False, zone=zone)
    assert "Gain   not known: at most 3.00 s of 4.00 s, limited by the disk" in text


def test_shares_add_up_with_what_has_no_bar(make_diagnosed: Callable[..., Checkpoint], zone: timezone) -> None:
    """A short page leaves out the bars of small accounts, and says what they took."""
    made = make_diagnosed()
    assert made.verdict is not None
    spent = {Limit.SERIALIZE: 38.0, None: 1.5, Limit.CPU: 0.7}
    accounts = tuple(Account(limit=limit, seconds=seconds, text="so") for limit, seconds in spent.items())
    verdict = msgspec.structs.replace(made.verdict, limit=Limit.SERIALIZE, seconds=40.2, accounts=accounts)
    text = show.brief(msgspec.structs.replace(made, verdict=verdict), width=80, colour=False, zone=zone)
    shares = re.findall(r"([\d.]+) %", text.partition("Cost")[0])

    assert "  and 2.20 s (5.5 %) in 2 more\n" in text
    assert sum(map(float, shares)) == pytest.approx(100, abs=0.1)


def test_a_hundredth_of_an_account_is_not_described(make_diagnosed: Callable[..., Checkpoint], zone: timezone) -> None:
    """It counts in the account, whose text is that of what took the time."""
    made = make_diagnosed()
    assert made.verdict is not None
    parts = (
        Account(limit=Limit.SERIALIZE, seconds=4.0, text="compressing"),
        Account(limit=Limit.SERIALIZE, seconds=0.03, text="pickling"),
    )
    verdict = msgspec.structs.replace(made.verdict, limit=Limit.SERIALIZE, accounts=parts)
    text = show.brief(msgspec.structs.replace(made, verdict=verdict), width=120, colour=False, zone=zone)
    assert re.search(r"serialize +4\.03 s", text)
    assert "compressing" in text
    assert "pickling" not in text


def test_why_a_save_waited_for_another_is_told_beside_its_bars(
    make_diagnosed: Callable[..., Checkpoint], zone: timezone
) -> None:
    """Of other limits the longest bar says it."""
    for limit in (Limit.PREVIOUS_SAVE, Limit.SERIALIZE):
        made, bar = make_diagnosed(), Account(limit=limit, seconds=4.0, text="compressing")
        assert made.verdict is not None
        verdict = msgspec.structs.replace(made.verdict, limit=limit, accounts=(bar,), sentence="It waited.")
        text = show.brief(msgspec.structs.replace(made, verdict=verdict), width=120, colour=False, zone=zone)
        assert ("It waited." in text) is (limit is Limit.PREVIOUS_SAVE)


@pytest.mark.parametrize(
    ("run", "line"),
    [
        (Run(key="slurm:alps/7.0", scheduler="slurm", nodes=8, node=3), "slurm:alps/7.0, node 4 of 8"),
        (Run(key="rendezvous:a:1", scheduler="rendezvous"), "rendezvous:a:1"),
        (
            Run(key="slurm:/7.0", scheduler="slurm", conflict="SLURM_JOB_ID is 1\x1b, step 0"),
            "slurm:/7.0; its environment differs: SLURM_JOB_ID is 1\\x1b, step 0",
        ),
    ],
)
def test_the_run_is_told(make_checkpoint: Callable[..., Checkpoint], zone: timezone, run: Run, line: str) -> None:
    """By what other nodes call it, and which of its nodes this one is."""
    text = show.render(make_checkpoint(1, 0, run=run), width=120, colour=False, zone=zone)
    assert [found[1] for found in re.finditer(r"^ *Run +(.*)$", text, re.MULTILINE)] == [line]


@pytest.mark.parametrize(
    ("told", "lines"),
    [
        ({"place": Place(key="nfs:filer:/x\x1b:131", shared=True)}, {"Place": "nfs:filer:/x\\x1b:131"}),
        ({"place": Place(key="host:boot:40:131", shared=False)}, {}),
        ({"place": Place(key="host:boot:40:131", shared=None)}, {}),
        ({"clock": Clock(synchronised=True, bound_ns=12_000_000)}, {}),  # nobody compares it
        (
            {"run": Run(key="a:1", scheduler="rendezvous"), "clock": Clock(synchronised=True, bound_ns=12_000_000)},
            {"Run": "a:1", "Clock": "synchronised, within 12 ms"},
        ),
        (
            {"run": Run(key="a:1", scheduler="rendezvous"), "clock": Clock(synchronised=False, bound_ns=None)},
            {"Run": "a:1", "Clock": "not synchronised: offset unknown"},
        ),
        (
            {"run": Run(key="a:1", scheduler="rendezvous"), "clock": Clock(synchronised=True, bound_ns=None)},
            {"Run": "a:1", "Clock": "synchronised, error bound unknown"},
        ),
    ],
)
def test_what_other_nodes_compare_is_told_where_there_are_any(
    make_checkpoint: Callable[..., Checkpoint], zone: timezone, told: dict[str, Any], lines: dict[str, str]
) -> None:
    """Where it lies, if others can have that mounted, and of a run how far its times may be off."""
    text = show.render(make_checkpoint(1, 0, **told), width=120, colour=False, zone=zone)
    assert dict(re.findall(r"^ *(Run|Place|Clock) +(.*)$", text, re.MULTILINE)) == lines


def test_what_the_client_of_its_mount_counted_has_a_section(detailed_checkpoint: Checkpoint, zone: timezone) -> None:
    """Operations and servers, in lines that fit; without such a client there is none."""
    write = OperationMeasure(kind="WRITE", count=8192, seconds=0.068, queue_seconds=0.06, server_seconds=0.008)
    servers = tuple(ServerMeasure(name=f"OST\x1b{at}", written_bytes=1 << 30, seconds=0.02) for at in range(3))
    mount = MountMeasure(
        mount_point="/ckpt", fs_type="nfs4", source="filer:/x", remote=True, server="filer", client="nfs 4.2",
        transport="tcp", wire_written_bytes=8 << 30, operations=(write,), connections=1, slots=64, delays=3,
        servers=40, per_server=servers,
    )  # fmt: skip

    def lines(one: MountMeasure, width: int) -> list[str]:
        told = msgspec.structs.replace(detailed_checkpoint, measures=Measures(mount=one))
        return show.render(told, width=width, colour=False, zone=zone).splitlines()

    for width in (60, 80, 160):
        found = lines(mount, width)
        assert "Mount during the checkpoint" in found
        assert max(map(cells, found)) <= width
        assert "\x1b" not in "".join(found)
    text = "\n".join(lines(mount, 160))
    assert re.search(r"Client +nfs 4\.2 over tcp, of filer", text)
    assert re.search(r"WRITE +8,192 +68 ms +60 ms +8\.0 ms +-", text)
    assert "and 37 servers more, with less traffic" in text
    assert "3 replies asking the client to retry later" in text
    assert "Mount during the checkpoint" not in lines(msgspec.structs.replace(mount, client=None), 80)


def test_the_paths_to_a_disk_behind_a_fabric_have_a_section(detailed_checkpoint: Checkpoint, zone: timezone) -> None:
    """Where each leads, and for how long it could not be used; what was not seen is left open."""
    paths = (
        PathMeasure(device="nvme1c1n1", transport="tcp", target="10.0.0.3", port=4420, state="connecting",
                    lost_seconds=8.5, ana_state="non-optimized"),
        PathMeasure(device="nvme1\x1b", transport="fc"),
    )  # fmt: skip
    mount = MountMeasure(mount_point="/ckpt", fs_type="ext4", source="/dev/nvme1n1", remote=False, paths=paths)
    told = msgspec.structs.replace(detailed_checkpoint, measures=Measures(mount=mount))

    for width in (60, 160):
        lines = show.render(told, width=width, colour=False, zone=zone).splitlines()
        assert "Mount during the checkpoint" in lines
        assert max(map(cells, lines)) <= width
        assert "\x1b" not in "".join(lines)
    text = show.render(told, width=160, colour=False, zone=zone)
    assert re.search(r"nvme1c1n1 +10\.0\.0\.3 port 4420 +tcp +connecting +8\.50 s +non-optimized", text)
    assert re.search(r"nvme1\\x1b +- +fc +- +- +-", text)


def test_the_engine_of_cufile_is_told_where_it_is_known(detailed_checkpoint: Checkpoint, zone: timezone) -> None:
    """Of another save there is no line."""
    pattern = msgspec.structs.replace(detailed_checkpoint.pattern, engine="nvfs")
    told = msgspec.structs.replace(detailed_checkpoint, pattern=pattern)

    assert re.search(
        r"Engine +nvfs: the driver of GPUDirect Storage", show.render(told, width=120, colour=False, zone=zone)
    )
    assert "Engine" not in show.render(detailed_checkpoint, width=120, colour=False, zone=zone)


def test_a_fuse_mount_is_told_with_who_serves_it(detailed_checkpoint: Checkpoint, zone: timezone) -> None:
    """Its client counts neither bytes nor operations: of those there is no line."""
    mount = MountMeasure(
        mount_point="/far", fs_type="fuse.rclone", source="far:bucket", remote=True, client="rclone",
        waiting_share=0.93, waiting_mean=1.3, daemon="rcl\x1bone", daemon_pid=77, daemon_busy=0.31,
    )  # fmt: skip
    told = msgspec.structs.replace(detailed_checkpoint, measures=Measures(mount=mount))
    text = show.render(told, width=120, colour=False, zone=zone)

    assert re.search(r"Client +rclone, of far:bucket\n", text)
    assert re.search(r"Served by +rcl\\x1bone, process 77, 0\.31 cores\n", text)
    assert re.search(r"Unanswered +requests in 93 % of the time, 1\.3 on average\n", text)
    assert not {"Requested", "Direct", "OPERATION"} & set(re.findall(r"Requested|Direct|OPERATION", text))
