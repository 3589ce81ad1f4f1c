"""What a user without privileges does to the service under a real systemd, while another user's job saves.

The service polls there: a container has pids of its own, in which eBPF cannot trace.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import statistics
import subprocess
import tempfile
import time
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bootedmachine import DATABASE, PROGRAM, REPOSITORY, Machine, booted, copy_of_tree, install, until
from tests.report.conftest import NAMES
from tests.service.commands.test_agent_attacked import SAVE, Openings

from proofs.crowds import IDLE
from proofs.proving import SAVING_JOB, Row, say
from silentfuse import SilentMount

ATTACKER, VICTIM = "trainer", "reader"
LATE_SECONDS = 0.1  # in the mean of all ticks
SETTLED_SECONDS = 12.0
TOLD_SECONDS = 25.0
_SCRAPE = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:12578/metrics', timeout=20).read().decode())"
_FILES = """
import os, resource, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]) + 100,) * 2)
held = [open(f"held_{n}.npy", "wb", buffering=0) for n in range(int(sys.argv[1]))]
print("ready", flush=True)
while True:
    for file in held[::100]:
        file.write(bytes(4096))
    time.sleep(0.5)
"""
_CLIENTS = """
import resource, socket, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
while True:
    held = []
    for _ in range(int(sys.argv[1])):
        one = socket.socket()
        one.settimeout(0.2)
        try:
            one.connect(("127.0.0.1", 12578))
            one.sendall(b"GET /metrics HTTP/1.1\\r\\nX-Slow: ")
        except OSError:
            pass
        held.append(one)
    time.sleep(2)
