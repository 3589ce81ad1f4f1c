"""A virtual machine with another kernel and real NFS, NVMe, NVMe over fabrics and RDMA: QEMU without hardware support.

    python tests/vm/machine.py build|boot|ssh|stop [COMMAND]...

The Debian of KERNELS stands in .build/vm/KERNEL-PROCESSOR (CKPTPROF_VM names it: 6.1, 6.12-arm64); `build` puts this
tree's ckptprof and the job of tests/vm/trainer.c into it. Needs root on x86-64, mmdebstrap, QEMU and a C compiler with
a static libc; for arm64 also qemu-user-static, whose handler of binfmt_misc is registered while it builds.
Each boot has three blank NVMe drives: /dev/nvme0n1 of 2 GiB, a slow one (8 MB/s of writes) and one for fabrics.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Of the kernel: the Debian around it, whose Python is 3.10 or newer, and the one that it is of
KERNELS = {"5.10": ("bookworm", "bullseye"), "6.1": ("bookworm", "bookworm"), "6.12": ("trixie", "trixie")}
MIRROR = "http://deb.debian.org/debian"
PACKAGES = (
    "python3", "python3-venv", "nfs-kernel-server", "nfs-common", "rpcbind", "nvme-cli", "iproute2", "openssh-server",
    "systemd", "systemd-sysv", "udev", "kmod", "e2fsprogs", "xfsprogs", "btrfs-progs", "mdadm", "lvm2", "dmsetup",
    "rdma-core", "ibverbs-providers", "procps", "libbpf1", "open-iscsi", "samba",
)  # fmt: skip
# Its initial file system has the drivers of its drive only: with all of them it takes minutes to make for arm64
INITRD = """
mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/usr/share/initramfs-tools/modules.d"
printf 'MODULES=list\\nCOMPRESS=gzip\\n' > "$1/etc/initramfs-tools/conf.d/vm"
printf 'ext4\\nvirtio_pci\\nvirtio_blk\\n' > "$1/usr/share/initramfs-tools/modules.d/vm"
"""
# With Debian's pip as it is: one of its own takes minutes when emulated
INSTALL = """
set -e; rm -rf /opt/ckptprof; python3 -m venv --without-pip /opt/ckptprof
PYTHONPATH=$(echo /usr/share/python-wheels/pip-*.whl) /opt/ckptprof/bin/python -m pip install -q \\
    --no-index --find-links /root/wheels ckptprof
