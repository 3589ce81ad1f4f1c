"""The binding of libbpf, against objects that these tests compile and the kernel that runs them."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import shutil
import struct
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.patience import PATIENCE_SECONDS

from ckptprof_collectors.ebpf import libbpf_loader as bpflibrary
from ckptprof_collectors.ebpf.libbpf import BpfError, BpfObject, Libbpf, RingReader, checksum, find_libbpf, object_path
from ckptprof_collectors.kernelfs import UnavailableError

SOURCE = r"""
typedef unsigned char __u8; typedef unsigned short __u16; typedef unsigned int __u32; typedef unsigned long long __u64;
typedef short __s16; typedef int __s32; typedef long long __s64;
typedef __u16 __be16; typedef __u32 __be32; typedef __u32 __wsum;
enum { HASH = 1, PERCPU_HASH = 5, RINGBUF = 27 };
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";
const volatile struct { __u32 factor, spare; } config SEC(".rodata.config") = {.factor = 1};
__u64 calls;
__u64 control SEC(".data.control") = 7;
struct { __uint(type, HASH); __uint(max_entries, 8); __type(key, __u64); __type(value, __u64[2]); } live SEC(".maps");
struct {
    __uint(type, PERCPU_HASH); __uint(max_entries, 8); __type(key, __u32); __type(value, __u32);
} cpus SEC(".maps");
struct { __uint(type, RINGBUF); __uint(max_entries, 4096); } ring SEC(".maps");

SEC("raw_tp/sys_enter") int count(__u64 *arguments)
{
    __u64 key = arguments[1], value[2] = {key * config.factor, control};
    __u32 zero = 0;

    __sync_fetch_and_add(&calls, 1);
    if (key >= 1000) {
        bpf_map_update_elem(&live, &key, value, 0);
        bpf_map_update_elem(&cpus, &zero, &(__u32){key}, 0);
        bpf_ringbuf_output(&ring, &key, sizeof(key), 0);
    }
    return key;
}

SEC("raw_tp/sys_enter") int hits(void *context)
{
    __sync_fetch_and_add(&calls, 1);
    return 0;
}

SEC("raw_tp/no_such_hook") int nowhere(void *context)
{
    return 0;
}

SEC("tp_btf/sys_enter") int typed(void *context)
{
    return 0;
}

SEC("raw_tp/sys_enter") int refused(__u64 *arguments)
{
    return *(volatile int *)arguments[1]; /* the verifier does not let a program follow any pointer */
}
"""
NO_LIBBPF_0 = "int libbpf_major_version(void) { return 0; } int libbpf_minor_version(void) { return 8; }"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the object of SOURCE, compiled here."""
    folder = tmp_path_factory.mktemp("object")
    (folder / "small.bpf.c").write_text(SOURCE)
    command = ["clang", "-O2", "-g", "-mcpu=v3", "-target", "bpf", "-c", "small.bpf.c", "-o", "small.bpf.o"]
    subprocess.run(command, cwd=folder, check=True)
    subprocess.run(["llvm-strip", "-g", "small.bpf.o"], cwd=folder, check=True)
    built = folder / "small.bpf.o"
    (folder / "CHECKSUMS").write_text(checksum(built.name, built.read_bytes()), encoding="utf-8")
    return built


@pytest.fixture
def lib() -> Libbpf:
    """Return the system's or bundled library."""
    return find_libbpf()


@pytest.fixture
def opened(lib: Libbpf, compiled: Path) -> Iterator[BpfObject]:
    """Return the object, open, with only the program `count` wanted."""
    with closing(BpfObject(lib, compiled)) as small:
        for program in small.programs():
            small.set_autoload(program, program == "count")
        yield small


@pytest.fixture
def loaded(opened: BpfObject) -> BpfObject:
    """Return it loaded."""
    opened.load()
    return opened