"""
_HOSTILE = """
import json, os, time
tensor = {"w": {"dtype": "U8", "shape": [1 << 24], "data_offsets": [0, 1 << 24]}}
header = json.dumps(tensor).encode().ljust(128)
for n, name in enumerate(json.load(open("/opt/attacks/names"))):
    for step in (n * 10, n * 10 + 5):
        folder = bytes.fromhex(name) + f"/checkpoint-{step}".encode()
        os.makedirs(folder)
        with open(folder + b"/model.safetensors", "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            for _ in range(4):
                file.write(bytes(4 << 20))
                time.sleep(0.08)
        time.sleep(0.5)
time.sleep(3)
"""
_PROGRAMS = {
    "saving.py": SAVING_JOB, "idle.py": IDLE, "files.py": _FILES, "clients.py": _CLIENTS, "hostile.py": _HOSTILE,
    "save.py": SAVE,
}  # fmt: skip


@dataclass
class Site:
    """A booted machine with the service, the victim's job and what the attacker starts."""

    machine: Machine
    scrapes: list[float]

    def metrics(self) -> dict[str, float]:
        """Return the metrics without labels, and note how long that took."""
        began = time.monotonic()
        page = self.machine.run("python3", "-c", _SCRAPE)
        self.scrapes.append(time.monotonic() - began)
        return {name: float(value) for name, value in re.findall(r"^ckptprof_(\w+) (\S+)$", page, re.MULTILINE)}

    def start(self, user: str, name: str, *command: str) -> None:
        """Start a command as a user, in a unit and a folder of its own."""
        home = f"/home/{user}/{name}"
        self.machine.run("install", "-d", "-o", user, "-g", user, home)
        unit = ["--quiet", "--collect", f"--unit={name}", f"--uid={user}", f"--working-directory={home}"]
        self.machine.run("systemd-run", *unit, "--setenv=RANK=0", "--property=TasksMax=infinity",
                         "--property=LimitNOFILE=65536", *command)  # fmt: skip

    def stop(self, name: str) -> None:
        """End it with all that it started."""
        self.machine.call("systemctl", "kill", "--signal=KILL", name)
        self.machine.call("systemctl", "stop", name)

    def cpu_seconds(self) -> float:
        """Return what recorder and sampler have used."""
        used = 0.0
        for pid in self.machine.pids():
            words = self.machine.call("cat", f"/proc/{pid}/stat").stdout.rpartition(")")[2].split()
            used += (int(words[11]) + int(words[12])) / 100 if words else 0.0
        return used

    def truth(self) -> list[dict[str, Any]]:
        """Return the saves of the victim."""
        path = self.machine.root / f"home/{VICTIM}/saving/truth"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def on_host(self, pid: int) -> int:
        """Return the pid that a process of the machine has on this host."""
        for status in Path("/proc").glob("[0-9]*/status"):
            with contextlib.suppress(OSError):
                found = re.search(r"^NSpid:\t(\d+)\t(\d+)$", status.read_text(), re.MULTILINE)
                if found and int(found[2]) == pid and str(self.machine.root) == _root_of(int(found[1])):
                    return int(found[1])
        raise RuntimeError("the sampler is not on this host")


def _root_of(pid: int) -> str:
    mounts = Path(f"/proc/{pid}/cgroup").read_text()
    return _CURRENT[0] if "payload" in mounts else ""


_CURRENT = [""]


@contextlib.contextmanager
def site(work: Path) -> Iterator[Site]:
    """Boot a tree in which the service is installed; the victim saves all the while."""
    root = work / "root"
    _CURRENT[0] = str(root)
    with booted(root) as machine:
        until("the service", lambda: machine.property("ActiveState") == "active")
        folder = root / "opt/attacks"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, text in _PROGRAMS.items():
            (folder / name).write_text(text)
        for path in ("tests/silentfuse.py", "tests/service/swapping_job.py"):
            shutil.copy(REPOSITORY / path, folder)
        (folder / "names").write_text(json.dumps([one.hex() for one in hostile_names()]))
        for user in (ATTACKER, VICTIM):
            (root / "home" / user).chmod(0o755)
        made = Site(machine, [])
        shutil.rmtree(root / f"home/{VICTIM}/saving", ignore_errors=True)
        made.start(VICTIM, "saving", "/usr/bin/python3", "/opt/attacks/saving.py", str(24 << 20), "0.5", "1.5")
        time.sleep(SETTLED_SECONDS)
        yield made


def hostile_names() -> list[bytes]:
    """Return the corpus of hostile names as parts of file names."""
    made = {one.replace("/", "_").replace("\0", "").encode("utf-8", "surrogatepass")[:200] for one in NAMES}
    return sorted(one for one in made if one not in {b"", b".", b".."})


def attacked(site: Site, seconds: float, attack: Callable[[], Any], unit: str = "") -> tuple[str, bool]:
    """Attack for so long; return what was seen of the victim and the service, and whether it is as promised.

    Raises RuntimeError if the attacker's unit, if one is named, has ended before.
    """
    machine = site.machine
    pids, since_ns = machine.pids(), time.time_ns()
    before, used, began = site.metrics(), site.cpu_seconds(), time.monotonic()
    site.scrapes.clear()
    attack()
    while time.monotonic() - began < seconds:
        time.sleep(5)
        site.metrics()
    after, spent = site.metrics(), (site.cpu_seconds() - used) / (time.monotonic() - began)
    made = {one["path"] for one in site.truth() if one["start_ns"] > since_ns}
    found: set[str] = set()
    limit = time.monotonic() + TOLD_SECONDS
    while not made <= found and time.monotonic() < limit:
        time.sleep(3)
        found = {one["path"] for one in machine.report()["checkpoints"] if one["kind"] == "save"}
    if unit and machine.call("systemctl", "is-active", unit).stdout != "active\n":
        raise RuntimeError(
            f"the attack ended by itself: {machine.call('journalctl', '-u', unit, '-n5', '-ocat').stdout}"
        )
    ticks = after["sampler_ticks_total"] - before["sampler_ticks_total"]
    late = (after["sampler_lateness_seconds_total"] - before["sampler_lateness_seconds_total"]) / max(1.0, ticks)
    restarts = machine.property("NRestarts")
    seen = f"{len(made & found)} of {len(made)} saves of the other user told; {100 * spent:.0f} % of a core; "
    seen += f"ticks {1000 * late:.0f} ms late in the mean; scrapes took {statistics.median(site.scrapes):.1f} s in the "
    seen += f"median, {max(site.scrapes):.1f} s at most; "
    seen += "neither process was replaced" if machine.pids() == pids else f"replaced: {pids} by {machine.pids()}"
    return seen, made <= found and late < LATE_SECONDS and machine.pids() == pids and restarts == "0"


PROMISED = (
    "every save of the other user is told, ticks are less than 0.1 s late in the mean, neither process is replaced"
)


def prove(scale: float, only: str = "") -> list[Row]:
    """Install the service once, and attack it in each way; `scale` 1 is ten minutes of the first and two of others.

    `only` is how the name of an attack begins, if not all are wanted.
    """
    rows = []
    work = Path(tempfile.mkdtemp(prefix="ckptprof-attacks-", dir=REPOSITORY / ".build"))
    try:
        install(copy_of_tree(work))
        with site(work) as made:
            for attack in (_nothing, _swapped, _led, _namespaces, _interpreters, _open_files, _clients, _hostile_names):
                if not attack.__name__.startswith(f"_{only}"):
                    continue
                try:
                    rows.append(attack(made, scale))
                except (AssertionError, RuntimeError, OSError, KeyError, subprocess.SubprocessError) as error:
                    text = f"{type(error).__name__}: {str(error)[-300:]}"
                    rows.append(Row(f"attack: {attack.__name__[1:]}", "it was tried", PROMISED, text, holds=False))
                say(f"{rows[-1].proof}: {rows[-1].seen}")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return rows


def _nothing(site: Site, scale: float) -> Row:
    seen, holds = attacked(site, max(20, 120 * scale), lambda: None)
    return Row("attack: none", "for comparison", PROMISED, seen, holds)


def _swapped(site: Site, scale: float) -> Row:
    machine, seconds = site.machine, max(20.0, 600 * scale)
    enter = ("nsenter", f"--target={machine._init}", "--mount")  # noqa: SLF001 - of the tests' own
    machine.root.joinpath("home", ATTACKER, "silent").mkdir(exist_ok=True)
    subprocess.run([*enter, "sh", "-c", "test -e /dev/fuse || mknod /dev/fuse c 10 229"], check=True)
    user = int(machine.run("id", "-u", ATTACKER))
    mount = SilentMount(
        Path(f"/home/{ATTACKER}/silent"), user, (*enter, "/usr/bin/python3", "-I", "/opt/attacks/silentfuse.py")
    )
    try:
        job = ("/usr/bin/python3", "/opt/attacks/swapping_job.py", f"/home/{ATTACKER}/swapping", f"{mount.place}/x")
        seen, holds = attacked(site, seconds, lambda: site.start(ATTACKER, "swapping", *job, str(seconds)))
        hung = site.metrics()["sampler_hung_lookups"]
        told = machine.call(PROGRAM, "doctor").stdout
    finally:
        site.stop("swapping")
        mount.close()
    said = re.findall(r"no answer|hangs? in the kernel|sampler \d+", machine.journal() + told)
    seen += f"; {mount.asked} requests reached the mount; {hung:.0f} look-ups hang, which "
    seen += "is said" if said else "is not said"
    return Row("attack: swap into a hanging FUSE", f"{seconds:.0f} s", f"{PROMISED}; it is said", seen,
               holds and (not hung or bool(said)))  # fmt: skip


def _led(site: Site, scale: float) -> Row:
    machine = site.machine
    secret = machine.root / "root/secret"
    secret.mkdir(exist_ok=True)
    (secret / "model.pt").write_bytes(bytes(2 << 20))
    home = machine.root / f"home/{ATTACKER}"
    (home / "link").unlink(missing_ok=True)
    (home / "link").symlink_to("/root/secret")
    openings = Openings(secret)
    sampler = site.on_host(machine.pids()[1])
    names = (f"--out=/home/{ATTACKER}/link", f"--log=/home/{ATTACKER}/link/model.pt", "--base=/root/secret")
    job = ("/usr/bin/python3", "/opt/attacks/save.py", "10", *names)
    seen, holds = attacked(site, max(20.0, 60 * scale), lambda: site.start(ATTACKER, "led", *job))
    opened = openings.by(sampler)
    openings.close()
    site.stop("led")
    return Row("attack: links", "links and names of a folder of root in the arguments of a job",
               f"{PROMISED}; nothing of it is opened", f"{len(opened)} times opened; {seen}",
               holds and not opened)  # fmt: skip


def _namespaces(site: Site, scale: float) -> Row:
    machine = site.machine
    place = machine.root / f"home/{ATTACKER}/ckpt"
    place.mkdir(exist_ok=True)
    place.chmod(0o777)
    for number in range(3):
        (place / f"ckpt_{number}.npy").write_bytes(bytes(2 << 20))
    openings = Openings(place)
    sampler = site.on_host(machine.pids()[1])
    inner = (
        f"mount -t tmpfs none /home/{ATTACKER}/ckpt && cd /home/{ATTACKER}/ckpt && exec python3 /opt/attacks/save.py 3"
    )
    loop = f"for n in 1 2 3; do unshare --user --map-root-user --mount sh -c '{inner}'; done; echo over >over"
    seen, holds = attacked(site, max(30.0, 60 * scale), lambda: site.start(ATTACKER, "spaces", "sh", "-c", loop))
    opened = openings.by(sampler)
    openings.close()
    over = (machine.root / f"home/{ATTACKER}/spaces/over").exists()
    site.stop("spaces")
    return Row("attack: namespaces", "three jobs that save into a mount of their own user and mount namespace, and end",
               f"{PROMISED}; the host's files of the same names are not opened",
               f"{len(opened)} times opened; {seen}" + ("" if over else "; the jobs did not end"),
               holds and not opened and over)  # fmt: skip


def _interpreters(site: Site, scale: float) -> Row:
    job = ("/usr/bin/python3", "/opt/attacks/idle.py", "1500")
    seen, holds = attacked(site, max(25.0, 120 * scale), lambda: site.start(ATTACKER, "idle", *job), "idle")
    site.stop("idle")
    return Row("attack: interpreters", "1,500 sleeping interpreters", PROMISED, seen, holds)


def _open_files(site: Site, scale: float) -> Row:
    job = ("/usr/bin/python3", "/opt/attacks/files.py", "20000")
    seen, holds = attacked(site, max(25.0, 120 * scale), lambda: site.start(ATTACKER, "files", *job), "files")
    site.stop("files")
    return Row(
        "attack: open files", "a job with 20,000 open files, of which it writes 200 all the time", PROMISED, seen, holds
    )


def _clients(site: Site, scale: float) -> Row:
    job = ("/usr/bin/python3", "/opt/attacks/clients.py", "900")
    seen, holds = attacked(site, max(25.0, 120 * scale), lambda: site.start(ATTACKER, "clients", *job), "clients")
    site.stop("clients")
    return Row("attack: slow clients", "900 connections to /metrics that never end their request, made again and again",
               f"{PROMISED}; others are served", seen, holds)  # fmt: skip


def _hostile_names(site: Site, scale: float) -> Row:
    machine, count = site.machine, len(hostile_names())
    del scale
    job = ("/usr/bin/python3", "/opt/attacks/hostile.py")
    seen, holds = attacked(site, 1.8 * count + 10, lambda: site.start(ATTACKER, "hostile", *job))
    site.stop("hostile")
    ids = [one["id"] for one in machine.report()["checkpoints"] if f"/home/{ATTACKER}/hostile/" in (one["path"] or "")]
    outputs = {"metrics": machine.run("python3", "-c", _SCRAPE), "journal": machine.journal()}
    for name in ("report", "list", "report --json", "doctor"):
        options = () if name == "doctor" else ("--db", DATABASE)
        outputs[name] = machine.call(PROGRAM, *name.split(), *options).stdout
    outputs["show"] = "".join(machine.call(PROGRAM, "show", str(one), "--db", DATABASE).stdout for one in ids)
    raw = {name for name, text in outputs.items() if _raw(text)}
    told = f"{len(ids)} saves with such names told, looked at in {len(outputs)} outputs (`show` of each); {seen}"
    done = f"{2 * count} saves below {count} hostile names: escapes, control, bidi, markup, bytes, shell, SQL"
    promised = f"no output has a raw control character or a broken line; {PROMISED}"
    return Row("attack: hostile names", done, promised, f"raw characters in {sorted(raw) or 'none'}; {told}",
               holds and not raw and bool(ids))  # fmt: skip


def _raw(text: str) -> set[str]:
    """Return the characters that a terminal may act on; newlines, and the tabs of `list`, are ours."""
    categories = ("Cc", "Cf", "Zl", "Zp", "Cs")
    return {one for one in text if one not in "\n\t" and unicodedata.category(one) in categories}
