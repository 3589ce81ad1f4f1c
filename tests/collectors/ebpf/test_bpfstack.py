"""Each chain of calls of the eBPF programs has room on the kernel's stack for them, which newer kernels do not tell.

The verifier refuses a program whose frames take more than 512 bytes together (kernel/bpf/verifier.c,
check_max_stack_depth). Since 6.13 a traced program has a stack of its own on x86, where nothing is added up: what loads
on such a kernel may load nowhere else.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ckptprof_collectors.ebpf.hooks import OBJECTS

MAX_BPF_STACK = 512
MAX_CALL_FRAMES = 8
_ROUNDED_TO = 32  # each frame, by the verifier of kernels before 6.8
_SYMBOLS, _RELOCATIONS = 2, 9  # include/uapi/linux/elf.h: SHT_SYMTAB, SHT_REL
_OF_SECTION, _OF_FUNCTION = 3, 2  # STT_SECTION, STT_FUNC
_MOVE, _ADD, _CALL, _WIDE = 0xBF, 0x07, 0x85, 0x18  # opcodes
_LOAD, _STORES, _JUMPS = 1, (2, 3), (5, 6)  # classes of them
_STACK = 10  # the register that points to the end of a frame


@dataclass
class Function:
    """How many bytes of stack it uses itself, and whom it calls."""

    stack_bytes: int = 0
    calls: set[str] = field(default_factory=set)


def functions_of(image: bytes) -> dict[str, Function]:
    """Return the functions of an object by their names; those of the kernel that it calls are left out."""
    start, entry, count, _ = struct.unpack_from("<Q10xHHH", image, 0x28)
    sections = [struct.unpack_from("<IIQQQQIIQQ", image, start + entry * at) for at in range(count)]
    table = next(section for section in sections if section[1] == _SYMBOLS)
    strings = sections[table[6]][4]
    symbols = [struct.unpack_from("<IBBHQQ", image, table[4] + 24 * at) for at in range(table[5] // 24)]
    relocated = {
        (section[7], offset): symbols[of >> 32]
        for section in sections
        if section[1] == _RELOCATIONS
        for offset, of in struct.iter_unpack("<QQ", image[section[4] : section[4] + section[5]])
    }
    names = {
        (place, value): image[strings + name :].split(b"\0", 1)[0].decode()
        for name, kind, _, place, value, _ in symbols
        if kind & 15 == _OF_FUNCTION
    }
    found = {}
    for _, kind, _, place, value, size in symbols:
        if kind & 15 != _OF_FUNCTION:
            continue
        begin = sections[place][4] + value
        function = found[names[place, value]] = Function(_stack_bytes(image[begin : begin + size]))
        for at in _calls(image[begin : begin + size]):
            distance = struct.unpack_from("<i", image, begin + at + 4)[0]
            target = place, value + at + 8 * (1 + distance)
            symbol = relocated.get((place, value + at))
            if symbol is not None:
                inside = 8 * (1 + distance) if symbol[1] & 15 == _OF_SECTION else symbol[4]
                target = symbol[3], inside
            if target in names:
                function.calls.add(names[target])
    return found


def _calls(code: bytes) -> list[int]:
    """Return where other functions are called."""
    return [at for at, opcode, registers, _, _ in _instructions(code) if opcode == _CALL and registers >> 4]


def _instructions(code: bytes) -> list[tuple[int, int, int, int, int]]:
    """Return place, opcode, registers, offset and number of each instruction."""
    found, at = [], 0
    while at < len(code):
        found.append((at, *struct.unpack_from("<BBhi", code, at)))
        at += 16 if code[at] == _WIDE else 8
    return found


def _stack_bytes(code: bytes) -> int:
    """Return how far below its frame's end a function comes: by loads, stores, and pointers that it hands on."""
    deepest = 0
    below: dict[int, int] = {}  # registers that point into the frame
    for _, opcode, registers, offset, number in _instructions(code):
        to, of = registers & 15, registers >> 4
        if opcode == _ADD and to in below:
            below[to] += number
            deepest = max(deepest, -below[to])
        elif opcode == _MOVE and (of == _STACK or of in below):
            below[to] = below.get(of, 0)
        elif opcode & 7 not in (*_STORES, *_JUMPS):
            below.pop(to, None)
        if (opcode & 7 == _LOAD and of == _STACK) or (opcode & 7 in _STORES and to == _STACK):
            deepest = max(deepest, -offset)
    return deepest


def chains(functions: dict[str, Function], name: str) -> list[list[str]]:
    """Return all chains of calls that begin with a function."""
    deeper = [chain for called in functions[name].calls for chain in chains(functions, called)]
    return [[name, *chain] for chain in deeper] or [[name]]


@pytest.mark.parametrize("path", sorted(OBJECTS.glob("*.bpf.o")), ids=lambda path: path.name)
def test_every_chain_of_calls_fits_on_the_stack(path: Path) -> None:
    """Also on kernels that add up the frames of a program."""
    functions = functions_of(path.read_bytes())

    for name in functions:
        for chain in chains(functions, name):
            frames = [-(-max(1, functions[one].stack_bytes) // _ROUNDED_TO) * _ROUNDED_TO for one in chain]
            assert sum(frames) <= MAX_BPF_STACK, list(zip(chain, frames, strict=True))
            assert len(chain) <= MAX_CALL_FRAMES


def test_what_is_called_is_found() -> None:
    """The deepest chain, from a call to the walk of a path, as the verifier of 6.1 counted it."""
    functions = functions_of((OBJECTS / "trace.x86_64.bpf.o").read_bytes())

    assert {"begin", "tell_file"} <= functions["call_exit_portable"].calls
    assert functions["tell_file"].calls == {"is_stranger", "walk"}
    assert 0 < functions["walk"].stack_bytes <= 64
