"""The layouts that Python and the eBPF programs share: the header is generated, the objects are held against it."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ckptprof_collectors.ebpf import file_records as tracefiles
from ckptprof_collectors.ebpf import layouts
from ckptprof_collectors.ebpf.hooks import OBJECTS

# include/uapi/linux/btf.h
_INT, _PTR, _ARRAY, _STRUCT, _UNION, _ENUM, _FWD, _TYPEDEF = 1, 2, 3, 4, 5, 6, 7, 8
_VOLATILE, _CONST, _RESTRICT, _FUNC, _PROTO, _VAR, _DATASEC, _FLOAT, _DECL_TAG, _TYPE_TAG, _ENUM64 = range(9, 20)


@dataclass
class Btf:
    """The structures of one object: name -> (bytes, members of (name, offset in bytes))."""

    structures: dict[str, tuple[int, list[tuple[str, int]]]] = field(default_factory=dict)


def section(image: bytes, wanted: bytes) -> bytes:
    """Return a section of a little-endian ELF64 file."""
    start, entry, count, names_at = struct.unpack_from("<Q10xHHH", image, 0x28)
    headers = [struct.unpack_from("<IIQQQQ", image, start + entry * at) for at in range(count)]
    names = headers[names_at][4]
    for name, _, _, _, offset, size in headers:
        if image[names + name :].split(b"\0", 1)[0] == wanted:
            return image[offset : offset + size]
    raise AssertionError(wanted)


def read_btf(path: Path) -> Btf:
    """Read the type information of an object."""
    data = section(path.read_bytes(), b".BTF")
    _, _, _, header, types_at, types_size, strings_at, _ = struct.unpack_from("<HBBIIIII", data)
    at, end = header + types_at, header + types_at + types_size
    strings = data[header + strings_at :]
    found = Btf()
    while at < end:
        name, info, size = struct.unpack_from("<III", data, at)
        at += 12
        kind, count, packed = info >> 24 & 0x1F, info & 0xFFFF, info >> 31
        if kind in (_STRUCT, _UNION):
            members = [struct.unpack_from("<III", data, at + 12 * n) for n in range(count)]
            found.structures[_name(strings, name)] = (
                size,
                [
                    (_name(strings, member), (place & 0xFFFFFF if packed else place) // 8)
                    for member, _, place in members
                ],
            )
        each = {_INT: 4, _ARRAY: 12, _VAR: 4, _DECL_TAG: 4}.get(kind, 0)
        many = {_STRUCT: 12, _UNION: 12, _ENUM: 8, _PROTO: 8, _DATASEC: 12, _ENUM64: 12}.get(kind, 0)
        at += each + many * count
    return found


def _name(strings: bytes, at: int) -> str:
    return strings[at:].split(b"\0", 1)[0].decode()


OBJECT_FILES = sorted(OBJECTS.glob("*.bpf.o"))


def test_there_are_objects_for_both_machines() -> None:
    """Two programs, two machines."""
    assert [path.name for path in OBJECT_FILES] == [
        "block.arm64.bpf.o",
        "block.x86_64.bpf.o",
        "trace.arm64.bpf.o",
        "trace.x86_64.bpf.o",
    ]


@pytest.mark.parametrize("path", OBJECT_FILES, ids=lambda path: path.name)
def test_python_and_the_objects_mean_the_same(path: Path) -> None:
    """Each shared structure that an object knows has the size, the members and the offsets of its Python class."""
    known = read_btf(path).structures
    shared = [(name, structure) for name, structure in layouts.STRUCTURES if name in known]

    assert {name for name, _ in shared} >= ({"block", "block_key"} if "block" in path.name else {"session", "head"})
    for name, structure in shared:
        expected = [(member[0], getattr(structure, member[0]).offset) for member in structure._fields_]
        assert known[name] == (ctypes.sizeof(structure), expected), name


def test_every_shared_structure_is_in_some_object() -> None:
    """None is left over that nobody compares."""
    known = {name for path in OBJECT_FILES for name in read_btf(path).structures}

    assert {name for name, _ in layouts.STRUCTURES} <= known


def test_the_header_is_the_one_that_is_generated() -> None:
    """`python -m ckptprof_collectors.ebpf.layouts` would change nothing."""
    assert (OBJECTS / "layouts.h").read_text(encoding="utf-8") == layouts.render_header()


def test_the_formats_have_the_size_of_the_structures() -> None:
    """What is unpacked is as long as what the kernel hands over."""
    assert tracefiles.SESSION.size == ctypes.sizeof(layouts.FileSession)
    assert tracefiles.KEY.size == ctypes.sizeof(layouts.SessionKey)
    assert tracefiles.HEAD.size == ctypes.sizeof(layouts.RecordHead)