def python(code: str, *prefix: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh process, which sees these environment variables too."""
    return subprocess.run(
        [*prefix, sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


needs_clang = pytest.mark.clang
needs_bpf = [pytest.mark.clang, pytest.mark.root, pytest.mark.bpf]


def with_marks(*marks: pytest.MarkDecorator) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that puts all these marks on a test."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        for mark in marks:
            test = mark(test)
        return test

    return decorate


on_kernel = with_marks(*needs_bpf)


@on_kernel
def test_programs_are_named_by_section(opened: BpfObject) -> None:
    """Programs of one hook stand together, in the order of the source."""
    assert opened.programs() == ["count", "hits", "refused", "nowhere", "typed"]


@on_kernel
def test_settings_reach_the_program(opened: BpfObject) -> None:
    """What is written into .rodata.config before the load is the constant that the program sees."""
    config = opened.section(".rodata.config")
    assert bytes(config) == struct.pack("=II", 1, 0)
    struct.pack_into("=I", config, 0, 3)
    opened.load()

    assert opened.run_once("count", [0, 1000]) == 1000

    assert opened.map("live").lookup(struct.pack("=Q", 1000)) == struct.pack("=QQ", 3000, 7)
    after = opened.section(".rodata.config")
    assert after.readonly
    assert bytes(after)[:4] == struct.pack("=I", 3)


@on_kernel
def test_sections_are_shared_with_the_program(loaded: BpfObject) -> None:
    """Counters are read, and controls written, as memory."""
    calls = loaded.section(".bss")
    control = loaded.section(".data.control")

    struct.pack_into("=Q", control, 0, 42)
    loaded.run_once("count", [0, 1001])
    loaded.run_once("count", [0, 5])

    assert struct.unpack_from("=Q", calls) == (2,)
    assert loaded.map("live").lookup(struct.pack("=Q", 1001)) == struct.pack("=QQ", 1001, 42)


@on_kernel
def test_a_view_outlives_the_object(lib: Libbpf, compiled: Path) -> None:
    """A section that someone still looks at stays mapped: reading it never crashes."""
    small = BpfObject(lib, compiled)
    for program in small.programs():
        small.set_autoload(program, program == "hits")
    small.load()
    calls = small.section(".bss")
    small.run_once("hits")
    small.close()

    assert struct.unpack_from("=Q", calls) == (1,)


@on_kernel
def test_a_map_is_read_whole(opened: BpfObject) -> None:
    """All entries come in one batch, however many there are, also after it grew and shrank."""
    opened.set_max_entries("live", 5000)
    opened.load()
    live = opened.map("live")
    assert (live.key_size, live.value_size, live.max_entries) == (8, 16, 5000)
    for wanted in (0, 1, 200, 5000, 3):
        live.lookup_batch(delete=True)  # of the turn before
        for key in range(wanted):
            live.update(struct.pack("=Q", key), struct.pack("=QQ", key, 2 * key))

        count, keys, values = live.lookup_batch()

        assert count == wanted
        assert (len(keys), len(values)) == (8 * wanted, 16 * wanted)
        found = dict(zip(keys.cast("Q"), struct.iter_unpack("=QQ", values), strict=True))
        assert found == {key: (key, 2 * key) for key in range(wanted)}


@on_kernel
def test_the_room_of_a_burst_goes_back(opened: BpfObject) -> None:
    """After many looks at few entries the buffers are as small as at first, and still hold every entry."""
    opened.set_max_entries("live", 5000)
    opened.load()
    live = opened.map("live")
    for key in range(5000):
        live.update(struct.pack("=Q", key), struct.pack("=QQ", key, 2 * key))
    assert live.lookup_batch()[0] == 5000
    full = len(live._values)
    for key in range(3, 5000):
        live.delete(struct.pack("=Q", key))

    counts = {live.lookup_batch()[0] for _ in range(700)}

    assert counts == {3}
    assert len(live._values) < full // 30
    for key in range(5000):
        live.update(struct.pack("=Q", key), struct.pack("=QQ", key, 2 * key))
    count, keys, _ = live.lookup_batch()
    assert (count, set(keys.cast("Q"))) == (5000, set(range(5000)))


@on_kernel
def test_a_full_map_says_so(loaded: BpfObject) -> None:
    """One entry too many is E2BIG; what was there stays."""
    live = loaded.map("live")
    for key in range(8):
        live.update(struct.pack("=Q", key), bytes(16))

    with pytest.raises(BpfError, match="live: cannot be written") as caught:
        live.update(struct.pack("=Q", 8), bytes(16))

    assert caught.value.errno == errno.E2BIG
    assert live.lookup_batch()[0] == 8


@on_kernel
def test_entries_come_and_go(loaded: BpfObject) -> None:
    """A key that is not there is None or False, never an error."""
    live, key = loaded.map("live"), struct.pack("=Q", 1)

    assert live.lookup(key) is None
    assert live.delete(key) is False
    live.update(key, bytes(range(16)))
    assert live.lookup(key) == bytes(range(16))
    assert live.delete(key) is True


@on_kernel
def test_a_per_cpu_map_has_a_value_of_each_cpu(loaded: BpfObject) -> None:
    """Values of 4 bytes lie 8 apart, and only the CPU that ran the program has one."""
    cpus, key = loaded.map("cpus"), bytes(4)
    last = Path("/sys/devices/system/cpu/possible").read_text(encoding="ascii").strip().split("-")[-1]
    assert cpus.lookup_percpu(key) == []

    loaded.run_once("count", [0, 4321])

    values = cpus.lookup_percpu(key)
    assert len(values) == int(last) + 1
    assert sorted(values) == [bytes(4)] * (len(values) - 1) + [struct.pack("=I", 4321)]
    count, _, every = cpus.lookup_batch()
    assert (count, len(every)) == (1, 8 * len(values))
    cpus.update(key, b"".join(struct.pack("=I4x", number) for number in range(len(values))))
    assert cpus.lookup_percpu(key) == [struct.pack("=I", number) for number in range(len(values))]


@on_kernel
def test_a_ring_gives_its_records_in_order_and_no_more_than_asked(lib: Libbpf, loaded: BpfObject) -> None:
    """A limit loses nothing, the descriptor polls readable, and a full ring is no error for the reader."""
    ring = RingReader(lib, loaded.map("ring"))
    poller = select.poll()
    poller.register(ring.fileno(), select.POLLIN)
    assert (ring.consume(10), poller.poll(0)) == ([], [])
    for key in range(1000, 1006):
        loaded.run_once("count", [0, key])

    assert poller.poll(1000)
    assert ring.consume(2) == [struct.pack("=Q", 1000), struct.pack("=Q", 1001)]
    assert ring.consume(100) == [struct.pack("=Q", key) for key in range(1002, 1006)]
    for key in range(1000, 1999):
        loaded.run_once("count", [0, key])
    assert len(ring.consume(10_000)) == 4096 // 16 - 1
    ring.close()
    ring.close()
    with pytest.raises(BpfError):
        ring.consume(1)


@on_kernel
def test_a_link_counts_from_attach_to_close(lib: Libbpf, compiled: Path) -> None:
    """An attached program fires on real system calls; once detached it does not; two objects do not mix."""
    with closing(BpfObject(lib, compiled)) as small, closing(BpfObject(lib, compiled)) as other:
        for each in (small, other):
            for program in each.programs():
                each.set_autoload(program, program == "hits")
            each.load()
        calls, others = small.section(".bss").cast("Q"), other.section(".bss").cast("Q")
        link = small.attach("hits")
        for _ in range(100):
            os.getppid()
        link.close()
        link.close()
        during = calls[0]
        os.getppid()

        assert during >= 100
        assert calls[0] == during
        assert others[0] == 0


@on_kernel
def test_closing_an_object_detaches_it(lib: Libbpf, compiled: Path) -> None:
    """Nothing fires afterwards, every call names what is closed, and closing again does nothing."""
    small = BpfObject(lib, compiled)
    for program in small.programs():
        small.set_autoload(program, program == "hits")
    small.load()
    link, calls, live = small.attach("hits"), small.section(".bss").cast("Q"), small.map("live")
    small.close()
    small.close()
    link.close()
    at_close = calls[0]
    os.getppid()

    assert calls[0] == at_close > 0
    for late in (small.programs, small.load, lambda: small.attach("hits"), live.lookup_batch):
        with pytest.raises(BpfError) as caught:
            late()
        assert caught.value.errno == errno.EBADF


@on_kernel
def test_a_refused_program_shows_the_verifiers_words(lib: Libbpf, compiled: Path, capfd: pytest.CaptureFixture) -> None:
    """The error has the end of the log, nothing lands on stderr, and another program of the file can be tried."""
    with closing(BpfObject(lib, compiled)) as small:
        for program in small.programs():
            small.set_autoload(program, program == "refused")
        with pytest.raises(BpfError) as caught:
            small.load()
        with pytest.raises(BpfError):
            small.load()

    assert caught.value.errno == errno.EACCES
    assert "invalid mem access" in caught.value.log
    assert len(caught.value.log) <= 2000
    assert caught.value.strerror.startswith("small.bpf.o: cannot be loaded: Permission denied")
    with closing(BpfObject(lib, compiled)) as again:
        for program in again.programs():
            again.set_autoload(program, program == "hits")
        again.load()
        assert again.run_once("hits") == 0
    assert capfd.readouterr() == ("", "")


@on_kernel
def test_a_hook_that_is_not_there_is_named(lib: Libbpf, compiled: Path) -> None:
    """The program loads, its attachment fails with the reason, and the object goes on."""
    with closing(BpfObject(lib, compiled)) as small:
        for program in small.programs():
            small.set_autoload(program, program in ("nowhere", "hits"))
        small.load()
        with pytest.raises(BpfError, match="program nowhere cannot be attached: No such file") as caught:
            small.attach("nowhere")

        assert caught.value.errno == errno.ENOENT
        small.attach("hits").close()


@on_kernel
def test_names_that_are_not_there(opened: BpfObject) -> None:
    """Programs, maps and sections that an object has not are errors by name, and no map is given before the load."""
    for code, wrong in (
        (errno.ENOENT, lambda: opened.set_autoload("none", enabled=True)),
        (errno.ENOENT, lambda: opened.map("none")),
        (errno.ENOENT, lambda: opened.section(".data.none")),
        (errno.EINVAL, lambda: opened.map("live")),
        (errno.EINVAL, lambda: opened.attach("count")),
        (errno.EINVAL, lambda: opened.section("live")),
    ):
        with pytest.raises(BpfError) as caught:
            wrong()
        assert caught.value.errno == code


@needs_clang
@pytest.mark.parametrize("kept", [0, 1, 63, 64, 500, -1, -64])
def test_a_truncated_object_is_refused(lib: Libbpf, compiled: Path, tmp_path: Path, kept: int) -> None:
    """A file cut short anywhere is an error that names it, before libbpf sees it."""
    short = tmp_path / "short.bpf.o"
    short.write_bytes(compiled.read_bytes()[:kept])

    with pytest.raises(BpfError, match=r"short\.bpf\.o: is") as caught:
        BpfObject(lib, short)

    assert caught.value.errno == errno.ENOEXEC


@needs_clang
def test_no_damage_crashes(compiled: Path, tmp_path: Path) -> None:
    """Objects with bytes changed at random are refused before libbpf 1.1 could die of them."""
    sums = checksum("damaged.bpf.o", compiled.read_bytes())
    (tmp_path / "CHECKSUMS").write_text(f"other.bpf.o 1 00000000\n{sums}\n", encoding="utf-8")
    result = python(
        f"""
        import pathlib, random
        from ckptprof_collectors.ebpf.libbpf import BpfError, BpfObject, find_libbpf
        lib, whole = find_libbpf(), pathlib.Path({str(compiled)!r}).read_bytes()
        target, refused, dice = pathlib.Path({str(tmp_path)!r}) / "damaged.bpf.o", 0, random.Random(1)
        for _ in range(400):
            image = bytearray(whole)
            for _ in range(dice.choice([1, 4, 32])):
                image[dice.randrange(len(image))] ^= dice.randrange(1, 256)
            target.write_bytes(image)
            try:
                BpfObject(lib, target).close()
            except BpfError:
                refused += 1
        target.write_bytes(whole)
        BpfObject(lib, target).close()
        print(refused)
        """
    )

    assert (result.returncode, result.stdout, result.stderr) == (0, "400\n", "")


@needs_clang
@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n" * 20, Path(sys.executable).read_bytes()[:100_000]])
def test_what_is_no_object_is_refused(tmp_path: Path, lib: Libbpf, content: bytes) -> None:
    """A script, nothing at all and a program of this machine are no eBPF objects."""
    (tmp_path / "x.bpf.o").write_bytes(content)

    with pytest.raises(BpfError, match=r"CHECKSUMS"):
        BpfObject(lib, tmp_path / "x.bpf.o")
    with pytest.raises(BpfError, match="No such file"):
        BpfObject(lib, tmp_path / "none.bpf.o")


@on_kernel
def test_a_user_without_capabilities_is_told_which(compiled: Path, make_reachable: Callable[[Path], None]) -> None:
    """The refusal to nobody is EPERM and names what is lacking."""
    make_reachable(compiled.parent)
    compiled.chmod(0o644)
    result = python(
        f"""
        import os, pathlib
        from ckptprof_collectors.ebpf.libbpf import BpfError, BpfObject, find_libbpf
        small = BpfObject(find_libbpf(), pathlib.Path({str(compiled)!r}))
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
        try:
            small.load()
        except BpfError as error:
            print(error.errno, error.strerror.splitlines()[0])
        small.close()
        """
    )

    assert result.returncode == 0, result.stderr
    expected = "small.bpf.o: cannot be loaded: Operation not permitted (lacks CAP_BPF and CAP_PERFMON)"
    assert result.stdout.strip() == f"{errno.EPERM} {expected}"


@on_kernel
@pytest.mark.mount
def test_a_kernel_without_types_is_named(compiled: Path) -> None:
    """Where /sys/kernel/btf is empty the reason is not "No such process", and untyped programs still load."""
    result = python(
        f"""
        import contextlib, pathlib
        from ckptprof_collectors.ebpf.libbpf import BpfError, BpfObject, find_libbpf
        for wanted in ("typed", "hits"):
            with contextlib.closing(BpfObject(find_libbpf(), pathlib.Path({str(compiled)!r}))) as small:
                for program in small.programs():
                    small.set_autoload(program, program == wanted)
                try:
                    small.load()
                    print(wanted, "loads")
                except BpfError as error:
                    print(wanted, error.summary)
        """,
        *("unshare", "-m", "sh", "-c", 'mount -t tmpfs none /sys/kernel/btf && exec "$0" "$@"'),
    )

    assert result.returncode == 0, result.stderr
    typed, untyped = result.stdout.splitlines()
    assert typed == (
        "typed small.bpf.o: cannot be loaded: this kernel has no description of its types (BTF, CONFIG_DEBUG_INFO_BTF)"
    )
    assert untyped == "hits loads"


def test_objects_are_found_by_machine(tmp_path: Path) -> None:
    """What uname calls aarch64 is arm64 in the name; a machine without programs is told so."""
    (tmp_path / "trace.arm64.bpf.o").touch()

    assert object_path("trace", tmp_path, "aarch64") == tmp_path / "trace.arm64.bpf.o"
    with pytest.raises(UnavailableError, match=r"no eBPF programs for this machine: .*trace\.riscv64\.bpf\.o"):
        object_path("trace", tmp_path, "riscv64")


def test_no_library_is_named_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is fit for a person who must now do something."""
    monkeypatch.delenv(bpflibrary.LIBRARY_VARIABLE, raising=False)

    with pytest.raises(UnavailableError, match=r"libbpf\.so\.1 is not there.*apt install libbpf1"):
        find_libbpf(bundled=tmp_path / "_lib", folders=[tmp_path])


def test_an_old_library_is_named_as_unusable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ubuntu 22.04 has only libbpf.so.0: that is said, with its path."""
    monkeypatch.delenv(bpflibrary.LIBRARY_VARIABLE, raising=False)
    (tmp_path / "libbpf.so.0.5.0").write_bytes(b"")

    with pytest.raises(UnavailableError, match=r"libbpf\.so\.0\.5\.0 is libbpf 0\.x.*unusable.*apt install libbpf1"):
        find_libbpf(bundled=tmp_path / "_lib", folders=[tmp_path])


@needs_clang
@pytest.mark.parametrize(
    ("code", "said"), [(NO_LIBBPF_0, "is libbpf 0.x"), ("int x;", "is libbpf 0.x"), ("", "cannot be loaded")]
)
def test_an_override_is_the_only_one_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, said: str
) -> None:
    """CKPTPROF_LIBBPF that names an old library, another one or no library is an error, not a reason to look on."""
    library = tmp_path / f"libbpf-{len(code)}.so"  # dlopen(3) knows again what it has loaded from a path
    library.write_bytes(b"")
    if code:
        (tmp_path / "x.c").write_text(code)
        subprocess.run(["clang", "-shared", "-nostdlib", "-o", library, tmp_path / "x.c"], check=True)
    monkeypatch.setenv(bpflibrary.LIBRARY_VARIABLE, str(library))

    with pytest.raises(UnavailableError, match=said) as caught:
        find_libbpf()

    assert str(library) in str(caught.value)


@needs_clang
def test_the_bundled_library_goes_first(lib: Libbpf, tmp_path: Path) -> None:
    """What lies beside the package is mapped, with the libraries that lie beside it, not the system's."""
    bundled = tmp_path / "_lib"
    bundled.mkdir()
    maps = [line.split()[-1] for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()]
    for soname in ("libbpf.so.1", "libelf.so.1", "libz.so.1"):
        source = next(Path(path) for path in maps if path.split("/")[-1].startswith(soname.split(".so", maxsplit=1)[0]))
        shutil.copy(source, bundled / soname)
    result = python(
        f"""
        import pathlib
        from ckptprof_collectors.ebpf.libbpf import find_libbpf
        lib = find_libbpf(bundled=pathlib.Path({str(bundled)!r}))
        print(lib.path, lib.version >= (1, 0))
        print(pathlib.Path("/proc/self/maps").read_text())
        """,
        CKPTPROF_LIBBPF="",
    )

    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[0] == f"{bundled}/libbpf.so.1 True"
    for name in ("libbpf.so.1", "libelf.so.1", "libz.so.1"):
        assert f"{bundled}/{name}" in result.stdout


@pytest.mark.root
def test_the_search_path_of_the_caller_chooses_nothing(lib: Libbpf, tmp_path: Path) -> None:
    """LD_LIBRARY_PATH leads a privileged process neither to a libbpf nor to what that needs."""
    maps = [line.split()[-1] for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()]
    for soname in ("libbpf.so.1", "libelf.so.1"):
        shutil.copy(next(path for path in maps if path.split("/")[-1].startswith(soname[:6])), tmp_path / soname)
    result = python(
        """
        import pathlib
        from ckptprof_collectors.ebpf.libbpf import find_libbpf
        print(find_libbpf(bundled=pathlib.Path("/nowhere")).version >= (1, 0))
        print(pathlib.Path("/proc/self/maps").read_text())
        """,
        CKPTPROF_LIBBPF="",
        LD_LIBRARY_PATH=str(tmp_path),
    )

    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[0] == "True"
    assert str(tmp_path) not in result.stdout


@pytest.mark.root
@pytest.mark.parametrize("changed", ["owner", "mode", "folder"])
def test_an_override_that_others_can_change_is_refused(
    lib: Libbpf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    """By who has privileges: the file and each folder above are root's, and nobody else writes there."""
    place = tmp_path / "place"
    place.mkdir()
    library = place / "libbpf.so.1"
    shutil.copy(lib.path, library)
    library.chmod(0o644)
    {
        "owner": lambda: os.chown(library, 65534, -1),
        "mode": lambda: library.chmod(0o666),
        "folder": lambda: place.chmod(0o777),
    }[changed]()
    monkeypatch.setenv(bpflibrary.LIBRARY_VARIABLE, str(library))

    with pytest.raises(UnavailableError, match="is not loaded: others than root can change it"):
        find_libbpf()


@on_kernel
def test_callbacks_work_where_memory_may_not_be_made_executable(compiled: Path) -> None:
    """Under systemd's MemoryDenyWriteExecute the log and the ring still speak, or the error says why not."""
    libc = ctypes.CDLL(None)
    if libc.prctl(66, 0, 0, 0, 0) < 0:  # PR_GET_MDWE
        pytest.skip("PR_SET_MDWE: needs Linux 6.3")
    result = python(
        f"""
        import contextlib, ctypes, pathlib
        assert ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) == 0  # PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN
        from ckptprof_collectors.ebpf.libbpf import BpfError, BpfObject, RingReader, find_libbpf
        lib = find_libbpf()
        with contextlib.closing(BpfObject(lib, pathlib.Path({str(compiled)!r}))) as small:
            for program in small.programs():
                small.set_autoload(program, program == "count")
            small.load()
            try:
                ring = RingReader(lib, small.map("ring"))
                small.run_once("count", [0, 1234])
                print(int.from_bytes(ring.consume(1)[0], "little"))
            except BpfError as error:
                print(1234, error)
        """
    )

    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("1234")
