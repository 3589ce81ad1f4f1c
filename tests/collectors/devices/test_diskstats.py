"""Lines of /proc/diskstats as kernels of all ages write them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ckptprof_collectors.devices.block_devices import parse_line, parse_name, parse_numbers
from ckptprof_collectors.samples import DiskSample

# Captured: Firecracker VM, Linux 6.18.44, 2026-11-21.
VDA = b" 254       0 vda 32965 11443 2874386 7907 14558 40287 4017224 9587 0 6676 17990 6390 33 245288 415 1859 80"


def test_all_columns_of_a_real_line() -> None:
    """Each of the 17 numbers of a current kernel lands in its field, sectors unscaled."""
    expected = DiskSample(
        device="vda",
        read_ios=32965,
        read_merges=11443,
        read_sectors=2874386,
        read_ms=7907,
        write_ios=14558,
        write_merges=40287,
        write_sectors=4017224,
        write_ms=9587,
        in_flight=0,
        io_ms=6676,
        weighted_ms=17990,
        discard_ios=6390,
        discard_merges=33,
        discard_sectors=245288,
        discard_ms=415,
        flush_ios=1859,
        flush_ms=80,
    )

    assert expected == parse_line(VDA)
    assert parse_numbers(VDA) == (254, 0)


def test_columns_that_an_older_kernel_lacks_are_none() -> None:
    """14 columns (before 4.18) have no discards, 18 (before 5.5) no flushes: unknown, not zero."""
    fields = VDA.split()
    old, middle = parse_line(b" ".join(fields[:14])), parse_line(b" ".join(fields[:18]))

    assert old is not None
    assert middle is not None
    assert (old.weighted_ms, old.discard_ios, old.flush_ios) == (17990, None, None)
    assert (middle.discard_ms, middle.flush_ios) == (415, None)


def test_columns_of_a_future_kernel_are_left_out() -> None:
    """More columns than are known do not disturb the known ones."""
    assert parse_line(VDA) == parse_line(VDA + b" 77 88")


def test_malformed_lines_are_left_out() -> None:
    """Short lines, words for numbers and nothing at all yield no sample."""
    for line in (b"", b"\n", b" 8 1 sda1 10 20 30 40", VDA.replace(b"7907", b"many"), b"x" * 10_000):
        assert parse_line(line) is None


def test_hostile_device_name_is_storable() -> None:
    """Escape codes and bytes that are no UTF-8 survive as text without surrogates."""
    sample = parse_line(VDA.replace(b"vda", b"\x1b[2J\xff"))

    assert sample is not None
    assert sample.device == "\x1b[2J\\xff"
    sample.device.encode()


@given(st.binary())
def test_no_bytes_make_it_fail(line: bytes) -> None:
    """Whatever a line holds, it gives a sample or None."""
    sample = parse_line(line)

    assert sample is None or parse_name(line) is not None