"""
NETWORK = "[Match]\nName=eth0\n[Network]\nDHCP=yes\n"
BOOT_SECONDS = 300
DRIVES = ("", ",throttling.bps-write=8000000", "")
BINFMT = Path("/proc/sys/fs/binfmt_misc")


@dataclass(frozen=True)
class Processor:
    """What emulates it, and how programs for it are made."""

    emulator: tuple[str, ...]
    console: str
    compiler: str
    uname: str


PROCESSORS = {
    "amd64": Processor(("qemu-system-x86_64", "-machine", "q35", "-cpu", "max"), "ttyS0", "gcc", "x86_64"),
    "arm64": Processor(
        ("qemu-system-aarch64", "-machine", "virt", "-cpu", "max,pauth-impdef=on"),
        "ttyAMA0", "aarch64-linux-gnu-gcc", "aarch64",
    ),
}  # fmt: skip


@dataclass
class Machine:
    """One such machine: its kernel, and its processor if that is another."""

    name: str
    port: int = 2222

    @property
    def kernel(self) -> str:
        """Which of KERNELS."""
        return self.name.partition("-")[0]

    @property
    def architecture(self) -> str:
        """Debian's word for the processor."""
        return self.name.partition("-")[2] or "amd64"

    @property
    def programs(self) -> tuple[str, ...]:
        """What this host needs."""
        processor = PROCESSORS[self.architecture]
        emulation = ("qemu-aarch64-static",) if self.architecture == "arm64" else ()
        return (processor.emulator[0], processor.compiler, "mmdebstrap", "ssh", *emulation)

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return ROOT / ".build" / "vm" / self.name

    @property
    def _options(self) -> list[str]:
        strict = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "ConnectTimeout=20")
        return ["-i", str(self.folder / "key"), *(word for option in strict for word in ("-o", option))]

    def build(self) -> None:
        """Make its disk, with this tree's ckptprof; the Debian below it is made once."""
        with _emulation(self.architecture):
            if not (self.folder / "vmlinuz").exists():
                self._make_debian()
            self._install()
        disk = self.folder / "disk.img"
        disk.unlink(missing_ok=True)
        _run("truncate", "-s", "8G", disk)
        _run("mkfs.ext4", "-q", "-d", self.folder / "root", disk)

    def _make_debian(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        root, (suite, of_kernel) = self.folder / "root", KERNELS[self.kernel]
        packages = ",".join((f"linux-image-{self.architecture}/{of_kernel}", *PACKAGES))
        sources = [f"deb {MIRROR} {release} main" for release in dict.fromkeys((suite, of_kernel))]
        _run("mmdebstrap", "--quiet", "--variant=minbase", f"--architectures={self.architecture}",
             f"--essential-hook={INITRD}", f"--include={packages}", suite, root, *sources)  # fmt: skip
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / "key")
        _run("install", "-D", "-m", "600", self.folder / "key.pub", root / "root/.ssh/authorized_keys")
        (root / "etc/systemd/network/10-eth0.network").write_text(NETWORK)
        _run("systemctl", f"--root={root}", "enable", "-q", "systemd-networkd")
        _run("systemctl", f"--root={root}", "mask", "-q", "nfs-server", "rpcbind.socket", "rpcbind.service",
             "open-iscsi", "smbd", "nmbd", "samba-ad-dc")  # fmt: skip
        (root / "etc/hostname").write_text(f"vm-{self.name}\n")
        (root / "etc/fstab").write_text("/dev/vda / ext4 defaults 0 1\n")
        shutil.copy(next((root / "boot").glob("initrd.img-*")), self.folder / "initrd")
        shutil.copy(next((root / "boot").glob("vmlinuz-*")), self.folder / "vmlinuz")

    def _install(self) -> None:
        root, processor = self.folder / "root", PROCESSORS[self.architecture]
        wheels = root / "root/wheels"
        shutil.rmtree(wheels, ignore_errors=True)
        (version,) = (one.name.removeprefix("python3.") for one in (root / "usr/bin").glob("python3.*[0-9]"))
        platforms = [f"--platform={tag}_{processor.uname}" for tag in ("manylinux2014", "manylinux_2_28")]
        pip = (sys.executable, "-m", "pip", "-q")
        _run(*pip, "wheel", "--no-deps", "--wheel-dir", wheels, ROOT)
        _run(*pip, "download", "--only-binary=:all:", *platforms, f"--python-version=3.{version}", "--dest", wheels,
             *wheels.glob("ckptprof-*.whl"))  # fmt: skip
        _run("chroot", root, "sh", "-c", INSTALL)
        _run(processor.compiler, "-O2", "-static", "-o", root / "root/trainer", HERE / "trainer.c", "-lm")

    def boot(self) -> None:
        """Start it in the background; raises RuntimeError where it does not answer."""
        drives = [word for number, limit in enumerate(DRIVES) for word in self._drive(number, limit)]
        processor = PROCESSORS[self.architecture]
        _run(
            *processor.emulator, "-accel", "tcg", "-smp", "2", "-m", "3072",
            "-display", "none", "-no-reboot", "-daemonize", "-pidfile", self.folder / "pid",
            "-serial", f"file:{self.folder / 'console'}", "-kernel", self.folder / "vmlinuz",
            "-initrd", self.folder / "initrd",
            "-append", f"root=/dev/vda rw console={processor.console} net.ifnames=0 quiet",
            "-drive", f"file={self.folder / 'disk.img'},if=virtio,format=raw,cache=unsafe", *drives,
            "-netdev", f"user,id=u0,hostfwd=tcp:127.0.0.1:{self.port}-:22",
            "-device", "virtio-net-pci,netdev=u0,romfile=",
        )  # fmt: skip
        until = time.monotonic() + BOOT_SECONDS
        while self._ssh("true").returncode:
            if time.monotonic() > until:
                raise RuntimeError(f"it does not answer: {self.folder / 'console'}")
            time.sleep(2)

    def _drive(self, number: int, limit: str) -> list[str]:
        image = self.folder / f"nvme{number}.img"
        image.unlink(missing_ok=True)
        _run("truncate", "-s", "2G", image)
        drive = f"file={image},if=none,id=n{number},format=raw,cache=unsafe{limit}"
        return ["-drive", drive, "-device", f"nvme,drive=n{number},serial=ckpt000{number}"]

    def _ssh(self, script: str) -> subprocess.CompletedProcess[str]:
        command = ["ssh", *self._options, "-p", str(self.port), "root@127.0.0.1", script]
        return subprocess.run(command, capture_output=True, check=False, text=True, stdin=subprocess.DEVNULL)

    def run(self, script: str) -> str:
        """Run a script of bash in it; return what it printed. Raises RuntimeError where it fails."""
        result = self._ssh(f"bash -c {shlex.quote('set -eu; ' + script)}")
        if result.returncode:
            raise RuntimeError(f"{script}\n{result.stdout[-2000:]}{result.stderr[-4000:]}")
        return result.stdout

    def fetch(self, names: list[str], folder: Path) -> None:
        """Copy files out of /root."""
        of = [f"root@127.0.0.1:/root/{name}" for name in names]
        _run("scp", "-q", *self._options, "-P", str(self.port), *of, folder)

    def stop(self) -> None:
        """End it at once."""
        pid = int((self.folder / "pid").read_text())
        os.kill(pid, 15)


@contextmanager
def _emulation(architecture: str) -> Iterator[None]:
    """Let this kernel run programs of another processor meanwhile."""
    handler = BINFMT / "qemu-aarch64"
    if architecture == "amd64" or handler.exists():
        yield
        return
    if not (BINFMT / "register").exists():
        _run("mount", "-t", "binfmt_misc", "binfmt_misc", BINFMT)
    (BINFMT / "register").write_text(Path("/usr/lib/binfmt.d/qemu-aarch64.conf").read_text())
    try:
        yield
    finally:
        handler.write_text("-1")


def _run(*words: str | Path) -> None:
    subprocess.run([str(word) for word in words], check=True)


def main() -> None:
    """Do what is asked."""
    machine = Machine(os.environ.get("CKPTPROF_VM", "6.1"))
    what, *words = sys.argv[1:] or ["help"]
    if what == "ssh":
        sys.stdout.write(machine.run(shlex.join(words)))
    elif what in {"build", "boot", "stop"}:
        getattr(machine, what)()
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
