"""A job of torchrun on several nodes, each with an agent of its own: what their databases tell of it together.

A node has PID, network, UTS and mount namespaces of its own, and a link to a bridge, behind which is the server of the
folder that they share; one link is shaped or none. The nodes ship to a folder, which answers as their databases do.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from fault_grounds import by_ssh, call, loop, until
from livecommand import CKPTPROF
from tests.leftovers import own
from tests.machine import PATH

from proofs.proving import Live, Row, place, say

JOB = Path(__file__).with_name("spread.py")
SAVES, INTERVAL_SECONDS, RANK_MB = 4, 5.0, 64
MEGABITS = 120
NEAR, NEAR_SECONDS = 0.02, 0.5  # of the bytes; of how long others waited
SHAPED = 1  # the node whose link is shaped: not that of rank 0, which all know
NETWORK = "10.214.91"
SERVER = f"{NETWORK}.1"
PROMISED = {
    "shaped": "one checkpoint for each save, the shaped node the last of each; the fleet answers as the databases do",
    "not shaped": "one checkpoint for each save, no node slow, and none last that was not; the fleet the same",
}


@dataclass
class Site:
    """A bridge, a server of SFTP behind it, and nodes."""

    work: Path
    name: str = field(default_factory=lambda: own("bridge"))
    server: str = SERVER
    nodes: list[Node] = field(default_factory=list)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def open(self) -> None:
        """Make the bridge."""
        call("ip", "netns", "add", self.name)
        call("ip", "-n", self.name, "link", "add", "bridge", "type", "bridge")
        call("ip", "-n", self.name, "addr", "add", f"{SERVER}/24", "dev", "bridge")
        for device in ("bridge", "lo"):
            call("ip", "-n", self.name, "link", "set", device, "up")

    def serve(self, *command: str) -> None:
        """Start a server on the bridge; it ends with it."""
        inside = ("ip", "netns", "exec", self.name, *command)
        self.processes.append(subprocess.Popen(inside, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def close(self) -> None:
        """Take everything away."""
        for node in self.nodes:
            node.close()
        for process in self.processes:
            process.kill()
            process.wait()
        call("ip", "netns", "del", self.name)


@dataclass
class Node:
    """A node of a site."""

    site: Site
    number: int
    holder: subprocess.Popen[bytes] | None = None  # of its namespaces
    agent: Live | None = None

    @property
    def name(self) -> str:
        """Return what it calls itself."""
        return f"node-{self.number}"

    @property
    def inside(self) -> tuple[str, ...]:
        """Return what runs a command on it."""
        assert self.holder is not None
        (init,) = psutil.Process(self.holder.pid).children()
        return ("nsenter", f"--target={init.pid}", "--pid", "--net", "--uts", "--mount", "--")

    def open(self) -> None:
        """Make it, and tie it to the bridge."""
        network, port = own(self.name), f"port{self.number}"
        call("ip", "netns", "add", network)
        call("ip", "-n", network, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", self.site.name)
        call("ip", "-n", self.site.name, "link", "set", port, "master", "bridge", "up")
        call("ip", "-n", network, "addr", "add", f"{NETWORK}.{10 + self.number}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            call("ip", "-n", network, "link", "set", device, "up")
        hosts = f"mount --bind {self.site.work}/hosts /etc/hosts; mount --bind /dev/null /etc/resolv.conf"
        namespaces = ("unshare", "--pid", "--uts", "--mount", "--fork", "--kill-child", "--mount-proc")
        self.holder = subprocess.Popen(
            ["ip", "netns", "exec", network, *namespaces, "sh", "-ec",
             f"{hosts}; hostname {self.name}; echo ready; exec sleep infinity"], stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self.holder.stdout is not None
        if self.holder.stdout.readline() != b"ready\n":
            raise RuntimeError(f"{self.name} did not come up")

    def shape(self) -> None:
        """Hold both directions of its link to a rate."""
        shape = ("root", "tbf", "rate", f"{MEGABITS}mbit", "burst", "256kb", "latency", "100ms")
        call("ip", "netns", "exec", own(self.name), "tc", "qdisc", "add", "dev", "eth0", *shape)
        call("ip", "netns", "exec", self.site.name, "tc", "qdisc", "add", "dev", f"port{self.number}", *shape)

    def watch(self, databases: Path) -> None:
        """Start its agent."""
        home = self.site.work / self.name
        home.mkdir()
        self.agent = Live(home, level="poll", prefix=self.inside, database=databases / f"{self.name}.db")
        self.agent.start()

    def end(self) -> None:
        """End its agent as its systemd would."""
        assert self.agent is not None
        assert self.agent.process is not None
        (agent,) = psutil.Process(self.agent.process.pid).children()
        agent.send_signal(signal.SIGTERM)
        if self.agent.process.wait(60):
            raise RuntimeError(self.agent.said()[-2000:])

    def close(self) -> None:
        """Take it away."""
        if self.agent is not None:
            self.agent.close()
        if self.holder is not None:
            self.holder.kill()
            self.holder.wait()
        with contextlib.suppress(RuntimeError):
            call("ip", "netns", "del", own(self.name))


@contextlib.contextmanager
def site(work: Path, nodes: int, storage: str, ground: Path) -> Iterator[Site]:
    """Give so many nodes that have one folder in common, as `shared` below this one."""
    made = Site(work)
    folder = work / "shared"
    folder.mkdir()
    names = [f"{NETWORK}.{10 + number} node-{number}\n" for number in range(nodes)]
    (work / "hosts").write_text(f"127.0.0.1 localhost\n{''.join(names)}")
    with contextlib.ExitStack() as stack:
        stack.callback(made.close)
        made.open()
        made.nodes = [Node(made, number) for number in range(nodes)]
        for node in made.nodes:
            node.open()
        options = by_ssh(stack, made.serve, "/usr/lib/openssh/sftp-server") if storage == "sshfs" else ""
        for node in made.nodes:
            mount: tuple[str, ...] = ("mount", "--bind", str(ground), str(folder))
            if storage == "sshfs":
                mount = ("sshfs", f"{SERVER}:{ground}", str(folder), "-o", options)
            until(lambda node=node, mount=mount: call(*node.inside, *mount))
        yield made


def trained(made: Site, way: str) -> dict[int, dict[int, tuple[int, int]]]:
    """Run the job on all nodes; return of each step and rank when it began and had written, in epoch ns."""
    truth = made.work / "truth"
    truth.mkdir()
    job = [JOB, "--dir", made.work / "shared" / "run", "--truth", truth, "--way", way, "--saves", SAVES]
    job += ["--interval", INTERVAL_SECONDS, "--rank-mb", RANK_MB]
    nodes = ("--nnodes", len(made.nodes), "--nproc-per-node", 1, "--master-addr", "node-0", "--master-port", 29500)
    environment = {"PATH": PATH, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0", "HOME": str(made.work)}
    started = []
    for node in made.nodes:
        torchrun = (sys.executable, "-m", "torch.distributed.run", *nodes, "--node-rank", node.number, *job)
        with (made.work / node.name / "job.log").open("wb") as log:
            started.append(
                subprocess.Popen([*node.inside, *map(str, torchrun)], env=environment, stdout=log, stderr=log)
            )
    for node, process in zip(made.nodes, started, strict=True):
        if process.wait(400):
            raise RuntimeError(f"{node.name}: {(made.work / node.name / 'job.log').read_text()[-2000:]}")
    found: dict[int, dict[int, tuple[int, int]]] = {}
    for rank in range(len(made.nodes)):
        for line in (truth / f"rank_{rank}").read_text().splitlines():
            one = json.loads(line)
            found.setdefault(one["step"], {})[rank] = (one["start_ns"], one["written_ns"])
    return found


def report(*databases: str) -> dict[str, Any]:
    """Return what `ckptprof report --json` tells of databases together."""
    done = subprocess.run([*CKPTPROF, "report", "--json", "--db", *databases], capture_output=True, check=False)
    if done.returncode not in (0, 3):
        raise RuntimeError(done.stderr.decode(errors="replace"))
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def shipped(databases: Path) -> Path:
    """Ship each database, and merge what came; return where all of it is."""
    fleet = databases / "fleet"
    for database in sorted(databases.glob("*.db")):
        call(*CKPTPROF, "ship", "--db", database, "--to", fleet)
    call(*CKPTPROF, "fleet", "compact", "--db", fleet)
    return fleet


def answered(db: Path) -> list[Any]:
    """Return the answers to two questions, rounded as far as sums depend on the order of rows."""
    found = []
    for question in ("stragglers", "cost"):
        words = [*CKPTPROF, "fleet", question, "--json", "--db", db]
        done = subprocess.run(words, capture_output=True, check=True)
        found.append(json.loads(done.stdout, parse_float=lambda digits: f"{float(digits):.9g}"))
    return found


def late_seconds(of_ranks: dict[int, tuple[int, int]], rank: int) -> float:
    """Return how much later a rank had its part written than the others in their median."""
    others = [written for number, (_, written) in of_ranks.items() if number != rank]
    return (of_ranks[rank][1] - median(others)) / 1e9


def _row(made: Site, how: tuple[str, str, str], truth: dict[int, Any], told: dict[str, Any], *, equal: bool) -> Row:
    way, storage, shaping = how
    nodes = len(made.nodes)
    saves = [one for one in told["checkpoints"] if one["whole"]["kind"] == "save"]
    steps = [one["whole"]["step"] for one in saves]
    whole = sum(len(one["nodes"]) == one["ranks_observed"] == one["ranks_expected"] == nodes for one in saves)
    last = [one["straggler"]["host"] if one["straggler"] else None for one in saves]
    moved = nodes * RANK_MB * 1_000_000
    off = max(abs(one["whole"]["bytes"] / moved - 1) for one in saves)
    late = median(late_seconds(one, SHAPED) for one in truth.values())
    lates = [
        (one["straggler"]["excess_seconds"], late_seconds(truth[one["whole"]["step"]], int(host.rpartition("-")[2])))
        for one, host in zip(saves, last, strict=True)
        if host is not None
    ]
    wrong = max((abs(said - logged) for said, logged in lates), default=0.0)
    slow = [one["host"] for one in told["slow"]]
    limits = sorted({one["whole"]["verdict"]["limit"] for one in saves if one["whole"]["verdict"]})
    shaped = f"node-{SHAPED}"
    is_held = shaping == "shaped" and storage == "sshfs"
    others = [logged for host, (_, logged) in zip(filter(None, last), lates, strict=True) if host != shaped]
    seen = f"{len(saves)} told for {len(truth)} saves, {whole} with all nodes and ranks, bytes within {off:.1%}; "
    seen += f"last {shaped} in {last.count(shaped)} (it logged {late:.1f} s after the others), another in {len(others)}"
    seen += f" (logged {', '.join(f'{one:.1f} s' for one in others)})" if others else ""
    seen += f"; told within {wrong:.2f} s of that; slow: {', '.join(slow) or 'none'}; limit {', '.join(limits)}; "
    seen += f"fleet {'equal' if equal else 'NOT EQUAL'}"
    fine = steps == sorted(truth) and whole == SAVES and off <= NEAR and equal and wrong <= NEAR_SECONDS
    fine = fine and slow == [shaped] * is_held and (not is_held or last == [shaped] * SAVES)
    done = f"{nodes} nodes, {way} of {RANK_MB} MB a rank over {storage}, {shaping}, {SAVES} saves"
    return Row(f"nodes: {shaping}", done, PROMISED["shaped" if is_held else "not shaped"], seen, fine)


def prove() -> list[Row]:
    """Save with two nodes and four, each in both ways and to both storages, with a shaped link and without."""
    rows = []
    with loop() as ground:
        for nodes, storage, way, shaping in product(
            (2, 4), ("sshfs", "bind mount"), ("torch-save", "dcp"), ("shaped", "not shaped")
        ):
            rows.append(_proved(ground, nodes, (way, storage, shaping)))
            say(f"{rows[-1].done}: {rows[-1].seen}")
    return rows


def _proved(ground: Path, nodes: int, how: tuple[str, str, str]) -> Row:
    way, storage, shaping = how
    with place() as work:
        databases = work / "nodes"
        databases.mkdir()
        with site(work, nodes, storage, ground) as made:
            for node in made.nodes:
                node.watch(databases)
            if shaping == "shaped":
                made.nodes[SHAPED].shape()
            truth = trained(made, way)
            time.sleep(3)
            for node in made.nodes:
                node.end()
        shutil.rmtree(ground / "run")
        told = report(str(databases))
        of_nodes, of_fleet = answered(databases), answered(shipped(databases))
        equal = of_nodes == of_fleet
        if not equal:
            say(f"databases: {json.dumps(of_nodes)}\nfleet: {json.dumps(of_fleet)}")
        return _row(made, how, truth, told, equal=equal)
